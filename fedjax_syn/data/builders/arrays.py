"""A user's folder of arrays, `train.npz` and `test.npz`; numpy only.

A folder holds `train.npz` and `test.npz`, each with `x` (uint8 [n, height, width, channels], or of
a type that `scaling` knows; floats [n, features] or [n, time, channels]; tokens, int32 [n, length])
and `y` (any integer type [n], or multi-hot [n, labels]); both may name the client of every row in
`clients` (integers or texts [n]). An optional `meta.json` says {"name": for tables and figures,
"normalisation": a known name or {"mean": [...], "std": [...]}, "labels": "classes" if y is one-hot,
"layout": "NHWC" or "NTC" if few rows or steps and many channels are meant, "kind": "table" or
"sequences" if arrays of integers, or square ones in 0..1, are that}.
"""

import dataclasses
import difflib
import math
import os
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from fedjax_syn.core.texts import first_line, listed
from fedjax_syn.data import features
from fedjax_syn.data.builders import bounded
from fedjax_syn.data.checks import ONE_LABEL, check_classes, look_one_hot, wrong_order
from fedjax_syn.data.dataset import Dataset, make
from fedjax_syn.data.missing import REFUSE, complete
from fedjax_syn.data.naming import Clients, number_clients
from fedjax_syn.data.normalisation import UNMEASURED, Normalisation, parse
from fedjax_syn.data.split import Split, check_shapes, check_split, same_rows, scale_splits
from fedjax_syn.data.unseen import with_unseen_clients

_HEADERS = {
  (1, 0): np.lib.format.read_array_header_1_0,
  (2, 0): np.lib.format.read_array_header_2_0,
}
FILES, META = ('train.npz', 'test.npz'), 'meta.json'
_CHOICES = {  # keys of meta.json, and values
  'labels': ('classes', 'several'),
  'layout': ('NHWC', 'NTC'),
  'kind': (features.TABLE, features.SEQUENCES),
}


def is_folder(folder: Path) -> bool:
  """Returns whether a folder is meant as a folder of arrays: it holds one of the two files."""
  return any((folder / file).exists() for file in FILES)


