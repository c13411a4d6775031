"""A folder of prepared arrays, taken as it is, and the cache of a prepared data set; numpy only.

A folder holds `train.npz` and `test.npz`, each with `x` (uint8 [n, height, width, channels]) and
`y` (any integer type [n], or multi-hot [n, labels]); `train.npz` may name the natural client of every row in `clients`
(integers [n]). An optional `meta.json` says {"name": for tables and figures, "normalisation": a
known name or {"mean": [...], "std": [...]}}.
"""

import json
import os
import tempfile
import zipfile
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedjax_syn.data import normalisation
from fedjax_syn.data.builders.split import Split, check_split, checksum

FILES = ('train.npz', 'test.npz')
_CACHED = ('train_x', 'train_y', 'test_x', 'test_y', 'checksum')


class Folder(NamedTuple):
  """What a folder of arrays holds."""

  title: str  # '' without meta.json
  normalisation: str | normalisation.Normalisation  # '' without meta.json
  train: Split
  test: Split
  clients: np.ndarray | None  # int32 [n], natural client of each training row


def is_folder(folder: Path) -> bool:
  """Says whether a folder is meant as a folder of arrays: it holds one of the two files."""
  return any((folder / file).exists() for file in FILES)


def read(folder: Path, num_classes: int | None = None) -> Folder:
  """Reads a folder of arrays.

  Args:
    folder: where `train.npz` and `test.npz` lie.
    num_classes: labels must be below it; None accepts every label from 0 on.

  Returns:
    The arrays and what `meta.json` says of them.

  Raises:
    FileNotFoundError: if a file is missing.
    ValueError: if a file cannot be read or holds something else.
  """
  for file in FILES:
    if not (folder / file).is_file():
      raise FileNotFoundError(
        f'{folder / file} is missing: a folder of arrays holds train.npz and test.npz, each with '
        'x (uint8 [n, height, width, channels]) and y (integers [n])'
      )
  (train, clients), (test, _) = (_read_split(folder / file, num_classes) for file in FILES)
  if train.x.shape[1:] != test.x.shape[1:]:
    shapes = [list(split.x.shape[1:]) for split in (train, test)]
    raise ValueError(f'{folder}: training images are {shapes[0]}, but test images {shapes[1]}')
  if train.y.shape[1:] != test.y.shape[1:]:
    shapes = [list(split.y.shape) for split in (train, test)]
    raise ValueError(f'{folder}: training labels are {shapes[0]}, but test labels {shapes[1]}')
  return Folder(*_read_meta(folder / 'meta.json'), train, test, clients)


def write_cache(path: Path, train: Split, test: Split) -> None:
  """Keeps arrays and their checksum in one uncompressed file, written whole or not at all.

  Args:
    path: the file, in a folder that exists.
    train: the training rows.
    test: the test rows.

  Raises:
    OSError: if the folder cannot be written.
  """
  arrays = dict(zip(_CACHED, (*train, *test, np.array(checksum(train, test))), strict=True))
  handle, temporary = tempfile.mkstemp(dir=path.parent, suffix='.tmp')
  try:
    with os.fdopen(handle, 'wb') as file:
      np.savez(file, **arrays)
    os.chmod(temporary, 0o644)  # mkstemp's files are for their owner alone
    os.replace(temporary, path)
  except BaseException:
    os.unlink(temporary)
    raise


def read_cache(path: Path, expected: str = '') -> tuple[Split, Split]:
  """Reads a cache.

  Args:
    path: the file.
    expected: the checksum of what was prepared beside it, '' if that is not known.

  Returns:
    The training and the test split.

  Raises:
    ValueError: if the file cannot be read, or holds other values than it should.
  """
  *arrays, stored = _load(path, _CACHED)
  train, test = (check_split(*arrays[i : i + 2], str(path)) for i in (0, 2))
  found, expected = checksum(train, test), expected or str(stored)
  if found != expected:
    raise ValueError(
      f'{path} is not the cache of the data set beside it (SHA-256 {found[:16]}..., expected '
      f'{expected[:16]}...): delete it, it is written anew'
    )
  return train, test


def _load(path: Path, names: tuple[str, ...]) -> list[np.ndarray]:
  try:
    # Opened here: numpy leaves what is no archive open.
    with path.open('rb') as opened, np.load(opened, allow_pickle=False) as file:
      missing = [name for name in names if name not in file]
      if missing:
        raise ValueError(f'it has no array {missing[0]!r}, only {sorted(file)}')
      return [file[name] for name in names]
  except (PermissionError, FileNotFoundError):
    raise
  except (ValueError, EOFError, OSError, TypeError, zipfile.BadZipFile, zlib.error) as error:
    raise ValueError(f'{path} cannot be read: {first_line(error)}') from error


def _read_split(path: Path, num_classes: int | None) -> tuple[Split, np.ndarray | None]:
  split = check_split(*_load(path, ('x', 'y')), str(path), num_classes)
  with np.load(path, allow_pickle=False) as file:
    has_clients = 'clients' in file
  if not has_clients:
    return split, None
  (clients,) = _load(path, ('clients',))
  if not np.issubdtype(clients.dtype, np.integer) or clients.shape != (len(split.y),):
    raise ValueError(
      f'{path}: clients must be an integer type [{len(split.y)}], '
      f'got {clients.dtype} {list(clients.shape)}'
    )
  if clients.min() < 0:
    raise ValueError(f'{path}: clients must be numbered from 0, got {clients.min()}')
  return split, clients.astype(np.int32)


def _read_meta(path: Path) -> tuple[str, str | normalisation.Normalisation]:
  if not path.exists():
    return '', ''
  try:
    meta = json.loads(path.read_text(encoding='utf-8'))
  except ValueError as error:  # not JSON, or not text
    raise ValueError(f'{path} is not JSON: {first_line(error)}') from error
  if not isinstance(meta, dict) or not isinstance(meta.get('name', ''), str):
    raise ValueError(f'{path} must hold {{"name": text, "normalisation": ...}}')
  constants = meta.get('normalisation', '')
  return meta.get('name', ''), constants and normalisation.parse(constants, str(path))


def first_line(error: BaseException) -> str:
  """Returns an exception's first line, short enough for a message of one line."""
  lines = str(error).splitlines() or [type(error).__name__]
  return lines[0].rstrip(':')[:400]
