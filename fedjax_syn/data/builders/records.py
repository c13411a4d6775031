"""Folders that tensorflow-datasets has prepared: found by name, and opened after a look at what they would import.

`features.json` names a class for every feature, and tensorflow-datasets imports the module that it says. Names and
templates of files may lead out of the folder. Both are refused unless the caller trusts the folder.
"""

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import importlib_resources  # noqa: F401  tensorflow-datasets needs it and does not declare it
import tensorflow_datasets as tfds

from fedjax_syn.data.builders import bounded
from fedjax_syn.data.builders.arrays import first_line

OWN = 'tensorflow_datasets.core.features.'  # where its own features are
_CLASS_KEYS = ('pythonClassName', 'python_class_name', 'type')  # as both generations write it
_FILE_KEYS = ('name', 'filepathTemplate', 'filepath_template')
_FEATURE = '\0'  # stands for a key itself, which is no text that JSON gives
_FILE = re.compile(r'(?!\.\.)[\w{}.@ +-]*')
_WORD = re.compile(r'(?P<name>\w+)(?:/(?P<config>[\w.+-]+))?(?::(?P<version>[\d.*]+))?')
_VERSION = re.compile(r'\d+\.\d+\.\d+')


def find(word: str, data_dir: Path) -> Path:
  """Finds a prepared data set; nothing of it is imported.

  Args:
    word: NAME, NAME/CONFIG, NAME:VERSION or NAME/CONFIG:VERSION.
    data_dir: the folder of all data sets.

  Returns:
    `data_dir/NAME[/CONFIG]/VERSION`, the newest version that fits.

  Raises:
    FileNotFoundError: if it is not there.
    ValueError: if the word is another, or the config has to be named.
  """
  parts = _WORD.fullmatch(word)
  if not parts:
    raise ValueError('it must be NAME, NAME/CONFIG or NAME:VERSION, without a namespace')
  home = data_dir / parts['name']
  if parts['config']:
    home = home / parts['config']
  elif not _versions(home):
    home = home / _config(home)
  wanted = re.escape(parts['version'] or '*').replace(r'\*', '.*')
  fitting = [path for path in _versions(home) if re.fullmatch(wanted, path.name)]
  if not fitting:
    raise FileNotFoundError(
      f'{home} holds no prepared version{" " + parts["version"] if parts["version"] else ""}'
    )
  return fitting[-1]


def _config(home: Path) -> str:
  """The config that is meant where none is named: the only one, or the default that was written."""
  configs = sorted({path.parents[1].name for path in home.glob('*/*/features.json')})
  written = home / '.config' / 'metadata.json'
  default = _json(written).get('default_config_name') if written.exists() else None
  if default in configs:
    return default
  if len(configs) > 1:
    raise ValueError(f'{home} holds {", ".join(configs)}; name one, as in {home.name}/{configs[0]}')
  return configs[0] if configs else ''


def open_builder(folder: Path, trusted: bool = False) -> tfds.core.DatasetBuilder:
  """Opens a prepared folder.

  Args:
    folder: of one version, with `dataset_info.json` and `features.json`.
    trusted: whether modules that the folder names may be imported, and files outside of it read.

  Returns:
    The builder, which only reads.

  Raises:
    ValueError: if the folder names a module or a path that needs trust, or holds something else than files.
  """
  for path in folder.iterdir():  # the readers below would wait for a pipe
    if not path.is_file() and not path.is_dir():
      raise ValueError(f'{path} is no regular file')
  if not trusted:
    _check(folder)
  return tfds.builder_from_directory(folder)


def _check(folder: Path) -> None:
  trust = 'data.trusted=true says that you trust this folder'
  features, info = folder / 'features.json', folder / 'dataset_info.json'
  for key, value in _entries(_json(features)):
    if key in _CLASS_KEYS and value and not value.startswith(OWN):
      raise ValueError(f'{features} names {value!r}, and reading it would import that; {trust}')
    if key == _FEATURE and '..' in value.split('/'):
      raise ValueError(f'{features} names {value!r}, which leads out of the folder; {trust}')
  for key, value in _entries(_json(info)):
    if key in _FILE_KEYS and not _FILE.fullmatch(value):
      raise ValueError(f'{info} names {value!r}, which leads out of the folder; {trust}')


def _entries(value: Any, key: str = '') -> Iterator[tuple[str, str]]:
  """Yields every text of a JSON value with its key, and every key; JSON inside of a text, too."""
  if isinstance(value, dict):
    for name, inner in value.items():
      yield _FEATURE, name
      yield from _entries(inner, name)
  elif isinstance(value, list):
    for inner in value:
      yield from _entries(inner, key)
  elif isinstance(value, str):
    yield key, value
    if value.lstrip()[:1] in ('{', '['):
      with contextlib.suppress(ValueError):
        yield from _entries(json.loads(value), key)


def _json(path: Path) -> Any:
  try:
    return json.loads(bounded.read_bytes(path).decode())
  except (ValueError, RecursionError) as error:
    raise ValueError(f'{path} is not JSON: {first_line(error)}') from error


def _versions(home: Path) -> list[Path]:
  """Folders of versions that hold a prepared set, oldest first."""
  found = [
    path.parent for path in home.glob('*/features.json') if _VERSION.fullmatch(path.parent.name)
  ]
  return sorted(found, key=lambda path: tuple(map(int, path.name.split('.'))))
