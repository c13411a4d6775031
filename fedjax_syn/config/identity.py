"""What makes two runs the same: the fields that change a result, and the code that they name.

A run resumes in a folder, and a table's cell counts as finished, only if these are equal. A
folder's own config is compared as text: nothing that it names is imported.
"""

import dataclasses
import hashlib
import importlib.util
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from fedjax_syn import algorithms
from fedjax_syn.algorithms.old_fields import CONSTANTS
from fedjax_syn.config import compared, method_list
from fedjax_syn.config.combinations import check
from fedjax_syn.config.method_list import words_of
from fedjax_syn.config.parsing import TFDS, Leaf, leaves
from fedjax_syn.config.schema import METHODS, SECTIONS, Resolved, flatten, plain, to_dict
from fedjax_syn.core import own_code as own_words
from fedjax_syn.core import paths
from fedjax_syn.core.fields import ConfigError, coerce
from fedjax_syn.core.schedules import ends
from fedjax_syn.data import facts

OWN_FOLDERS = (
  'folder',
  'arrays',
  *facts.IN_FOLDER,
)  # data.name that does not tell what data.dir holds
_CODE = re.compile(r'([A-Za-z_][\w.]*|.+\.py):([A-Za-z_]\w*)')  # module:function, FILE.py:Class


def hash8(config: Any, **more: Any) -> str:
  """Returns 8 hex digits of the fields that make a run (and `more`), and of the code they name."""
  code = own_code(config)
  resolved = _resolved(config)
  known = leaves(*resolved.outside)
  fields = {k: v for k, v in identity(resolved).items() if not _added(v, known.get(k))}
  content = fields | more | ({'own_code': code} if code else {})
  return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]


def hash_of_folder(config: Any) -> str:
  """Returns `hash8` for a run's folder: with the name of the data folder if it counts."""
  data = _resolved(config).data
  return hash8(config, **{'data.dir': _base_name(data.dir)} if data.name in OWN_FOLDERS else {})


def hash_here(config: Any) -> str:
  """Returns `hash8` for callers that do not read the data: it depends on where they lie."""
  return hash8(config, **{'data.dir': _path(_resolved(config).data.dir)})


def own_code(config: Any) -> dict[str, str]:
  """Returns a hash of the file of each `module:function` or `FILE:Class` that a used field names.

  Also of the files of `model.weights` and `data.partition`. The file is that of the module; if the
  function is defined in another file, that one counts too.
  What these import does not count.
  """
  hashes, resolved = {}, _resolved(config)
  if resolved.model.weights and os.path.isfile(_path(resolved.model.weights)):
    hashes['model.weights'] = paths.digest(_path(resolved.model.weights))[:16]
  kind, _, rows = resolved.data.partition.partition(':')
  if kind == 'file' and os.path.isfile(_path(rows)):
    hashes['data.partition'] = paths.digest(_path(rows))[:16]
  named = [
    (key, word)
    for key, text in settings_in_use(resolved).items()
    if isinstance(text, str)
    for method in words_of(key, text)
    for word in method.split('+')
    if _CODE.fullmatch(word) and not word.startswith(TFDS)
  ]
  fields = identity(resolved) if named else {}  # most runs name no code
  for word in dict.fromkeys(word for key, word in named if key in fields):
    place, _, name = word.rpartition(':')
    if (path := own_words.path_of(place) or _file_of(place)) is None:
      continue
    called = own_words.called(word)
    hashes[called] = paths.digest(path)[:16]
    module = own_words.module_name(place)
    defined = getattr(getattr(sys.modules.get(module), name, None), '__module__', module)
    other = _file_of(defined) if isinstance(defined, str) else None
    if defined != module and other not in (None, path):
      hashes[f'{called} in {defined}'] = paths.digest(other)[:16]
  return hashes


def _file_of(module: str) -> str | None:
  """A module's file; None without one (not found, built in, a folder without __init__.py)."""
  try:
    spec = importlib.util.find_spec(module)
  except (ImportError, ValueError, AttributeError):
    return None
  return spec.origin if spec is not None and spec.has_location else None


def diff(old: Any, new: Any) -> list[str]:
  """Returns a line 'client.lr: 0.001 -> 0.01' for every field that makes two runs differ.

  Args:
    old: a config, also as in a config.json of any version; it is not checked, and nothing in it is
      imported.
    new: a config of this version.
  """
  new = _resolved(new)
  a, b = _fields(to_dict(old), new), identity(new)
  lines = []
  for key in dict.fromkeys([*b, *a]):
    was, now = (repr(fields[key]) if key in fields else '(absent)' for fields in (a, b))
    spelt = key == 'start_from' and a.get(key) and b.get(key) and same_place(a[key], b[key])
    if was != now and not spelt:  # another spelling of one folder
      lines.append(f'{key}: {was} -> {now}')
  return lines


