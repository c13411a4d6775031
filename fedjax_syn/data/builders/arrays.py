"""A folder of prepared arrays, taken as it is, and the cache of a prepared data set; numpy only.

A folder holds `train.npz` and `test.npz`, each with `x` (uint8 [n, height, width, channels], or of a type that `scaling` knows)
and `y` (any integer type [n], or multi-hot [n, labels]); both may name the client of every row in `clients`
(integers or texts [n]). An optional `meta.json` says {"name": for tables and figures, "normalisation": a
known name or {"mean": [...], "std": [...]}, "labels": "classes" if y is one-hot, "layout": "NHWC" if images of
few rows or columns and many channels are meant}.
"""

import difflib
import json
import os
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedjax_syn.data import normalisation
from fedjax_syn.data.builders import array_checks, bounded, client_ids
from fedjax_syn.data.builders.spelling import some
from fedjax_syn.data.builders.split import Split, check_split, checksum, same_rows, scale_splits

FILES = ('train.npz', 'test.npz')
_SAID = {'labels': ('classes', 'several'), 'layout': ('NHWC',)}  # keys of meta.json, and values
_CACHED = ('train_x', 'train_y', 'test_x', 'test_y', 'checksum')


class Meta(NamedTuple):
  """What `meta.json` says."""

  title: str
  normalisation: str | normalisation.Normalisation
  labels: str  # 'classes': y is one-hot; 'several': it is not, though it looks so
  layout: str  # 'NHWC': the order of the axes of x is right, though it does not look so
  notes: tuple[str, ...]


class Folder(NamedTuple):
  """What a folder of arrays holds."""

  title: str  # '' without meta.json
  normalisation: str | normalisation.Normalisation  # '' without meta.json
  train: Split
  test: Split
  clients: np.ndarray | None  # int32 [n], natural client of each training row
  client_names: tuple[str, ...] = ()  # by number; () where the numbers are the data's own
  test_clients: np.ndarray | None = None  # int32 [test rows], -1: of no client with training rows
  notes: tuple[str, ...] = ()  # what was left out or taken in one way of several


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
  meta = _read_meta(folder / 'meta.json')
  raw = {file: Split(*_load(folder / file, ('x', 'y'))) for file in FILES}
  for file, split in raw.items():
    for name, array in split._asdict().items():
      if not array.ndim:
        raise ValueError(
          f'{folder / file}: {name} must have a row for every image, and is one value'
        )
    if meta.layout != 'NHWC':
      array_checks.check_order(split.x, len(split.y), folder / file)
  try:
    raw, scalings = scale_splits(raw)
  except ValueError as error:
    raise ValueError(f'{folder}: {error}') from error
  (train, train_ids), (test, test_ids) = (
    _read_split(folder / file, raw[file], num_classes, meta) for file in FILES
  )
  if train.x.shape[1:] != test.x.shape[1:]:
    shapes = [list(split.x.shape[1:]) for split in (train, test)]
    raise ValueError(f'{folder}: training images are {shapes[0]}, but test images {shapes[1]}')
  if train.y.shape[1:] != test.y.shape[1:]:
    shapes = [list(split.y.shape) for split in (train, test)]
    raise ValueError(f'{folder}: training labels are {shapes[0]}, but test labels {shapes[1]}')
  array_checks.check_classes(train.y, test.y, folder / FILES[0])
  owners, notes = client_ids.Clients(None, None, (), ()), [*meta.notes, *_unused(folder)]
  if train_ids is not None:
    sizes, where = (len(train.y), len(test.y)), [str(folder / file) for file in FILES]
    owners = client_ids.number(train_ids, test_ids, sizes, where)
  elif test_ids is not None:
    notes.append(f"'clients' of {FILES[1]} is not used, as {FILES[0]} has none")
  notes += array_checks.label_notes(train.y, test.y, meta.labels)
  line = f'read {len(train.y)} training and {len(test.y)} test rows'
  if owners.train is not None:
    line += f' of {1 + int(owners.train.max())} clients'
    line += f' ({some(owners.names)})' if owners.names else ''
  notes = line, *scalings, *notes, *owners.notes, *same_rows(train, test)
  return Folder(
    meta.title, meta.normalisation, train, test, owners.train, owners.names, owners.test, notes
  )


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
      sizes = {m.filename.removesuffix('.npy'): m.file_size for m in file.zip.infolist()}
      bounded.check_bytes(sum(sizes[name] for name in names), ', '.join(names))
      return [file[name] for name in names]
  except (PermissionError, FileNotFoundError):
    raise
  except (
    Exception
  ) as error:  # numpy, zipfile and zlib share no base class, and a header may promise any shape
    objects = 'allow_pickle' in str(error)  # a column of a table, often
    help_ = '; np.asarray(a, str), or a number type, before np.savez would work' if objects else ''
    raise ValueError(f'{path} cannot be read: {first_line(error)}{help_}') from error


def _read_split(
  path: Path, raw: Split, num_classes: int | None, meta: Meta
) -> tuple[Split, np.ndarray | None]:
  """Returns images and labels, and whose each row is, if the file says so."""
  x, y = raw
  if meta.labels == 'classes':
    y = array_checks.classes_of(y, path)
  split = check_split(x, y, str(path), num_classes)
  with np.load(path, allow_pickle=False) as file:
    has_clients = 'clients' in file
  return split, _load(path, ('clients',))[0] if has_clients else None


def _unused(folder: Path) -> list[str]:
  """Says which arrays and files beside those that are read are not used."""
  notes = []
  for file in FILES:
    with np.load(folder / file, allow_pickle=False) as opened:
      others = sorted(set(opened.files) - {'x', 'y', 'clients'})
    if others:
      notes.append(f'{file}: {some(others)} not used')
  beside = sorted(
    path.name
    for path in folder.iterdir()
    if path.suffix in ('.npz', '.npy') and path.name not in FILES
  )
  if beside:
    notes.append(f'{some(beside)} beside {FILES[0]} not read')
  return notes


def _read_meta(path: Path) -> Meta:
  if not os.path.lexists(path):
    return Meta('', '', '', '', ())
  try:
    meta = json.loads(
      bounded.read_bytes(path).decode('utf-8-sig')
    )  # some editors write a byte order mark
  except (ValueError, RecursionError) as error:  # not JSON, or not text
    raise ValueError(f'{path} is not JSON: {first_line(error)}') from error
  if not isinstance(meta, dict) or not isinstance(meta.get('name', ''), str):
    raise ValueError(f'{path} must hold {{"name": text, "normalisation": ...}}')
  for key, values in _SAID.items():
    if meta.get(key, values[0]) not in values:
      raise ValueError(f'{path}: {key}={meta[key]!r} must be one of {", ".join(map(repr, values))}')
  known = ('name', 'normalisation', *_SAID)
  unknown = sorted(set(meta) - set(known))
  for key in unknown:
    if near := difflib.get_close_matches(key.lower(), known, n=1, cutoff=0.8):
      raise ValueError(f'{path}: {key!r} is unknown; did you mean {near[0]!r}?')
  constants = meta.get('normalisation', '')
  constants = constants and normalisation.parse(constants, str(path))
  notes = (f'{path.name}: {some(unknown)} not used',) if unknown else ()
  return Meta(
    meta.get('name', ''), constants, meta.get('labels', ''), meta.get('layout', ''), notes
  )


def first_line(error: BaseException) -> str:
  """Returns an exception's first line, short enough for a message of one line."""
  lines = str(error).splitlines() or [type(error).__name__]
  return lines[0].rstrip(':')[:400]
