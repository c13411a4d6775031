"""A folder of Parquet files as Hugging Face writes them: `train-00000-of-00002.parquet` and so on.

Columns: images are structs {bytes, path}; without images, all columns of numbers are the features
of a table. Labels are integers or texts, and any column names the client. The schema's metadata
`huggingface` say which column is what, where they exist. Labels and clients are read first; then
the other columns are read record batch by record batch into arrays that are allocated once.
"""

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fedjax_syn.core.texts import first_line, listed
from fedjax_syn.data.builders.parquet_images import Images
from fedjax_syn.data.builders.parquet_table import Table, is_number
from fedjax_syn.data.dataset import Dataset, make
from fedjax_syn.data.facts import Choice
from fedjax_syn.data.naming import Clients, number_clients
from fedjax_syn.data.normalisation import UNMEASURED
from fedjax_syn.data.split import Split, check_split, same_rows
from fedjax_syn.data.unseen import with_unseen_clients

TESTS = ('test', 'validation')  # the first that exists is tested on
LABELS = ('label', 'labels', 'y', 'target', 'class')  # of columns whose schema says nothing
INDEX = '__index_level_'  # begins the names of columns that pandas adds
HELD_OUT = 5  # without a test split, every fifth row of a client is one
_PART = re.compile(r'(?P<split>.+?)(?:-(?P<number>\d{5})-of-(?P<count>\d{5}))?\.parquet')


class Columns(NamedTuple):
  """Which columns are what."""

  image: str
  """'' of a table."""
  features: tuple[str, ...]
  """Of a table."""
  label: str
  client: str
  class_names: tuple[str, ...]
  others: tuple[str, ...]


class Rows(NamedTuple):
  """Where the rows of a split go."""

  files: list[Path]
  y: np.ndarray
  """Labels, integers or texts [rows]."""
  ids: np.ndarray | None
  """Clients [rows]."""


def load(name: str, folder: Path, size: int = 0, choice: Choice = Choice()) -> Dataset:  # noqa: B008
  """Reads a folder.

  Args:
    name: of the data set, as in the config.
    folder: holds the files, or a folder `data` with them.
    size: side in pixels to which images are resized; 0 takes them as they are, all of one size.
    choice: splits and columns.

  Returns:
    The data set. Clients are numbered in the order of their names.

  Raises:
    FileNotFoundError: if there is no such file.
    ValueError: if files hold something else.
  """
  where = f'data.dir={str(folder)!r}'
  try:
    return _read(name, folder, size, choice, where)
  except (pa.ArrowException, OSError) as error:
    if isinstance(error, FileNotFoundError) or getattr(error, 'errno', None):
      raise
    raise ValueError(f'{where}: no Parquet that can be read ({first_line(error)})') from error


def _read(name: str, folder: Path, size: int, choice: Choice, where: str) -> Dataset:
  splits = find(folder)
  train, test = _names(splits, choice, where)
  columns = _columns(pq.read_schema(splits[train][0]), choice, str(splits[train][0]))
  read = {split: _small(splits[split], columns) for split in filter(None, (train, test))}
  if columns.client and read[train].ids is None:
    raise ValueError(f'{where}: not all files of {train!r} have column {columns.client!r}')
  notes = [f'split {split!r} not read' for split in splits if split not in read]
  notes += [f'columns {listed(columns.others)} not used'] if columns.others else []
  names, labels = _classes({split: rows.y for split, rows in read.items()}, columns, where)
  if test:
    tested = {train: np.zeros(len(labels[train]), bool), test: np.ones(len(labels[test]), bool)}
  else:
    of = read[train].ids
    tested = {train: every_fifth(labels[train] if of is None else of)}
    notes.append(
      f'there is no test split: every fifth row of each {"class" if of is None else "client"} tests'
    )
  sizes = [sum(int((t == part).sum()) for t in tested.values()) for part in (False, True)]
  if not all(sizes):
    raise ValueError(
      f'{where}: has {sizes[0]} training and {sizes[1]} test rows; both must have some'
    )
  x, decoded, features = _rows(read, tested, columns, sizes, where, size)
  both = [
    np.concatenate([labels[s][t == part] for s, t in tested.items()]) for part in (False, True)
  ]
  classes = len(names) or 1 + int(max(map(np.max, both)))
  parts = [check_split(*of, where, classes) for of in zip(x, both, strict=True)]
  clients, test_ids, numbering = _clients(read, tested, where)
  line = (
    f'read {len(both[0])} training and {len(both[1])} test {"images" if columns.image else "rows"}'
  )
  line += f' of {1 + int(clients.clients.max())} clients' if clients.clients is not None else ''
  dataset = make(
    name,
    '',
    Split(*parts[0]),
    Split(*parts[1]),
    classes,
    UNMEASURED,
    **clients._asdict(),
    class_names=names,
    feature_names=features,
    notes=(line, *notes, *decoded, *numbering, *same_rows(*parts)),
  )
  title = f'{folder.resolve().name} (Parquet {dataset.checksum[:8]})'
  return with_unseen_clients(dataclasses.replace(dataset, title=title), test_ids)


