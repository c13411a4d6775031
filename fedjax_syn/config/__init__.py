"""Configs: defaults, overrides, and `check(config)`: everything refusable is refused here, before data loads.

A config is a locked ConfigDict of the fields of `fedjax_syn.config.schema` and one block per algorithm, so that
`--config.scaffold.option=2` works from any config file; `check` turns it into frozen dataclasses.
"""

import ast
import dataclasses
import difflib
import functools
import importlib
import importlib.util
import json
import types
import typing
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import ml_collections

from fedjax_syn import algorithms
from fedjax_syn.algorithms.removed import without_constants
from fedjax_syn.chains import TRAITS, Chain
from fedjax_syn.config import arguments, blocks
from fedjax_syn.config.schema import SECTIONS, Resolved, flatten, plain
from fedjax_syn.core import privacy
from fedjax_syn.core.contexts import Run
from fedjax_syn.core.fields import ConfigError, check_range, coerce, field
from fedjax_syn.core.texts import shown
from fedjax_syn.data import kinds
from fedjax_syn.data.normalisation import NORMALISATIONS
from fedjax_syn.layer import Layer

LITERAL = 2**20  # characters of a number or a tuple: some hundred thousand seeds
HELD_OUT, TFDS = 'held_out', 'tfds:'  # named here too, since data sets are slow to import
REGISTRIES = {
  'algorithms': 'fedjax_syn.algorithms',
  'datasets': 'fedjax_syn.data.datasets',
  'models': 'fedjax_syn.models',
  'partitions': 'fedjax_syn.data.partition',
}


class Leaf(NamedTuple):
  """One field of a config."""

  kind: Any  # bool, int, float, str or tuple[kind, ...]
  default: Any
  rules: Mapping[str, Any]  # what `fedjax_syn.core.fields.field` was told


def names(kind: str) -> dict[str, str]:
  """Returns what exists of a kind ('algorithms', 'datasets', 'models', 'partitions'): name to one line."""
  return importlib.import_module(REGISTRIES[kind]).names()


def leaves(*outside: str) -> dict[str, Leaf]:
  """Returns every field by its dotted key; `outside` are methods outside the package."""
  out: dict[str, Leaf] = {}
  for prefix, cls in {'': Resolved, **SECTIONS, **blocks.classes(outside)}.items():
    out |= _leaves_of(prefix, cls)
  return out


@functools.cache  # tables check some thousand configs; classes do not change
def _leaves_of(prefix: str, cls: type) -> Mapping[str, Leaf]:
  kinds = typing.get_type_hints(cls)
  found = {}
  for f in dataclasses.fields(cls):
    rules = f.metadata or (field(f.default).metadata if issubclass(cls, Layer) else {})
    if rules:
      key = f'{prefix}.{f.name}' if prefix else f.name
      found[key] = Leaf(kinds[f.name], coerce(key, f.default, kinds[f.name]), rules)
  return types.MappingProxyType(found)


def get_default(*outside: str) -> ml_collections.ConfigDict:
  """Returns the locked default config: the blocks of all methods, and of those `outside` the package."""
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
  if key in ('algorithm', 'compare'):  # a layer from outside the package brings its block along
    check_algorithm(key, coerce(key, text, str))
    other = config.get('compare' if key == 'algorithm' else 'algorithm', '')
    before = blocks.classes(config.get('outside', ()))
    outside = blocks.outside(config.get('outside', ()), text, str(other))
    with config.unlocked(), config.ignore_type():
      for name, cls in blocks.classes(outside).items():
        if name in config and cls is not before.get(name, cls):  # of another class by now
          del config[name]
      config.update({k: v for k, v in get_default(*outside).items() if k not in config})
      config.outside = outside
  known = leaves(*config.get('outside', ()))
  if key not in known:
    raise ConfigError(f'{key}={shown(text)}: {_no_such(key, known, config.get("outside", ()))}')
  value = text if known[key].kind is str else _literal(key, text)
  value = coerce(key, value, known[key].kind)
  section, _, name = key.rpartition('.')
  with config.unlocked(), config.ignore_type():  # a file may leave out what is as by default
    if section and section not in config:
      config[section] = ml_collections.ConfigDict()
    place = config[section] if section else config
    if not isinstance(place, ml_collections.ConfigDict):
      raise ConfigError(f'{section}={shown(place)}: must be a block of fields, as {key} is one')
    with place.unlocked(), place.ignore_type():
      place[name] = value


def _literal(key: str, text: str) -> Any:
  """Reads a text as Python would; one that is none stays a text, and `coerce` says what is wrong with it."""
  if len(text) > LITERAL:
    raise ConfigError(f'{key}={shown(text)}: must have at most {LITERAL} characters')
  try:
    with warnings.catch_warnings():
      warnings.simplefilter('ignore')  # of what Python thinks of the text
      return ast.literal_eval({'true': 'True', 'false': 'False'}.get(text, text))
  except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
    return text  # no literal, one that cannot be hashed, or a nest that is too deep


