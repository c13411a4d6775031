"""A table in CSV: `train.csv` and `test.csv` in a folder, or one file, a fifth of which tests.

Columns of numbers are features; each category of a column of texts is a feature, 1 or 0. The first
line names the columns. See docs/data.md.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedjax_syn.core.texts import listed, shown
from fedjax_syn.data import features, missing
from fedjax_syn.data.builders import bounded, csv_columns
from fedjax_syn.data.builders.csv_columns import Column
from fedjax_syn.data.dataset import Dataset, make
from fedjax_syn.data.facts import Choice
from fedjax_syn.data.naming import Clients, number_clients
from fedjax_syn.data.normalisation import UNMEASURED
from fedjax_syn.data.split import check_split, fifth, same_rows
from fedjax_syn.data.unseen import with_unseen_clients

FILES = ('train.csv', 'test.csv')
LABELS = ('label', 'labels', 'y', 'target', 'class')  # the first of these is the column of classes
CLIENTS = ('client', 'clients')


class File(NamedTuple):
  """A file and what its columns are."""

  path: Path
  header: list[str]
  delimiter: str
  columns: dict[str, Column]


class Layout(NamedTuple):
  """Which columns are what."""

  label: str
  client: str
  """'' without one."""
  categories: dict[str, list[str] | None]
  """By feature column: its categories, None for numbers."""

  @property
  def names(self) -> list[str]:
    """The names of the features: 'age', 'job=clerk'."""
    known = self.categories.items()
    return [name if of is None else f'{name}={c}' for name, of in known for c in (of or ('',))]


class Rows(NamedTuple):
  """The rows of a file."""

  x: np.ndarray
  """float64 [rows, features], nan where a number is missing."""
  y: list[str]
  ids: list[str]
  lines: np.ndarray
  """[rows], of the file."""
  lacking: np.ndarray
  """bool [rows]: whether the row lacks a value, a number or a text."""


def load(name: str, path: Path, choice: Choice = Choice()) -> Dataset:  # noqa: B008
  """Reads a table.

  Args:
    name: of the data set, as in the config.
    path: a folder with `train.csv` and `test.csv`, or with a single CSV file; or that file.
    choice: the columns of labels and clients, those that are ignored, and what is done with rows
      that lack a value.

  Returns:
    The data set; classes and clients are numbered in the order of their names.

  Raises:
    FileNotFoundError: if there is no such file.
    ValueError: if a file holds something else.
  """
  paths = find(path)
  files = [_look(p) for p in paths]
  layout, notes = _layout(files[0], choice, len(files) == 1)
  for file in files[1:]:
    _check_test(file, files[0], layout)
  read = [_read(file, layout) for file in files]
  used = [_complete(file, rows, choice, notes) for file, rows in zip(files, read, strict=True)]
  parts, held = _divide(used, paths)
  names, labels = _classes([p.y for p in parts], str(paths[0]))
  filled, lines, has_filled = missing.complete(
    {'training rows': {'x': parts[0].x}, 'test rows': {'x': parts[1].x}}, choice.missing, str(path)
  )
  where = [str(p) for p in paths] * (2 if held else 1)
  clients, numbering = _clients(parts, layout, where)
  splits = features.to_float32({n: part['x'] for n, part in filled.items()})[0].values()
  train, test = (check_split(x, y, str(path)) for x, y in zip(splits, labels, strict=True))
  line = f'read {len(train.y)} training and {len(test.y)} test rows'
  line += f' of {1 + int(clients.clients.max())} clients' if clients.clients is not None else ''
  line += ', a fifth of each class held out to test' if held else ''
  if constant := features.constant_columns(train.x):
    notes.append(constant)
  dataset = make(
    name,
    '',
    train,
    test,
    len(names),
    UNMEASURED,
    **clients._asdict(),
    class_names=() if names == [str(i) for i in range(len(names))] else tuple(names),
    feature_names=tuple(layout.names),
    filled=has_filled,
    notes=(line, *notes, *lines, *numbering, *same_rows(train, test)),
  )
  folder = path.resolve()
  title = f'{folder.stem if path.is_file() else folder.name} (CSV {dataset.checksum[:8]})'
  test_ids = np.array(parts[1].ids) if layout.client and parts[1].ids else None
  return with_unseen_clients(dataclasses.replace(dataset, title=title), test_ids)


def find(path: Path) -> list[Path]:
  """Returns the files: training and test rows, or one of both.

  Raises:
    FileNotFoundError: if there is none.
    ValueError: if it is not clear which.
  """
  if not path.is_dir():
    if not path.exists():
      raise FileNotFoundError(
        f'{path} is missing: a CSV file, or a folder of train.csv and test.csv'
      )
    return [path]
  there = [path / file for file in FILES]
  if all(p.exists() for p in there):
    return there
  found = sorted(p for p in path.iterdir() if p.suffix.lower() == '.csv')
  if len(found) == 1:
    return found
  if not found:
    raise FileNotFoundError(
      f'{path} has no CSV file; train.csv and test.csv would work, or one file'
    )
  raise ValueError(
    f'{path}: has {listed([p.name for p in found])}; train.csv and test.csv would work, or '
    f'data.name=csv:{found[0]}'
  )


def _look(path: Path) -> File:
  """Reads a file once, to see what its columns are."""
  header, delimiter = csv_columns.read_header(path)
  columns = {name: Column(name) for name in header if name}
  for part in csv_columns.parts(path, header, delimiter):
    for name, column in columns.items():
      column.look(part.cells[name], part.lines)
  return File(path, header, delimiter, columns)


def _layout(file: File, choice: Choice, single: bool) -> tuple[Layout, list[str]]:
  """States which columns are what; refuses features that are no numbers or categories."""
  path, header, columns = file.path, file.header, file.columns
  for key in ('label_column', 'client_column'):
    if (name := getattr(choice, key)) and name not in columns:
      raise csv_columns.no_column(path, header, key, name)
  for name in choice.ignore_columns:
    if name not in columns:
      raise csv_columns.no_column(path, header, 'ignore_columns', name)
  label = choice.label_column or next((n for n in LABELS if n in columns), '')
  if not label:
    raise ValueError(
      f'{path}: data.label_column= must name the column of classes: {listed([*columns], 10)}'
    )
  others = {*choice.ignore_columns, label}
  client = choice.client_column or next(
    (n for n in CLIENTS if n in columns and n not in others), ''
  )
  notes = ['the column without a name is left out'] * (len(columns) < len(header))
  if choice.ignore_columns:
    notes.append(f'columns {listed([*choice.ignore_columns])} are ignored')
  known: dict[str, list[str] | None] = {}
  for name, column in columns.items():
    if name in others or name == client:
      continue
    csv_columns.check_kind(column, str(path))
    if not column.numbers and not column.texts:
      raise ValueError(
        f'{path}: column {name!r} has no value; data.ignore_columns={name}, leaves it out'
      )
    known[name] = csv_columns.categories(column) if column.is_text else None
  if not known:
    raise ValueError(f'{path}: has no column beside {label!r}{" and " * bool(client)}{client!r}')
  texts = {name: len(of) for name, of in known.items() if of is not None}
  notes += [f'column {name!r}: {count} categories' for name, count in texts.items()]
  return Layout(label, client, known), notes


def _check_test(file: File, train: File, layout: Layout) -> None:
  """Refuses test rows with other columns or categories than training rows."""
  wanted = [layout.label, *layout.categories]
  if lacking := [name for name in wanted if name not in file.columns]:
    raise ValueError(f'{file.path}: has no column {lacking[0]!r}, which {train.path.name} has')
  for name, known in layout.categories.items():
    column = file.columns[name]
    if known is None and column.is_text:
      text, line = column.first_text
      raise ValueError(
        f'{file.path}: column {name!r} has the text {shown(text)} in line {line}, and '
        f'{train.path.name} has numbers'
      )
    new = sorted((column.values or set()) - set(known or ())) if known is not None else []
    if new or column.values is None and known is not None:
      which = shown(new[0]) if new else f'more than {csv_columns.MOST} texts'
      raise ValueError(
        f'{file.path}: column {name!r} has {which}, a category that {train.path.name} does not '
        "have; an empty cell would be a missing value, with data.missing='median' no category"
      )


def _read(file: File, layout: Layout) -> Rows:
  """Reads a file again, into arrays."""
  first = file.columns[layout.label]
  count = first.numbers + first.texts + first.missing
  bounded.check_bytes(8 * count * len(layout.names), f'{file.path}: {len(layout.names)} features')
  x = np.empty((count, len(layout.names)))
  y, ids, lines, lacking, at = list[str](), list[str](), list[int](), [], 0
  for part in csv_columns.parts(file.path, file.header, file.delimiter):
    cells, end = part.cells, at + len(part.lines)
    both = layout.categories.items()
    x[at:end] = np.concatenate([csv_columns.encode(cells[n], of) for n, of in both], axis=1)
    holes = [[csv_columns.is_missing(cell) for cell in cells[name]] for name in layout.categories]
    lacking.append(np.any(holes, axis=0))
    y += cells[layout.label]
    ids += cells.get(layout.client, ())
    lines += part.lines
    at = end
  if not at:
    raise ValueError(f'{file.path}: has no row')
  return Rows(x, y, ids, np.array(lines), np.concatenate(lacking))


def _complete(file: File, rows: Rows, choice: Choice, notes: list[str]) -> Rows:
  """Refuses rows that lack a value, or leaves them out and adds a note."""
  for what, cells in (('class', rows.y), ('client', rows.ids)):
    for cell, line in zip(cells, rows.lines, strict=len(cells) > 0):
      if csv_columns.is_missing(cell):
        raise ValueError(f'{file.path}: line {line} has no {what}: take it out, or name one')
  lacking = rows.lacking
  if not lacking.any() or choice.missing == missing.MEDIAN:
    return rows
  if choice.missing == missing.REFUSE:
    raise ValueError(
      f'{file.path}: line {rows.lines[lacking][0]} lacks a value; data.missing=median fills it by '
      'the median of its column (of texts, with no category), drop leaves such rows out'
    )
  if lacking.all():
    raise ValueError(f"{file.path}: every row lacks a value, and data.missing='drop'")
  notes.append(f'{file.path.name}: {lacking.sum()} rows that lack a value left out')
  return _take(rows, ~lacking)


def _take(rows: Rows, chosen: np.ndarray) -> Rows:
  pick = lambda cells: [cell for cell, own in zip(cells, chosen, strict=True) if own]
  ids = pick(rows.ids) if rows.ids else []
  return Rows(rows.x[chosen], pick(rows.y), ids, rows.lines[chosen], rows.lacking[chosen])


def _divide(files: Sequence[Rows], paths: Sequence[Path]) -> tuple[tuple[Rows, Rows], bool]:
  """Returns training and test rows, and whether these were held out of one file."""
  if len(files) == 2:
    return (files[0], files[1]), False
  (rows,) = files
  groups = [*zip(rows.ids or rows.y, rows.y, strict=True)]
  number = {group: i for i, group in enumerate(sorted(set(groups)))}
  held = fifth(np.array([number[group] for group in groups]))
  if not held.any() or held.all():
    raise ValueError(
      f'{paths[0]}: {len(rows.y)} rows are too few to hold out a fifth of each class'
    )
  return (_take(rows, ~held), _take(rows, held)), True


def _classes(y: Sequence[list[str]], where: str) -> tuple[list[str], list[np.ndarray]]:
  """Returns the names of the classes in their order, and the labels of both splits."""
  train, test = y
  if wrong := [c for c in train if csv_columns.is_number(c) and not float(c).is_integer()]:
    raise ValueError(
      f'{where}: the class {wrong[0]} is no whole number; classes are integers or texts'
    )
  ids = csv_columns.as_ids(train)
  names = [str(name) for name in np.unique(ids).tolist()]
  number = {name: i for i, name in enumerate(names)}
  plain = (lambda cell: str(int(cell))) if ids.dtype.kind == 'i' else str
  try:
    labels = [np.array([number[plain(cell)] for cell in part], np.int32) for part in (train, test)]
  except (KeyError, ValueError):
    unknown = next(cell for cell in test if not _is_known(cell, plain, number))
    raise ValueError(
      f'{where}: no training row has the class {shown(unknown)}, and test rows have'
    ) from None
  return names, labels


def _is_known(cell: str, plain: Any, number: Mapping[str, int]) -> bool:
  try:
    return plain(cell) in number
  except ValueError:
    return False


def _clients(
  parts: tuple[Rows, Rows], layout: Layout, where: Sequence[str]
) -> tuple[Clients, list[str]]:
  """Numbers the clients of both splits."""
  train, test = (rows.ids for rows in parts)
  if not layout.client:
    return Clients(), []
  sizes = len(parts[0].y), len(parts[1].y)
  ids = csv_columns.as_ids(train)
  other = None
  if test:
    other = csv_columns.as_ids(test)
    if other.dtype.kind != ids.dtype.kind:
      ids, other = np.array(train, str), np.array(test, str)
  return number_clients(ids, other, sizes, (where[0], where[1]))
