"""The fields of a config by dotted key, its defaults, and values from Python or a command line."""

import ast
import dataclasses
import functools
import importlib
import re
import types
import typing
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import ml_collections

from fedjax_syn import algorithms
from fedjax_syn.config import blocks, method_list
from fedjax_syn.config.schema import METHODS, SECTIONS, Resolved
from fedjax_syn.core import own_code, suggestions
from fedjax_syn.core.fields import ConfigError, as_field, coerce, field
from fedjax_syn.core.texts import shown
from fedjax_syn.layer import Layer

LITERAL = 2**20  # characters of a number or a tuple: some hundred thousand seeds
TFDS = 'tfds:'  # also in the data sets, which are slow to import
REGISTRIES = {
  'algorithms': 'fedjax_syn.algorithms',
  'datasets': 'fedjax_syn.data.datasets',
  'models': 'fedjax_syn.models',
  'partitions': 'fedjax_syn.data.partition',
}


class Leaf(NamedTuple):
  """One field of a config."""

  kind: Any
  """bool, int, float, str, tuple[kind, ...] or `kind | None`."""
  default: Any
  rules: Mapping[str, Any]
  """The arguments of `fedjax_syn.core.fields.field`."""


def names(kind: str) -> dict[str, str]:
  """Returns what exists of a kind of `REGISTRIES`: one line by name."""
  return importlib.import_module(REGISTRIES[kind]).names()


def leaves(*outside: str) -> dict[str, Leaf]:
  """Returns every field by its dotted key.

  Args:
    *outside: layers outside the package, as in `algorithm`, whose fields are added.
  """
  out: dict[str, Leaf] = {}
  for prefix, cls in {'': Resolved, **SECTIONS, **blocks.classes(outside)}.items():
    out |= _leaves_of(prefix, cls)
  return out


@functools.cache  # tables check some thousand configs; classes do not change
def _leaves_of(prefix: str, cls: type) -> Mapping[str, Leaf]:
  kinds = typing.get_type_hints(cls)
  out = {}
  for f in dataclasses.fields(cls):
    rules = f.metadata or (field(f.default).metadata if issubclass(cls, Layer) else {})
    if rules:
      key = f'{prefix}.{f.name}' if prefix else f.name
      out[key] = Leaf(kinds[f.name], coerce(key, f.default, kinds[f.name]), rules)
  return types.MappingProxyType(out)


def get_default(*outside: str) -> ml_collections.ConfigDict:
  """Returns the locked default config, with the blocks of all layers.

  Args:
    *outside: layers outside the package, as in `algorithm`, whose blocks are added.
  """
  config: dict[str, Any] = {}
  for key, leaf in leaves(*outside).items():
    section, _, name = key.rpartition('.')
    (config.setdefault(section, {}) if section else config)[name] = leaf.default
  return ml_collections.ConfigDict(config | {'outside': outside}).lock()


def override(config: ml_collections.ConfigDict, key: str, text: str) -> None:
  """Sets one field from the text of a command line.

  Args:
    config: changed in place; it may be locked.
    key: dotted, as in 'client.lr'.
    text: '0.1', 'False', 'adam', '0,1,2' or '(0,1,2)'.

  Raises:
    ConfigError: if there is no such field or the text is not of its type. A tuple of one is written
      '1,': a lone '1' is refused, since `seeds=3` may have meant three seeds.
  """
  if key in METHODS:
    for word in method_list.words_of(key, coerce(key, text, str)):
      check_algorithm(key, word)
    _add_blocks(config, key, text)
  known = leaves(*config.get('outside', ()))
  if key not in known:
    raise ConfigError(f'{key}={shown(text)}: {no_such(key, known, config.get("outside", ()))}')
  value = from_text(key, text, known[key].kind)
  section, _, name = key.rpartition('.')
  with config.unlocked(), config.ignore_type():  # a file may leave out fields
    if section and section not in config:
      config[section] = ml_collections.ConfigDict()
    block = config[section] if section else config
    if not isinstance(block, ml_collections.ConfigDict):
      raise ConfigError(f'{section}={shown(block)}: must be a block of fields, as {key} is one')
    with block.unlocked(), block.ignore_type():
      block[name] = value


def from_text(key: str, text: str, kind: Any) -> Any:
  """Returns the value of a field from the text of a command line; see `override`."""
  return coerce(key, text if kind is str else _literal(key, text), kind)


def _add_blocks(config: ml_collections.ConfigDict, key: str, text: str) -> None:
  """Gives a config the blocks of layers outside the package, and removes those replaced."""
  texts = {**{name: str(config.get(name, '')) for name in METHODS}, key: text}
  words = [word for name, t in texts.items() for word in method_list.words_of(name, t)]
  before = blocks.classes(config.get('outside', ()))
  outside = blocks.outside(config.get('outside', ()), *words)
  with config.unlocked(), config.ignore_type():
    for name, cls in blocks.classes(outside).items():
      if name in config and cls is not before.get(name, cls):
        del config[name]
    config.update({k: v for k, v in get_default(*outside).items() if k not in config})
    config.outside = outside


