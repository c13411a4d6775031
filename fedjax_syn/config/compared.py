"""The methods that a run is compared with: their settings, their configs, and what they are called.

They see the run's clients, seeds and rounds. Local training, the average and their own layers may
have other settings than the run has.
"""

import dataclasses
import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from fedjax_syn import algorithms
from fedjax_syn.config import method_list
from fedjax_syn.config.method_list import Method
from fedjax_syn.config.parsing import Leaf, from_text, leaves, no_such
from fedjax_syn.config.schema import Resolved
from fedjax_syn.core import own_code, privacy
from fedjax_syn.core.contexts import Run
from fedjax_syn.core.fields import ConfigError, check_range
from fedjax_syn.core.texts import shown

COMMON = ('client.participation', 'client.sampler')
"""Of the sections that a method may have otherwise, what is common to all methods."""
LETTERS = 100
"""Of a folder's name."""


class Compared(NamedTuple):
  """A method that a run is compared with."""

  config: Resolved
  """As of a run of this method alone."""
  label: str
  """In tables and figures: the method, with its settings where another one has the same name."""
  name: str
  """Of its folder, if the run is compared with several."""


def configs(resolved: Resolved) -> list[Compared]:
  """Returns the methods of `compare`, in order.

  Args:
    resolved: a checked config.
  """
  methods = method_list.read(resolved.compare)
  if not methods:
    return []
  labels, names = labels_of(resolved)[1:], _folder_names(methods)
  return [
    Compared(config_of(resolved, method), label, name)
    for method, label, name in zip(methods, labels, names, strict=True)
  ]


def labels_of(resolved: Resolved) -> list[str]:
  """Returns a label for the run's method and for each that it is compared with."""
  methods = Method(resolved.algorithm), *method_list.read(resolved.compare)
  words = [method.word for method in methods]
  return [
    word if words.count(word) == 1 else str(m) for word, m in zip(words, methods, strict=True)
  ]


def canonical(text: str, known: Mapping[str, Leaf], outside: Iterable[str]) -> str:
  """Checks the settings in `compare`; returns it in the one way that a config.json has it.

  Args:
    text: methods that exist.
    known: all fields of the config.
    outside: its layers from outside the package.

  Raises:
    ConfigError: naming the method, the key and what would work.
  """
  methods = []
  for method in method_list.read(text):
    values = _values(method, known, outside)
    written = {key: _written(value) for key, value in sorted(values.items())}
    methods.append(Method(method.word, tuple(written.items())))
  return method_list.write(tuple(methods))


def resolve_blocks(resolved: Resolved) -> Resolved:
  """Lets the layers in use fill in what follows from the rest of the config."""
  methods = Method(resolved.algorithm), *method_list.read(resolved.compare)
  used = {
    name
    for method in methods
    for name in map(algorithms.block_name, method.word.split('+'))
    if name in resolved.blocks and name not in {key.partition('.')[0] for key, _ in method.settings}
  }
  run = _run(resolved)
  layers = {name: b.resolve(run) if name in used else b for name, b in resolved.blocks.items()}
  return dataclasses.replace(resolved, blocks=layers)


def _run(resolved: Resolved) -> Run:
  return Run(resolved.rounds, privacy.sampling_of(resolved), resolved.words)


def config_of(resolved: Resolved, method: Method) -> Resolved:
  """Returns the config of a compared method: the run's, with the method's own settings."""
  known = leaves(*resolved.outside) if method.settings else {}
  changes: dict[str, dict[str, Any]] = {}
  for key, text in method.settings:
    section, _, name = key.partition('.')
    changes.setdefault(section, {})[name] = from_text(key, text, known[key].kind)
  new, layers, run = {}, dict(resolved.blocks), _run(resolved)
  for section, values in changes.items():
    if section in layers:
      layers[section] = dataclasses.replace(layers[section], **values).resolve(run)
    else:
      new[section] = dataclasses.replace(getattr(resolved, section), **values)
  return dataclasses.replace(resolved, algorithm=method.word, compare='', blocks=layers, **new)


def _values(method: Method, known: Mapping[str, Leaf], outside: Iterable[str]) -> dict[str, Any]:
  """The settings of a method, checked."""
  where = f'compare={shown(str(method))}'
  own = [algorithms.block_name(p) for p in method.word.split('+') if p != algorithms.BASE]
  sections = ('client', 'server', *own)
  values: dict[str, Any] = {}
  for key, text in method.settings:
    section = key.partition('.')[0]
    if key not in known:
      own_fields = [k for k in known if k.partition('.')[0] in sections and k not in COMMON]
      raise ConfigError(f'{where}: {key}={shown(text)}: {no_such(key, own_fields, outside)}')
    if section not in sections or key in COMMON:
      raise ConfigError(
        f'{where}: {key} is no setting of one method; {", ".join(f"{s}.*" for s in sections)} are,'
        f' without {" and ".join(COMMON)}'
      )
    if key in values:
      raise ConfigError(f'{where}: {key} is given twice')
    try:
      values[key] = from_text(key, text, known[key].kind)
      check_range(key, values[key], known[key].rules)
    except ConfigError as error:
      raise ConfigError(f'{where}: {error}') from error
  return values


def _written(value: Any) -> str:
  """A value as a command line has it."""
  return str(tuple(value)) if isinstance(value, tuple | list) else str(value)


def _folder_names(methods: Iterable[Method]) -> list[str]:
  """A folder for each method: its name, with its settings where another one has the same name."""
  called = [
    m._replace(word=method_list.rename('algorithm', m.word, own_code.called)) for m in methods
  ]
  words = [method.word for method in called]
  names = [_file_name(m.word if words.count(m.word) == 1 else str(m)) for m in called]
  return [name if names.count(name) == 1 else f'{name}-{i}' for i, name in enumerate(names, 1)]


def _file_name(text: str) -> str:
  name = re.sub(r'[^\w.+=,-]', '.', text.replace('(', ',').rstrip(')'))
  if len(name) <= LETTERS:
    return name
  return f'{name[:LETTERS]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}'
