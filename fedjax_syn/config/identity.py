"""What makes a run the run that it is: the fields that change a result, and the user's own code that they name.

A folder is gone on with, and a table's cell is taken as done, only if these are still what they were. What a folder
says of itself is compared as text: nothing that it names is imported.
"""

import dataclasses
import hashlib
import importlib.util
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from fedjax_syn import algorithms
from fedjax_syn import config as config_lib
from fedjax_syn.algorithms import own_layers
from fedjax_syn.algorithms.removed import CONSTANTS
from fedjax_syn.config.schema import SECTIONS, Resolved, flatten, plain
from fedjax_syn.core.fields import ConfigError, coerce
from fedjax_syn.core.optimizers import ENDING

OWN_FOLDERS = ('folder', 'arrays')  # data.name that says nothing of what data.dir holds
_CODE = re.compile(
  r'([A-Za-z_][\w.]*|.+\.py):([A-Za-z_]\w*)'
)  # package.module:function, FILE.py:Class
METHODS = ('algorithm', 'compare')


def hash8(config: Any) -> str:
  """Returns 8 hex digits of the fields that make a run, and of the code that they name."""
  return _digest(identity(config), own_code(config))


def hash_of_folder(config: Any) -> str:
  """Returns the hash for the name of a run's folder: `hash8`, and what the data are called where their name says nothing."""
  resolved = _resolved(config)
  called = {'data.dir': _name_of(resolved.data.dir)} if resolved.data.name in OWN_FOLDERS else {}
  return _digest({**identity(resolved), **called}, own_code(resolved))


def hash_here(config: Any) -> str:
  """Returns `hash8` for who does not look at the data: it is another one where they lie elsewhere."""
  resolved = _resolved(config)
  return _digest({**identity(resolved), 'data.dir': _place(resolved.data.dir)}, own_code(resolved))


def _digest(fields: Mapping[str, Any], code: Mapping[str, str]) -> str:
  content = {**fields, **({'own_code': code} if code else {})}
  return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]


def own_code(config: Any) -> dict[str, str]:
  """Returns, for each `module:function` or `FILE:Class` that a field in use names, a hash of the file in which it is written.

  A config says by it which method, network or data set is meant, and not what is written there: a run of another
  version is another run. The file is that of the module; if the function comes from another file, that one counts
  too. What these import is not looked at.
  """
  hashes, counts = {}, identity(config)
  for word in _words(
    {key: value for key, value in settings_in_use(config).items() if key in counts}
  ):
    place, _, name = word.rpartition(':')
    if (path := own_layers.path_of(place) or _file_of(place)) is None:
      continue
    called = own_layers.called(word)
    hashes[called] = _hash_of_file(path)
    module = own_layers.module_name(place)
    defined = getattr(getattr(sys.modules.get(module), name, None), '__module__', module)
    written = _file_of(defined) if isinstance(defined, str) else None
    if defined != module and written not in (None, path):
      hashes[f'{called} in {defined}'] = _hash_of_file(written)
  return hashes


def _words(fields: Mapping[str, Any]) -> Iterator[str]:
  """The `module:function` and `FILE:Class` of a run's fields, each once."""
  texts = [value for value in fields.values() if isinstance(value, str)]
  parts = [part for text in texts for part in text.split('+') if _CODE.fullmatch(part)]
  return iter(dict.fromkeys(p for p in parts if not p.startswith(config_lib.TFDS)))


def _file_of(module: str) -> str | None:
  """A module's file; None for one that is not there, or has none (built in, a folder without __init__.py)."""
  try:
    spec = importlib.util.find_spec(module)
  except (ImportError, ValueError, AttributeError):
    return None
  return spec.origin if spec is not None and spec.has_location else None


def _hash_of_file(path: str) -> str:
  with open(path, 'rb') as file:
    return hashlib.file_digest(file, 'sha256').hexdigest()[:16]


def diff(old: Any, new: Any) -> list[str]:
  """Returns a line 'client.lr: 0.001 -> 0.01' for every field that makes the one another run than the other.

  Args:
    old: a config, also as in a config.json of whatever version; it is not checked, and nothing in it is imported.
    new: a config of this version.
  """
  new = _resolved(new)
  a, b = _fields(config_lib.to_dict(old), new), identity(new)
  return [
    f'{key}: {_shown(a, key)} -> {_shown(b, key)}'
    for key in [*b, *(key for key in a if key not in b)]
    if _shown(a, key) != _shown(b, key) and not _same_folder(key, a.get(key), b.get(key))
  ]


def _shown(fields: Mapping[str, Any], key: str) -> str:
  return repr(fields[key]) if key in fields else '(absent)'