def _rows(
  read: Mapping[str, Rows],
  tested: Mapping[str, np.ndarray],
  columns: Columns,
  sizes: Sequence[int],
  where: str,
  size: int,
) -> tuple[list[np.ndarray], list[str], tuple[str, ...]]:
  """Reads images or features of training and of test rows; notes; the names of features."""
  if columns.image:
    images = Images(sizes, where, size)
    for split, rows in read.items():
      images.fill(rows.files, columns.image, tested[split])
    return *images.finish(), ()
  if size:
    raise ValueError(f'{where}: data.size={size}: the files have no images; 0 would work')
  table = Table(sizes, where)
  for split, rows in read.items():
    table.fill(rows.files, columns.features, tested[split])
  return table.finish(), [f'features: {listed(table.names, 10)}'], table.names


def find(folder: Path) -> dict[str, list[Path]]:
  """Returns the files of each split, in order: of the folder, else of its folder `data`.

  Raises:
    FileNotFoundError: if there is none.
    ValueError: if one of several parts is missing.
  """
  for here in (folder, folder / 'data'):
    found: dict[str, list[Path]] = {}
    counts: dict[str, set[int]] = {}
    for path in sorted(here.glob('*.parquet')):
      if match := _PART.fullmatch(path.name):
        split = match['split']
        found.setdefault(split, []).append(path)
        counts.setdefault(split, set()).add(int(match['count'] or 1))
    for split, paths in found.items():
      if counts[split] != {len(paths)}:
        wanted = ' or '.join(map(str, sorted(counts[split])))
        raise ValueError(f'{here}: split {split!r} has {len(paths)} files and names {wanted} parts')
    if found:
      return found
  raise FileNotFoundError(
    f'data.dir={str(folder)!r}: no Parquet file, as in train-00000-of-00002.parquet, there or in'
    ' data/'
  )


def _names(splits: Mapping[str, Any], choice: Choice, where: str) -> tuple[str, str]:
  """Returns the names of the training and the test split; '' without a test split."""
  for key in ('train_split', 'test_split'):
    split = getattr(choice, key)
    if split and split not in splits:
      raise ValueError(f'{where}: data.{key}={split!r}: has splits {", ".join(splits)}')
  train = choice.train_split or ('train' if 'train' in splits else '')
  if not train:
    raise ValueError(
      f'{where}: has splits {", ".join(splits)}; data.train_split={next(iter(splits))} names one'
    )
  test = choice.test_split or next((s for s in TESTS if s in splits and s != train), '')
  if test == train:
    raise ValueError(f'{where}: data.test_split={test!r} is the training split')
  return train, test


def _columns(schema: pa.Schema, choice: Choice, where: str) -> Columns:
  """States which columns are images, labels and clients."""
  said = _features(schema)
  kind = lambda name: said.get(name, {}).get('_type', '')
  structs = [
    f.name for f in schema if pa.types.is_struct(f.type) and f.type.get_field_index('bytes') >= 0
  ]
  images = [name for name in schema.names if kind(name) == 'Image'] or structs
  if len(images) > 1:
    raise ValueError(f'{where}: {listed(images)} hold images (bytes, path); one column must')
  for key, name in (
    ('label_column', choice.label_column),
    ('client_column', choice.client_column),
    *(('ignore_columns', name) for name in choice.ignore_columns),
  ):
    if name and name not in schema.names:
      raise ValueError(f'{where}: data.{key}={name!r}: has columns {listed(schema.names, 10)}')
  labels = [
    name for name in schema.names if kind(name) == 'ClassLabel' and name != choice.client_column
  ]
  labels = (
    labels or [name for name in LABELS if name in schema.names and name != choice.client_column][:1]
  )
  if not choice.label_column and len(labels) != 1:
    which = listed(labels or [n for n in schema.names if n not in images], 10)
    raise ValueError(f'{where}: data.label_column= must name the column of classes: {which}')
  label = choice.label_column or labels[0]
  known = label, choice.client_column, *choice.ignore_columns
  numbers = [f.name for f in schema if f.name not in known and is_number(f.type)]
  features = () if images else tuple(n for n in numbers if not n.startswith(INDEX))
  if not images and not features:
    raise ValueError(
      f'{where}: no column holds images (bytes, path), and none numbers, of'
      f' {listed(schema.names, 10)}'
    )
  used = *images, *features, label, choice.client_column
  others = tuple(name for name in schema.names if name not in used)
  names = tuple(said.get(label, {}).get('names') or ())
  image = images[0] if images else ''
  return Columns(image, features, label, choice.client_column, names, others)


