"""A table or a figure of a paper as data: rows, columns, settings by scale, the paper's numbers."""

import difflib
import pathlib
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
  from matplotlib.figure import Figure

  from fedjax_syn.tables.draw import Drawing

Settings = Mapping[str, Any]
"""Values by dotted key of a config."""
Number = tuple[float, float | None]
"""A number of a paper: the mean, and what stands after ± if anything does."""
Reported = Mapping[tuple[str, str], Number]
"""A paper's numbers by row and column."""
Key = tuple[str, str, int]
"""A run of a table: names of row and column, and the seed."""


class Scale(NamedTuple):
  """How large a table is run."""

  name: str
  comparable: bool
  """Its numbers mean something."""


SCALES: Mapping[str, Scale] = {
  'smoke': Scale('smoke', comparable=False),
  'cpu': Scale('cpu', comparable=True),
  'paper': Scale('paper', comparable=True),
}


class Result(NamedTuple):
  """What one run's folder says."""

  state: str
  """'finished', 'diverged', 'failed', 'elsewhere' (another process runs it) or 'missing'."""
  reason: str = ''
  """Of a failure."""
  summary: Mapping[str, Any] = {}
  lines: Sequence[dict[str, Any]] = ()
  """Of metrics.jsonl."""
  described: Mapping[str, Any] = {}
  """The content of config.json."""
  folder: pathlib.Path = pathlib.Path()

  def collapsed(self, seed: int) -> int | None:
    """Returns the round from which on the last model gave all test rows one class, or None."""
    return self.summary.get('status', {}).get(str(seed), {}).get('collapsed_round')


def failure(error: Exception, summary: Mapping[str, Any] | None = None) -> Result:
  """Returns the result of a run that an error ended, in one line of moderate length."""
  reason = textwrap.shorten(f'{type(error).__name__}: {error}', 160)
  return Result('failed', reason, summary or {})


class TableMeasure(NamedTuple):
  """What a cell shows."""

  caption: str
  value: Callable[[Result, Result | None], float | None]
  """Of a finished run, and the base row's run with the same column and seed or None."""
  axis: str
  """The same in a word or two, beside a figure."""
  digits: int = 2
  best: Callable[..., Any] = max
  base: str = ''
  """The row that `value` compares with."""
  absent: str = '-'
  """Of a finished run without a number."""


class PostRun(NamedTuple):
  """What is computed once of every finished run besides its metrics."""

  file: str
  """In the run's folder; if it is there and whole, nothing is computed."""
  compute: Callable[[pathlib.Path, int, Scale], None]
  """Takes the run's folder, the seed and the scale, and writes the file."""


class Row(NamedTuple):
  """One method."""

  name: str
  """On the command line and in folders."""
  title: str
  settings: Settings = {}
  by_scale: Mapping[str, Settings] = {}
  tuned: Mapping[str, Settings] = {}
  """By column group ('' is all), chosen on held-out training rows."""
  note: str = ''
  algorithm: str = ''
  """Of the config; '' is the row's name."""
  warm_start_from: str = ''
  """The row in whose run of the same column and seed this one begins, where that run's program
  changes first; 'table:row' is a row of another table. See `tables.warm_start`."""


class Column(NamedTuple):
  """One problem."""

  name: str
  title: str
  config: str
  """A file of configs/, without .py."""
  settings: Settings = {}
  by_scale: Mapping[str, Settings] = {}
  group: str = ''
  """Columns of a group share tuned settings."""
  shares_runs_with: tuple[str, str] = ('', '')
  """The table and the column whose runs these are; without them its own."""
  measure: TableMeasure | None = None
  """What its cells show; else the entry's."""


class Entry(NamedTuple):
  """One table or figure."""

  name: str
  """As in 'dynafed/table1'."""
  title: str
  rows: tuple[Row, ...]
  columns: tuple[Column, ...]
  measure: TableMeasure
  reported: Reported = {}
  reported_at: tuple[str, ...] = ('cpu', 'paper')
  """Scales at which the paper's numbers are shown."""
  proposed: str = ''
  """The row of the paper's own method: a note says where it is not the best."""
  without_metrics: frozenset[str] = frozenset({'fedavg'})
  """Methods that log no number of their own."""
  notes: tuple[str, ...] = ()
  stated: str = "The paper's setting, as far as it states it"
  """The heading where nothing is changed from the scale 'paper'."""
  remarks: Callable[[Mapping[Key, Result]], Sequence[str]] | None = None
  """Returns notes that depend on the finished runs."""
  average: bool = False
  """Whether a last column has the mean of a row's cells, where none is missing."""
  post_run: PostRun | None = None
  draw: 'Callable[[Drawing], Figure] | None' = None
  """See `tables.draw`."""
  pictures: str = ''
  """A picture in every run's folder that is copied instead."""


