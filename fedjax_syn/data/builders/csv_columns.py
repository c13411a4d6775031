"""Columns of CSV files: which are numbers, which are texts, and what they hold; numpy only.

A file is read twice, in parts of a bounded number of rows: first to see what its columns are, then
to fill arrays of that kind.
"""

import csv
import dataclasses
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fedjax_syn.core.texts import first_line, listed, shown

PART = 50_000  # rows that are looked at together
MOST = 1000  # categories of a column
MISSING = frozenset({'', 'na', 'n/a', 'nan', 'null', 'none', '?'})  # in lower case
DELIMITERS = ',;\t'
_NUMBER = re.compile(r'[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?', re.ASCII)
_DECIMAL_COMMA = re.compile(r'[+-]?\d*,\d+', re.ASCII)


class Part:
  """Some rows of a file, by column."""

  def __init__(self, header: list[str], rows: list[list[str]], lines: list[int]):
    """Turns rows into columns; cells lose blanks at both ends."""
    columns = zip(*rows, strict=True)
    self.cells = {
      name: [cell.strip() for cell in column]
      for name, column in zip(header, columns, strict=True)
      if name
    }
    self.lines = lines


@dataclasses.dataclass
class Column:
  """What the cells of a column are, over all rows that were looked at."""

  name: str
  numbers: int = 0
  texts: int = 0
  missing: int = 0
  first_text: tuple[str, int] = ('', 0)
  """The first text, and its line."""
  values: set[str] | None = dataclasses.field(default_factory=set)
  """Distinct cells that are there; None: more than `MOST`."""

  def look(self, cells: list[str], lines: list[int]) -> None:
    """Counts the cells of some rows."""
    for cell, count in Counter(cells).items():
      if cell.lower() in MISSING:
        self.missing += count
      elif is_number(cell):
        self.numbers += count
      else:
        if not self.texts:
          self.first_text = cell, lines[cells.index(cell)]
        self.texts += count
      if self.values is not None and cell.lower() not in MISSING:
        self.values.add(cell)
        self.values = self.values if len(self.values) <= MOST else None

  @property
  def is_text(self) -> bool:
    """Whether the column has a text."""
    return self.texts > 0


def is_number(cell: str) -> bool:
  """Returns whether a cell is a decimal number, as '1', '-2.5' or '1e-3'."""
  return _NUMBER.fullmatch(cell) is not None


def is_missing(cell: str) -> bool:
  """Returns whether a cell has no value."""
  return cell.lower() in MISSING


def read_header(path: Path) -> tuple[list[str], str]:
  """Returns the names of the columns, and the delimiter: the most frequent of `DELIMITERS` there.

  Raises:
    ValueError: if there is none, or a name is there twice.
  """
  for line, _ in _records(path, ','):
    joined = ','.join(line)
    break
  else:
    raise ValueError(f'{path}: is empty; its first line must name the columns')
  delimiter = max(DELIMITERS, key=joined.count)
  header = [name.strip() for name in next(_records(path, delimiter))[0]]
  if twice := [name for name, count in Counter(filter(None, header)).items() if count > 1]:
    raise ValueError(f'{path}: column {twice[0]!r} is there twice')
  if numbers := [name for name in header if is_number(name)]:
    raise ValueError(
      f'{path}: its first line must name the columns, and it has the number {numbers[0]}'
    )
  return header, delimiter


def parts(path: Path, header: list[str], delimiter: str) -> Iterator[Part]:
  """Yields a file's rows in parts of `PART`; lines without a cell are left out.

  Raises:
    ValueError: if a row has more or fewer cells than there are columns.
  """
  rows: list[list[str]] = []
  lines: list[int] = []
  records = _records(path, delimiter)
  next(records)
  for row, line in records:
    if not row:
      continue
    if len(row) != len(header):
      raise ValueError(
        f'{path}: line {line} has {len(row)} cells, and there are {len(header)} columns'
      )
    rows.append(row)
    lines.append(line)
    if len(rows) == PART:
      yield Part(header, rows, lines)
      rows, lines = [], []
  if rows:
    yield Part(header, rows, lines)


def _records(path: Path, delimiter: str) -> Iterator[tuple[list[str], int]]:
  """Yields each row's cells and its line."""
  if not path.is_file():
    raise ValueError(f'{path} is no regular file')
  try:
    with path.open(encoding='utf-8-sig', newline='') as file:
      reader = csv.reader(file, delimiter=delimiter, strict=True)
      for row in reader:
        yield row, reader.line_num
  except UnicodeDecodeError as error:
    raise ValueError(f'{path}: is no UTF-8 ({error.reason}); save it as UTF-8') from error
  except csv.Error as error:
    raise ValueError(f'{path}: line {reader.line_num} is no CSV: {first_line(error)}') from error


def check_kind(column: Column, where: str) -> None:
  """Refuses a column that mixes numbers and texts by mistake, or has too many texts.

  Args:
    column: of features, over all training rows.
    where: what a message names.

  Raises:
    ValueError: naming the column and what would work.
  """
  if not column.is_text:
    return
  text, line = column.first_text
  what = f'{where}: column {column.name!r}'
  if _DECIMAL_COMMA.fullmatch(text):
    raise ValueError(f'{what} has {text!r} in line {line}: write decimals with a point')
  if column.numbers > column.texts:
    raise ValueError(
      f'{what} has the text {shown(text)} in line {line}, and most of its rows have numbers; '
      'correct it, or write all of the column as texts'
    )
  rows, values = column.texts + column.numbers, column.values
  if values is None or len(values) > max(rows / 2, 20):
    count = f'more than {MOST}' if values is None else str(len(values))
    raise ValueError(
      f'{what} has {count} different texts in {rows} rows, too many for categories; '
      f'data.ignore_columns={column.name}, leaves it out'
    )


def categories(column: Column) -> list[str]:
  """Returns the categories of a column of texts, sorted by their characters."""
  return sorted(column.values or ())


def encode(cells: list[str], known: list[str] | None) -> np.ndarray:
  """Returns the features of one column.

  Args:
    cells: of some rows.
    known: its categories; None for numbers.

  Returns:
    float64 [rows, 1], nan where a number is missing; or [rows, categories], 1 for the row's
    category and zeros where it is missing or not known.
  """
  if known is None:
    return np.array([[np.nan if is_missing(c) else float(c)] for c in cells])
  number = {category: i for i, category in enumerate(known)}
  at = np.array([number.get(cell, -1) for cell in cells])
  return (at[:, None] == np.arange(len(known))).astype(np.float64)


def as_ids(cells: list[str]) -> np.ndarray:
  """Returns names of clients or classes as integers if all are such, else as texts."""
  if all(re.fullmatch(r'-?\d{1,18}', cell, re.ASCII) for cell in cells):
    return np.array(cells, np.int64)
  return np.array(cells, str)


def no_column(path: Path, header: list[str], key: str, name: str) -> ValueError:
  """Returns the error of a column that a setting names and the file lacks."""
  return ValueError(
    f'{path}: data.{key}={name!r}: has columns {listed([*filter(None, header)], 10)}'
  )