def load(
  name: str,
  folder: Path,
  num_classes: int | None = None,
  default: str | Normalisation = UNMEASURED,
  mapped: bool = False,
  missing: str = REFUSE,
) -> Dataset:
  """Reads a folder of arrays.

  Args:
    name: of the data set, as in the config.
    folder: where `train.npz` and `test.npz` lie.
    num_classes: of a named data set; None: as many as the labels say, which must have no gap.
    default: the normalisation where `meta.json` names none.
    mapped: whether rows stay in their file until they are used; see `load_arrays`.
    missing: what is done with rows that lack a value, one of `missing.RULES`.

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
        'x (uint8 [n, height, width, channels]; floats [n, features] or [n, time, channels]) and y '
        '(integers [n])'
      )
  meta, notes = _read_meta(folder / META)
  on_disk = ('x',) if mapped else ()
  files = {file: load_arrays(folder / file, ('x', 'y'), ('clients',), on_disk) for file in FILES}
  read = {file: _of_kind(folder / file, arrays, meta) for file, (arrays, _) in files.items()}
  read, lacking, filled = complete(read, missing, str(folder))
  raw = {file: Split(arrays['x'], arrays['y']) for file, arrays in read.items()}
  train, test, scalings = _read_splits(folder, raw, num_classes, meta)
  notes += lacking
  if features.has_columns(train.x) and (constant := features.constant_columns(train.x)):
    notes.append(constant)
  notes += [f'{file}: {listed(others)} not used' for file, (_, others) in files.items() if others]
  suffixes = ('.npz', '.npy')
  paths = [p.name for p in folder.iterdir() if p.suffix in suffixes and p.name not in FILES]
  notes += [f'{listed(sorted(paths))} beside {FILES[0]} not read'] if paths else []
  constants = meta.get('normalisation')
  if constants:
    constants = parse(constants, str(folder / META), features.kind_of(train.x))
  line = f'read {len(train.y)} training and {len(test.y)} test rows'
  clients, numbering = Clients(), list[str]()
  train_ids, test_ids = (arrays.get('clients') for arrays in read.values())
  if train_ids is not None:
    sizes, where = (len(train.y), len(test.y)), (str(folder / FILES[0]), str(folder / FILES[1]))
    clients, numbering = number_clients(train_ids, test_ids, sizes, where)
    line += f' of {1 + int(np.asarray(clients.clients).max())} clients'
    line += f' ({listed(clients.client_names)})' if clients.client_names else ''
  elif test_ids is not None:
    notes.append(f"'clients' of {FILES[1]} is not used, as {FILES[0]} has none")
  notes += _label_notes(train.y, test.y, 'labels' in meta)
  dataset = make(
    name,
    '',
    train,
    test,
    num_classes or _count_classes(train.y, test.y, folder / FILES[0]),
    UNMEASURED if constants == 'auto' else constants or default,
    **clients._asdict(),
    filled=filled,
    notes=(line, *scalings, *notes, *numbering, *same_rows(train, test)),
  )
  title = f'{name if num_classes else folder.resolve().name} (arrays {dataset.checksum[:8]})'
  named = dataclasses.replace(dataset, title=meta.get('name') or title)
  return with_unseen_clients(named, test_ids)


def _of_kind(path: Path, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> dict[str, Any]:
  """Returns arrays with x as floats if meta.json says that it is a table or sequences."""
  x, kind = arrays['x'], meta.get('kind', '')
  axes = {features.TABLE: 2, features.SEQUENCES: 3}.get(kind, x.ndim)
  if x.ndim != axes:
    raise ValueError(f'{path}: {META} says "kind": "{kind}", which has {axes} axes; x has {x.ndim}')
  if kind and x.dtype.kind in 'biu':
    return arrays | {'x': x.astype(np.float64 if x.dtype.itemsize > 2 else np.float32)}
  return arrays


def _read_splits(
  folder: Path, raw: dict[str, Split], num_classes: int | None, meta: dict[str, Any]
) -> tuple[Split, Split, tuple[str, ...]]:
  """Returns the training and the test rows, and what was scaled."""
  for file, split in raw.items():
    if 'layout' not in meta and (order := wrong_order(*split)):
      layout = 'NHWC' if np.ndim(split.x) == 4 else 'NTC'
      remedy = f'{{"layout": "{layout}"}} in meta.json if it is right'
      raise ValueError(f'{folder / file}: x {order}, or {remedy}')
    if 'kind' not in meta and features.look_grey(split.x):
      raise ValueError(
        f'{folder / file}: x is {list(split.x.shape)} in 0..1: x[..., None] if they are grey '
        'images, or {"kind": "sequences"} in meta.json'
      )
  try:
    check_shapes(raw)
    scaled, notes = scale_splits(raw)
  except ValueError as error:
    raise ValueError(f'{folder}: {error}') from error
  one_hot = meta.get('labels') == 'classes'
  train, test = (
    check_split(x, _classes_of(y, folder / file) if one_hot else y, str(folder / file), num_classes)
    for file, (x, y) in scaled.items()
  )
  check_classes(train.y, test.y, folder / FILES[0])
  return train, test, notes


def _classes_of(y: np.ndarray, where: Path) -> np.ndarray:
  """Returns the classes [n] of one-hot labels [n, classes]; labels [n] as they are."""
  if y.ndim != 2:
    return y
  wrong = np.flatnonzero(~(np.isin(y, (0, 1)).all(axis=1) & (y.astype(float).sum(axis=1) == 1)))
  if wrong.size:
    raise ValueError(
      f'{where}: labels are said to be classes, but row {wrong[0]} of y is no row of zeros with a '
      'single 1'
    )
  return y.argmax(axis=1)


def _count_classes(train: np.ndarray, test: np.ndarray, where: Path) -> int:
  """Returns how many classes labels name; without gaps, unless they are multi-hot."""
  if train.ndim == 2:
    return train.shape[1]
  classes, occurring = 1 + int(max(train.max(), test.max())), np.unique(train)
  if len(occurring) < classes:
    gap = np.flatnonzero(np.append(occurring, -1) != np.arange(len(occurring) + 1))[0]
    raise ValueError(
      f'{where}: no row has label {gap}, and others have up to {classes - 1}; classes are numbered '
      'from 0 on, without gaps'
    )
  return classes


def _label_notes(train: np.ndarray, test: np.ndarray, said: bool) -> list[str]:
  """States which labels [n, labels] have no row, and whether they look one-hot; see meta.json."""
  if train.ndim != 2:
    return []
  missing = [str(label) for label in np.flatnonzero(~train.any(axis=0))]
  notes = [f'no training row has the labels {listed(missing)}'] if missing else []
  if not said and look_one_hot(train, test):
    say = 'say {"labels": "classes"} in meta.json (otherwise "several")'
    notes.append(f'{ONE_LABEL}; if they are classes, {say}')
  return notes


def load_arrays(
  path: Path,
  names: tuple[str, ...],
  optional: tuple[str, ...] = (),
  mapped: tuple[str, ...] = (),
) -> tuple[dict[str, np.ndarray], list[str]]:
  """Reads named arrays of an .npz file.

  Args:
    path: the file.
    names: arrays that it must have.
    optional: arrays that it may have.
    mapped: arrays that are memory-mapped, unless they are compressed.

  Returns:
    The arrays by name, and the names of those that are not read.

  Raises:
    ValueError: if it cannot be read, lacks one, or would take more memory than there is.
  """
  try:
    # Opened here: numpy leaves what is no archive open.
    with path.open('rb') as opened, np.load(opened, allow_pickle=False) as file:
      if missing := [name for name in names if name not in file]:
        raise ValueError(f'it has no array {missing[0]!r}, only {sorted(file)}')
      wanted = [name for name in names + optional if name in file]
      members = {m.filename.removesuffix('.npy'): m for m in file.zip.infolist()}
      tried = {name: _map(path, members[name]) for name in wanted if name in mapped}
      maps = {name: array for name, array in tried.items() if array is not None}
      read = [name for name in wanted if name not in maps]
      bounded.check_bytes(sum(members[name].file_size for name in read), ', '.join(read))
      arrays = {name: maps[name] if name in maps else file[name] for name in wanted}
      return arrays, sorted(set(file) - set(wanted))
  except (PermissionError, FileNotFoundError):
    raise
  except Exception as error:  # numpy, zipfile and zlib share no base class
    remedy = ''
    if 'allow_pickle' in str(error):  # a column of a table, often
      remedy = '; np.asarray(a, str), or a number type, before np.savez would work'
    raise ValueError(f'{path} cannot be read: {first_line(error)}{remedy}') from error


def _map(path: Path, member: zipfile.ZipInfo) -> np.ndarray | None:
  """Maps an array of an .npz file into memory; None if it is compressed or of another form."""
  if member.compress_type != zipfile.ZIP_STORED:
    return None
  with path.open('rb') as file:
    file.seek(member.header_offset + 26)  # of the lengths of name and extra field
    file.seek(sum(struct.unpack('<HH', file.read(4))), os.SEEK_CUR)
    version = np.lib.format.read_magic(file)
    if version not in _HEADERS:
      return None
    shape, fortran, dtype = _HEADERS[version](file)
    size, begin = math.prod(shape) * dtype.itemsize, file.tell()
  if fortran or dtype.hasobject or not 0 < size <= member.file_size:
    return None
  return np.memmap(path, dtype, 'r', begin, shape)


def _read_meta(path: Path) -> tuple[dict[str, Any], list[str]]:
  """Returns what `meta.json` says, and notes.

  'labels' is 'classes' if y is one-hot, 'several' if it is not, though it looks so; 'layout' is
  'NHWC' if the order of the axes of x is right, though it does not look so.
  """
  if not os.path.lexists(path):
    return {}, []
  meta = bounded.read_json(path)
  if not isinstance(meta, dict) or not isinstance(meta.get('name', ''), str):
    raise ValueError(f'{path} must hold {{"name": text, "normalisation": ...}}')
  for key, values in _CHOICES.items():
    if meta.get(key, values[0]) not in values:
      raise ValueError(f'{path}: {key}={meta[key]!r} must be one of {", ".join(map(repr, values))}')
  known = ('name', 'normalisation', *_CHOICES)
  unknown = sorted(set(meta) - set(known))
  for key in unknown:
    if near := difflib.get_close_matches(key.lower(), known, n=1, cutoff=0.8):
      raise ValueError(f'{path}: {key!r} is unknown; did you mean {near[0]!r}?')
  return meta, [f'{path.name}: {listed(unknown)} not used'] if unknown else []