AVERAGE = Column('average', 'Avg.', '')
"""The column of means, of no run of its own."""


def owner_of(entry: Entry, column: Column) -> tuple[str, str]:
  """Returns the table and the column that a column's runs belong to."""
  return column.shares_runs_with if column.shares_runs_with[0] else (entry.name, column.name)


def folder_of(entry: Entry, row: Row, column: Column) -> str:
  """Returns a cell's folder in the work folder; tables that share a cell share the folder."""
  table, name = owner_of(entry, column)
  return f'{table}/{row.name}/{name}'


def measure_of(entry: Entry, column: Column) -> TableMeasure:
  """Returns what a column shows."""
  return column.measure or entry.measure


def shared(column: Column, table: str, name: str = '', title: str = '') -> Column:
  """Returns a column of another table with the same runs."""
  return column._replace(
    name=name or column.name, title=title or column.title, shares_runs_with=(table, column.name)
  )


def block(name: str, /, **fields: Any) -> dict[str, Any]:
  """Returns settings of a block of a config: of ('data', alpha=1.0) {'data.alpha': 1.0}."""
  return {f'{name}.{field}': value for field, value in fields.items()}


def tuned(table: Mapping[str, Mapping[str, Settings]], algorithm: str) -> dict[str, dict[str, Any]]:
  """Returns an algorithm's tuned settings by column group: those of its parts, then its own.

  Args:
    table: by method, by column group ('' is all).
    algorithm: of the config; outer parts win.
  """
  out: dict[str, dict[str, Any]] = {}
  for part in dict.fromkeys([*algorithm.split('+'), algorithm]):
    for group, settings in table.get(part, {}).items():
      out[group] = {**out.get(group, {}), **settings}
  return out


def settings_of(row: Row, column: Column, scale: Scale) -> dict[str, Any]:
  """Returns what a cell changes in its column's config.

  Later sources win: the column, its scale, the row, its tuned settings, its scale.
  """
  tuned = row.tuned if scale.comparable else {}
  return {
    'algorithm': row.algorithm or row.name,
    'compare': '',
    **column.settings,
    **column.by_scale.get(scale.name, {}),
    **row.settings,
    **tuned.get('', {}),
    **tuned.get(column.group, {}),
    **row.by_scale.get(scale.name, {}),
  }


Named = TypeVar('Named', Row, Column)


def select(items: Sequence[Named], names: Sequence[str], flag: str) -> tuple[Named, ...]:
  """Returns the named rows or columns in the order of the names, all of them without names.

  Args:
    items: rows or columns.
    names: of some of them.
    flag: for the message, '--rows'.

  Raises:
    ValueError: if a name is unknown or repeated.
  """
  known = {item.name: item for item in items}
  for position, name in enumerate(names):
    if name not in known:
      raise ValueError(f'{flag}={name}: unknown; known: {", ".join(known)}')
    if name in names[:position]:
      raise ValueError(f'{flag}={name}: is named twice')
  return tuple(known[name] for name in names) if names else tuple(items)


def find(entries: Mapping[str, Entry], name: str) -> Entry:
  """Returns an entry by its name.

  Raises:
    ValueError: if there is none, naming the nearest.
  """
  if name not in entries:
    near = difflib.get_close_matches(name, entries, n=3) or entries
    raise ValueError(f'--table={name}: unknown; {", ".join(near)} (see --list)')
  return entries[name]


def reported(columns: Sequence[Column], text: str) -> dict[tuple[str, str], Number]:
  """Reads a paper's numbers.

  Args:
    columns: in the paper's order.
    text: a line per row: its name, then for every column the mean, or for every column mean and ±;
      '-' is what the paper leaves out.

  Returns:
    (mean, ±) by (row, column).

  Raises:
    ValueError: if a line has too many or too few numbers.
  """
  out: dict[tuple[str, str], Number] = {}
  for line in text.strip().splitlines():
    row, *numbers = line.split()
    values = [None if number == '-' else float(number) for number in numbers]
    if len(values) == len(columns):
      values = [part for mean in values for part in (mean, None)]
    pairs = zip(values[::2], values[1::2], strict=True)
    for column, (mean, deviation) in zip(columns, pairs, strict=True):
      if mean is not None:
        out[row, column.name] = mean, deviation
  return out