def _features(schema: pa.Schema) -> dict[str, dict[str, Any]]:
  """Returns what the metadata say of each column; {} without."""
  try:
    said = json.loads((schema.metadata or {})[b'huggingface'])['info']['features']
  except (KeyError, ValueError, TypeError):
    return {}
  fits = isinstance(said, dict)
  return {k: v for k, v in said.items() if isinstance(v, dict)} if fits else {}


def _small(files: list[Path], columns: Columns) -> Rows:
  """Reads labels and clients of all files."""
  wanted = list(filter(None, (columns.label, columns.client)))
  parts: dict[str, list[np.ndarray]] = {name: [] for name in wanted}
  for path in files:
    here = pq.read_schema(path)
    needed = *((columns.image,) if columns.image else columns.features), columns.label
    missing = [name for name in needed if name not in here.names]
    if missing:
      raise ValueError(f'{path}: has no column {missing[0]!r}, only {listed(here.names, 10)}')
    table = pq.read_table(path, columns=[name for name in wanted if name in here.names])
    for name in table.column_names:
      parts[name].append(_plain(table.column(name), f'{path}: column {name!r}'))
  join = lambda name: np.concatenate(parts[name])
  y = join(columns.label)
  ids = join(columns.client) if columns.client and parts[columns.client] else None
  return Rows(files, y, ids if ids is None or len(ids) == len(y) else None)


def _plain(column: pa.ChunkedArray, where: str) -> np.ndarray:
  """Returns a column of integers or texts as an array."""
  kind = column.type
  if pa.types.is_dictionary(kind):
    column = column.cast(kind := kind.value_type)
  if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
    raise ValueError(f'{where} is {kind}; integers or texts would work')
  if column.null_count:
    first = next(i for i, valid in enumerate(column.is_valid()) if not valid.as_py())
    raise ValueError(f'{where} has no value in row {first}')
  return column.to_numpy() if pa.types.is_integer(kind) else np.array(column.to_pylist(), str)


def _classes(
  y: Mapping[str, np.ndarray], columns: Columns, where: str
) -> tuple[tuple[str, ...], dict[str, np.ndarray]]:
  """Returns the names of the classes, () if they have none, and labels as integers, by split."""
  kinds = {array.dtype.kind in 'iu' for array in y.values()}
  if len(kinds) > 1:
    raise ValueError(
      f'{where}: column {columns.label!r} is of numbers in one split, texts in another'
    )
  if kinds == {True}:
    for split, labels in y.items():
      if labels.size and labels.min() < 0:
        row = int(np.flatnonzero(labels < 0)[0])
        raise ValueError(f'{where}: row {row} of {split} has label {labels[row]}, which is none')
    return columns.class_names, dict(y)
  names = np.unique(next(iter(y.values())))  # of the training split
  for split, labels in y.items():
    if (unknown := np.setdiff1d(labels, names)).size:
      raise ValueError(
        f'{where}: no training row has label {unknown[0]!s}, and rows of {split} have'
      )
  return tuple(names.tolist()), {split: np.searchsorted(names, array) for split, array in y.items()}


def every_fifth(groups: np.ndarray) -> np.ndarray:
  """States which rows test: of each group the fifth, the tenth, ... in the order of the rows.

  Args:
    groups: integers or texts [rows].

  Returns:
    bool [rows].
  """
  order = np.argsort(groups, kind='stable')
  first = np.r_[True, groups[order][1:] != groups[order][:-1]]
  begins = np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))
  chosen = np.zeros(len(groups), bool)
  chosen[order] = (np.arange(len(order)) - begins) % HELD_OUT == HELD_OUT - 1
  return chosen


def _clients(
  read: Mapping[str, Rows], tested: Mapping[str, np.ndarray], where: str
) -> tuple[Clients, np.ndarray | None, list[str]]:
  """Numbers the clients; test rows have theirs if all test splits name them."""
  if next(iter(read.values())).ids is None:
    return Clients(), None, []

  def pick(part: bool) -> list[Any]:
    of = [(read[split].ids, rows == part) for split, rows in tested.items()]
    return [ids if ids is None else ids[rows] for ids, rows in of if rows.any()]

  train, of_test = np.concatenate(pick(False)), pick(True)
  test = None if any(ids is None for ids in of_test) else np.concatenate(of_test)
  sizes = len(train), sum(int(t.sum()) for t in tested.values())
  clients, notes = number_clients(train, test, sizes, (where, where))
  return clients, test, notes