def _literal(key: str, text: str) -> Any:
  """Reads a Python literal; any other text stays a text, of which `coerce` says what is wrong."""
  if len(text) > LITERAL:
    raise ConfigError(f'{key}={shown(text)}: must have at most {LITERAL} characters')
  try:
    with warnings.catch_warnings():
      warnings.simplefilter('ignore')
      return ast.literal_eval({'true': 'True', 'false': 'False'}.get(text, text))
  # Also a literal that cannot be hashed, and one that is nested too deep.
  except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
    return text


def from_arguments(fields: Mapping[str, str], given: Mapping[str, Any]) -> dict[str, Any]:
  """Checks arguments of a Python function that are fields of a config.

  Args:
    fields: the dotted key by argument, as 'client.participation' by 'participation'.
    given: values by argument; numpy numbers, arrays, ranges and paths are converted.

  Returns:
    Values of the fields' types, by argument.

  Raises:
    ConfigError: in one line, naming the argument, its value and what would work.
  """
  out = {}
  for name, value in given.items():
    section, _, key = fields[name].rpartition('.')
    out[name] = as_field(SECTIONS[section] if section else Resolved, key, value, name)
  return out


def check_algorithm(key: str, word: str) -> None:
  """Checks a word like 'scaffold+dynafed'.

  Args:
    key: 'algorithm' or 'compare'.
    word: its value, or one of the methods in it.

  Raises:
    ConfigError: if a part is unknown, repeated or out of place.
  """
  if ',' in word:
    raise ConfigError(
      f'{key}={shown(word)}: names one method; those that it is compared with are in compare'
      f' (--config.compare={word.partition(",")[2]})'
    )
  method, _, settings = word.partition('(')
  if method in algorithms.LAYERS and '=' in settings:
    raise ConfigError(
      f'{key}={shown(word)}: settings in parentheses are those of compare; of the algorithm they'
      f' are written --config.algorithm={method} --config.client.lr=0.1'
    )
  parts = word.split('+')
  for position, part in enumerate(parts):
    check_name(key, part, 'algorithms')
    if part in parts[:position]:
      raise ConfigError(f'{key}={shown(word)}: {part!r} is repeated; each method can be used once')
    if part == algorithms.BASE and position > 0:
      raise ConfigError(f'{key}={shown(word)}: {part!r} wraps nothing; it can only come first')


def check_name(key: str, value: str, kind: str) -> None:
  """Checks that something of a kind exists; a user's own is imported.

  Args:
    key: the field.
    value: its value: a name, `module:function`, or of a layer also `FILE:Class`.
    kind: of `REGISTRIES`.

  Raises:
    ConfigError: if it does not exist or cannot be imported.
  """
  if kind == 'datasets' and value.startswith(TFDS) and value != TFDS:
    return  # loading it will tell
  if kind == 'partitions' and value.startswith('file:') and value != 'file:':
    return  # reading it will tell
  if ':' not in value:
    known = names(kind)
    if value not in known:
      if kind != 'algorithms':
        raise ConfigError(f'{key}={shown(value)}: unknown{_nearest(value, known)}')
      if joined := _joined(value):
        raise ConfigError(f'{key}={shown(value)}: unknown; nearest: {joined}')
      own = 'your own is MODULE:CLASS or FILE.py:CLASS'
      raise ConfigError(f'{key}={shown(value)}: unknown{_nearest(value, known)}; {own}')
  elif kind == 'algorithms':
    try:
      layer = algorithms.layer_class(value)
    except ValueError as error:
      raise ConfigError(f'{key}={error}') from error
    if layer.name in (*SECTIONS, *Resolved.__dataclass_fields__, algorithms.BASE):
      raise ConfigError(
        f'{key}={shown(value)}: {layer.name!r}, the name of its block, is that of another part of'
        ' the config; rename the class'
      )
  else:
    own_code.load(value, key)


def no_such(key: str, known: Iterable[str], outside: Iterable[str]) -> str:
  """States that a field does not exist, and which are near.

  Args:
    key: the dotted key.
    known: all fields.
    outside: layers outside the package.
  """
  for word in outside:
    if (name := algorithms.block_name(word)) == key.partition('.')[0]:
      fields = ', '.join(k.removeprefix(f'{name}.') for k in known if k.startswith(f'{name}.'))
      return f'{word} has no such field; it has {fields or "none"} (docs/compose.md)'
  if line := suggestions.hint(key):
    return f'no such field; {line}'
  return f'no such field{_nearest(key, known)}'


def _nearest(key: str, known: Iterable[str]) -> str:
  """Names the nearest of what is known, or everything if nothing is near and it is not much."""
  known = list(known)
  if near := suggestions.nearest(key, known):
    return f'; nearest: {", ".join(near)}'
  return f'; known: {", ".join(known)}' if len(known) <= 40 else '; --list=fields names all'


def _joined(word: str) -> str:
  """Returns what a composition is called that was written otherwise, 'dynafed(scaffold)'; or ''."""
  names = [name.casefold() for name in re.findall(r'\w+', word)]
  if len(names) < 2 or not algorithms.LAYERS.keys() >= {*names}:
    return ''
  layers = [name for name in names if name != algorithms.BASE]
  return '+'.join(reversed(layers) if '(' in word else layers)  # in parentheses, the inner one