def _same_folder(key: str, a: Any, b: Any) -> bool:
  """Whether two spellings of `start_from` are one folder."""
  return key == 'start_from' and bool(a and b) and same_place(a, b)


def same_place(a: str, b: str) -> bool:
  """Says whether two paths lead to one place, through links, `~` and `..`; both may be missing."""
  return _place(a) == _place(b)


def _place(path: str) -> str:
  """Where a path leads; '' is none, and not this folder."""
  return path and os.path.realpath(os.path.expanduser(path))


def same_data_folder(old: Mapping[str, Any], new: Resolved) -> bool:
  """Says whether a stored config's data are called as those of another: folders that hold one data set each have names."""
  if new.data.name not in OWN_FOLDERS:
    return True
  return _name_of(old['data']['dir']) == _name_of(new.data.dir)


def _name_of(path: str) -> str:
  return os.path.basename(_place(path))


def depends_on_rounds(config: Any, before: int | None = None) -> list[str]:
  """Names what would be another in a run of another number of rounds, so that such a run is no resume.

  Args:
    config: a config.
    before: the number of rounds to compare with; None: any.

  Returns:
    'client.schedule='cosine'' and fields that a method derives from the number of rounds; empty if rounds can follow.
  """
  resolved = _resolved(config)
  words = [word for word in (resolved.algorithm, resolved.compare) if word]
  methods = [algorithms.create(word, resolved) for word in words]
  named = [f'client.schedule={resolved.client.schedule!r}'] * any(
    method.trains_locally and method.local.schedule in ENDING for method in methods
  )
  if before is None or before == resolved.rounds:
    return named
  try:
    at_before = config_lib.check(dataclasses.replace(resolved, rounds=before))
  except ConfigError:  # not the settings of a run of so few rounds
    return named
  derived = [line for line in diff(at_before, resolved) if not line.startswith('rounds:')]
  return named + [line.partition(':')[0] for line in derived]


def settings_in_use(config: Any) -> dict[str, Any]:
  """Returns a run's fields by dotted key, for whoever shows them: without the blocks of methods that are not in use."""
  resolved = _resolved(config)
  flat = flatten(config_lib.to_dict(resolved))
  return {
    key: value
    for key, value in flat.items()
    if _in_use(key, resolved.parts) and key not in ('outside', 'trackers')
  }


def identity(config: Any) -> dict[str, Any]:
  """Returns the fields that make a run, by dotted key: what is in use and changes a result."""
  resolved = _resolved(config)
  return _fields(config_lib.to_dict(resolved), resolved)


def of_all_methods(resolved: Resolved) -> dict[str, Any]:
  """Returns the fields of `identity` that no method derives from others, and that have one spelling."""
  return {
    key: value
    for key, value in identity(resolved).items()
    if key not in ('rounds', 'start_from') and key.partition('.')[0] in (*SECTIONS, key)
  }


def differs(old: Mapping[str, Any], fields: Mapping[str, Any]) -> bool:
  """Says at a glance whether a stored config is that of another run; what it says nothing of may be equal.

  Args:
    old: as in a config.json of whatever version.
    fields: see `of_all_methods`.
  """
  for key, value in fields.items():
    section, _, name = key.rpartition('.')
    if (old.get(section, {}) if section else old).get(name, value) != value:
      return True
  return False


def _fields(config: Mapping[str, Any], known: Resolved) -> dict[str, Any]:
  """The same of plain dicts: values as their fields have them; defaults for fields that another version lacks."""
  leaves = config_lib.leaves(*known.outside)
  flat = flatten(config)
  parts = [part for key in ('algorithm', 'compare') for part in str(flat.get(key, '')).split('+')]
  defaults = {key: leaf.default for key, leaf in leaves.items()} | CONSTANTS
  wanted = {k: v for k, v in (defaults | flat).items() if _in_use(k, parts)}
  fields = {
    key: _value(key, value, leaves.get(key))
    for key, value in wanted.items()
    if key not in leaves or leaves[key].rules.get('identity', True)
  }
  # Where a file of a user's lies makes no other run; what is written in it does.
  called = lambda word: '+'.join(map(own_layers.called, str(word).split('+')))
  return fields | {key: called(fields[key]) for key in METHODS if key in fields}


def _value(key: str, value: Any, leaf: config_lib.Leaf | None) -> Any:
  try:
    return plain(value if leaf is None else coerce(key, value, leaf.kind))
  except ConfigError:  # what another version allowed
    return plain(value)


def _in_use(key: str, parts: Any) -> bool:
  """Whether a field belongs to no method, or to one of these."""
  section, dot, _ = key.partition('.')
  return not dot or section in SECTIONS or section in map(algorithms.block_name, parts)


def _resolved(config: Any) -> Resolved:
  return config if isinstance(config, Resolved) else config_lib.check(config)