def check(config: Any) -> Resolved:
  """Refuses what cannot work; reads no data.

  Args:
    config: a ConfigDict, a dict (nested, as in a `config.json`, or by dotted key) or a Resolved; missing fields are
      defaults.

  Returns:
    The config as frozen dataclasses.

  Raises:
    ConfigError: unknown fields and names, wrong types, values out of range, impossible combinations.
  """
  try:
    flat = without_constants(flatten(to_dict(config)))
  except RecursionError as error:
    raise ConfigError('config: holds itself') from error
  except ml_collections.config_dict.RequiredValueError as error:
    raise ConfigError(f'config: a required value is missing ({error})') from error
  words = [
    coerce(key, flat.get(key, getattr(Resolved, key)), str) for key in ('algorithm', 'compare')
  ]
  check_algorithm('algorithm', words[0])
  check_algorithm('compare', words[1])
  outside = coerce('outside', flat.get('outside', ()), tuple[str, ...])
  for word in outside:
    _check_name('outside', word, 'algorithms')
  new = {algorithms.block_name(word) for word in {*blocks.outside((), *words)} - {*outside}}
  if 'outside' in flat:  # it says whose the blocks are, and by it these are the package's
    flat = {k: v for k, v in flat.items() if k.partition('.')[0] not in new & {*algorithms.LAYERS}}
  outside = blocks.outside(outside, *words)
  blocks.check(words)
  known = leaves(*outside)
  for key, value in flat.items():
    if key not in known:
      raise ConfigError(f'{key}={shown(value)}: {_no_such(key, known, outside)}')
  values: dict[str, dict[str, Any]] = {}
  for key, leaf in known.items():
    section, _, name = key.rpartition('.')
    value = leaf.default
    if key in flat:
      value = coerce(key, flat[key], leaf.kind)
      check_range(key, value, leaf.rules)
    values.setdefault(section, {})[name] = value
  sections = {name: cls(**values[name]) for name, cls in SECTIONS.items()}
  layers = blocks.build(outside, values, flat)
  resolved = Resolved(**values[''] | {'outside': outside}, **sections, blocks=layers)
  resolved = _resolve_blocks(resolved)
  _check_names(resolved)
  _check_combinations(resolved)
  return resolved


def _resolve_blocks(resolved: Resolved) -> Resolved:
  """Lets the methods in use fill in what follows from the rest of the config."""
  words = tuple(word for word in (resolved.algorithm, resolved.compare) if word)
  run = Run(resolved.rounds, privacy.sampling_of(resolved), words)
  layers = dict(resolved.blocks)
  for part in resolved.parts:
    if part == algorithms.BASE:
      continue
    name = algorithms.block_name(part)
    try:
      layers[name] = layers[name].resolve(run)
    except ValueError as error:
      raise ConfigError(str(error)) from error
  return dataclasses.replace(resolved, blocks=layers)


def check_algorithm(key: str, word: str) -> None:
  """Refuses a word like 'scaffold+dynafed' if a part is unknown, repeated or out of place."""
  if ',' in word:
    raise ConfigError(
      f'{key}={shown(word)}: names one method; several are several runs, which launch/report.py compares'
    )
  parts = word.split('+') if word or key == 'algorithm' else []
  for position, part in enumerate(parts):
    _check_name(key, part, 'algorithms')
    if part in parts[:position]:
      raise ConfigError(f'{key}={shown(word)}: {part!r} is repeated; each method can be used once')
    if part == algorithms.BASE and position > 0:
      raise ConfigError(f'{key}={shown(word)}: {part!r} wraps nothing; it can only come first')


def _check_name(key: str, value: str, kind: str) -> None:
  if kind == 'datasets' and value.startswith(TFDS) and value != TFDS:
    return  # whether it is there is found when it is loaded
  module, colon, function = value.rpartition(':')
  if not colon:
    known = names(kind)
    if value not in known:
      own = '; your own is MODULE:CLASS or FILE.py:CLASS' if kind == 'algorithms' else ''
      raise ConfigError(f'{key}={shown(value)}: unknown{_nearest(value, known)}{own}')
    return
  if kind == 'algorithms':
    try:
      layer = algorithms.layer_class(value)
    except ValueError as error:
      raise ConfigError(f'{key}={error}') from error
    if layer.name in (*SECTIONS, *Resolved.__dataclass_fields__, algorithms.BASE):
      raise ConfigError(
        f'{key}={shown(value)}: {layer.name!r}, the name of its block, is that of another part of the config;'
        ' rename the class'
      )
    return
  try:
    found = getattr(importlib.import_module(module), function, None)
  except Exception as error:  # a module of a user's may fail in any way
    own = isinstance(error, ModuleNotFoundError) and error.name in (
      module,
      module.partition('.')[0],
    )
    reason = f'{error}' if own or not module else f'inside it: {error}'
    hint = f'; write {module[:-3]}:{function}, without .py' if module.endswith('.py') else ''
    raise ConfigError(f'{key}={shown(value)}: cannot be imported ({reason}){hint}') from error
  if not callable(found):
    raise ConfigError(f'{key}={shown(value)}: module {module} has no function {function!r}')