def same_place(a: str, b: str) -> bool:
  """Returns whether two paths, existing or not, are the same place, through links, `~` and `..`."""
  return _path(a) == _path(b)


def _path(path: str) -> str:
  """The absolute path; '' is none, and not this folder."""
  return path and os.path.realpath(os.path.expanduser(path))


def _base_name(path: str) -> str:
  return os.path.basename(_path(path))


def same_data_folder(old: Mapping[str, Any], new: Resolved) -> bool:
  """Returns whether the data folders of two configs have one name; for other data sets, True."""
  if new.data.name not in OWN_FOLDERS:
    return True
  return _base_name(old['data']['dir']) == _base_name(new.data.dir)


def depends_on_rounds(config: Any, before: int | None = None) -> list[str]:
  """Names what would differ in a run of another number of rounds, which is then another run.

  Args:
    config: a config.
    before: the number of rounds to compare with; None: any.

  Returns:
    'client.schedule='cosine'' and fields that a method derives from the number of rounds; [] if
    more rounds can follow.
  """
  resolved = _resolved(config)
  runs = [resolved, *(other.config for other in compared.configs(resolved))]
  methods = [algorithms.create(run.algorithm, run) for run in runs]
  schedules = dict.fromkeys(pair for method in methods for pair in method.schedules.items())
  named = [f'{key}={name!r}' for key, name in schedules if ends(name)]
  if before is None or before == resolved.rounds:
    return named
  try:
    at_before = check(dataclasses.replace(resolved, rounds=before))
  except ConfigError:  # these settings do not allow so few rounds
    return named
  derived = [line for line in diff(at_before, resolved) if not line.startswith('rounds:')]
  return named + [line.partition(':')[0] for line in derived]


def settings_in_use(config: Any) -> dict[str, Any]:
  """Returns a run's fields by dotted key, for display: no blocks of methods that are not in use."""
  resolved = _resolved(config)
  return {
    key: value
    for key, value in flatten(to_dict(resolved)).items()
    if _in_use(key, resolved.parts) and key not in ('outside', 'trackers')
  }


def identity(config: Any) -> dict[str, Any]:
  """Returns the fields that make a run, by dotted key: those in use that change a result."""
  resolved = _resolved(config)
  return _fields(to_dict(resolved), resolved)


def of_all_methods(resolved: Resolved) -> dict[str, Any]:
  """Returns the fields of `identity` that no method derives, and that have one spelling."""
  return {
    key: value
    for key, value in identity(resolved).items()
    if key not in ('rounds', 'start_from') and key.partition('.')[0] in (*SECTIONS, key)
  }


def _fields(config: Mapping[str, Any], new: Resolved) -> dict[str, Any]:
  """`identity` of plain dicts: typed values, and defaults for fields that another version lacks."""
  known, flat = leaves(*new.outside), flatten(config)
  words = [word for key in METHODS for word in words_of(key, str(flat.get(key, '')))]
  parts = [part for word in words for part in word.split('+')]
  values = {k: leaf.default for k, leaf in known.items()} | CONSTANTS | flat
  fields = {
    key: _value(key, value, known.get(key))
    for key, value in values.items()
    if _in_use(key, parts) and (key not in known or known[key].rules.get('identity', True))
  }
  # The content of a user's file makes another run, its folder does not.
  called = lambda key: method_list.rename(key, str(fields[key]), own_words.called)
  short = lambda text: '+'.join(map(own_words.called, text.split('+')))  # 'warmup(5)+FILE.py:half'
  others = {k: v for k, v in fields.items() if k not in METHODS and isinstance(v, str)}
  fields |= {key: short(text) for key, text in others.items() if '.py:' in text}
  return fields | {key: called(key) for key in METHODS if key in fields}


def _added(value: Any, leaf: Leaf | None) -> bool:
  """Whether a value is the default of a field that earlier versions lack."""
  return leaf is not None and bool(leaf.rules.get('added')) and value == plain(leaf.default)


def _value(key: str, value: Any, leaf: Leaf | None) -> Any:
  try:
    return plain(value if leaf is None else coerce(key, value, leaf.kind))
  except ConfigError:  # another version allowed it
    return plain(value)


def _in_use(key: str, parts: Iterable[str]) -> bool:
  """Whether a field belongs to no method, or to one of these."""
  section, dot, _ = key.partition('.')
  return not dot or section in SECTIONS or section in map(algorithms.block_name, parts)


def _resolved(config: Any) -> Resolved:
  return config if isinstance(config, Resolved) else check(config)