def _check_names(resolved: Resolved) -> None:
  from fedjax_syn import models  # Flax is slow to import, and most refusals come before

  data, model = resolved.data, resolved.model
  _check_name('data.name', data.name, 'datasets')
  if data.proxy not in ('', HELD_OUT):
    _check_name('data.proxy', data.proxy, 'datasets')
  _check_name('data.partition', data.partition, 'partitions')
  _check_name('model.name', model.name, 'models')
  takes_images = ':' not in model.name and model.name not in models.TEXT
  if takes_images and 'pixels' in kinds.LACKS.get(data.name, ()):
    raise ConfigError(
      f'model.name={model.name!r}: takes images, and data.name={data.name!r} has tokens; use'
      f' {", ".join(models.TEXT)}'
    )
  for key, value, known in (
    ('data.normalisation', data.normalisation, ('', *NORMALISATIONS)),
    ('model.norm', model.norm, models.NORMS),
    ('model.pooling', model.pooling, models.POOLINGS),
    ('model.init', model.init, models.INITS),
    ('model.conv', model.conv, ('auto', *models.FORMS)),
  ):
    check_range(key, value, {'choices': tuple(known)})


def _check_combinations(resolved: Resolved) -> None:
  if resolved.compare == resolved.algorithm:
    raise ConfigError(
      f'compare={resolved.compare!r}: is the algorithm itself; name another, or none (--config.compare=)'
    )
  arguments.check_together({**flatten(to_dict(resolved)), 'seeds': resolved.seeds})
  for name in resolved.trackers:
    if importlib.util.find_spec(name) is None:
      raise ConfigError(f"trackers={name!r}: is not installed; pip install -e '.[{name}]'")
  try:
    for word in filter(None, (resolved.algorithm, resolved.compare)):
      # Optimizers, schedules and compositions refuse here.
      method = algorithms.create(word, resolved)
      _check_proxy(word, method.server_data, resolved.data.proxy)
      _check_traits(word, method, resolved.data.name)
    kinds.check_partition(resolved.data.name, resolved.data.partition)
    if resolved.personal_every and 'one class' in kinds.LACKS.get(resolved.data.name, ()):
      raise ValueError(f'personal_every: needs {TRAITS["one class"]}; 0 would work')
  except ValueError as error:
    raise ConfigError(str(error)) from error


def _check_proxy(word: str, needed: str, given: str) -> None:
  if needed and not given:
    raise ConfigError(
      f"algorithm={shown(word)}: needs server data and data.proxy='' names none; try data.proxy={HELD_OUT!r}"
      f' (a share of the training rows{"" if needed == "labels" else ", or another data set"})'
    )
  if needed == 'labels' and given != HELD_OUT:
    raise ConfigError(
      f"algorithm={shown(word)}: needs labels on the server's data; data.proxy={given!r} has other classes,"
      f' try {HELD_OUT!r}'
    )


def _check_traits(word: str, method: Chain, name: str) -> None:
  for trait in sorted(method.requires):
    if trait in kinds.LACKS.get(name, ()):
      raise ConfigError(f'algorithm={shown(word)}: needs {TRAITS[trait]} (data.name={name!r})')


def to_dict(config: Any) -> dict[str, Any]:
  """Returns a ConfigDict, a nested mapping or a Resolved as nested plain dicts, with lists for tuples."""
  fields = plain(config)
  layers = fields.pop('blocks') if isinstance(config, Resolved) else {}
  return fields | {name: block for name, block in layers.items() if block}


def to_json(config: Any) -> str:
  """Returns the config as canonical JSON: every block, sorted keys, tuples as lists."""
  return json.dumps(to_dict(config), sort_keys=True, indent=2)


def _no_such(key: str, known: Iterable[str], outside: Iterable[str]) -> str:
  for word in outside:
    if algorithms.block_name(word) == key.partition('.')[0]:
      fields = ', '.join(f.name for f in dataclasses.fields(algorithms.layer_class(word)))
      return f'{word} has no such field; it has {fields or "none"} (docs/compose.md)'
  return f'no such field{_nearest(key, known)}'


def _nearest(key: str, known: Iterable[str]) -> str:
  known = list(known)
  last = lambda key: key.rpartition('.')[2]
  same = [name for name in known if last(name) == last(key)]  # `mu` is `fedprox.mu`
  close = difflib.get_close_matches(key, known, n=3) if len(key) < 100 else []  # it is slow
  near = list(dict.fromkeys([*close, *same]))[:3]
  return (
    f'; nearest: {", ".join(near)}' if near or len(known) > 40 else f'; known: {", ".join(known)}'
  )
