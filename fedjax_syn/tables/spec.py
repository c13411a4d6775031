"""What a table or a figure of a paper is, as data: rows, columns, their settings by scale, what the paper reports."""

import difflib
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

Settings = Mapping[str, Any]  # dotted key of a config: value
# (row, column): mean and what stands after ±, if anything does
Reported = Mapping[tuple[str, str], tuple[float, float | None]]


class Scale(NamedTuple):
  """How large a table is run."""

  name: str
  help: str
  comparable: bool  # its numbers mean something


SCALES: Mapping[str, Scale] = {
  scale.name: scale
  for scale in (
    Scale('smoke', 'tiny nets on digits, seconds: that everything runs', comparable=False),
    Scale('cpu', 'the largest honest setting for two cores', comparable=True),
    Scale('paper', "the paper's setting", comparable=True),
  )
}


class Result(NamedTuple):
  """What one run's folder comes to."""

  state: (
    str  # 'finished', 'diverged', 'failed', 'elsewhere' (another process is at it) or 'missing'
  )
  reason: str = ''  # of a failure
  summary: Mapping[str, Any] = {}
  lines: Sequence[Mapping[str, Any]] = ()  # of metrics.jsonl
  described: Mapping[str, Any] = {}  # config.json
  folder: pathlib.Path | None = None

  def collapsed(self, seed: int) -> int | None:
    """Returns the round from which on the last model gave all test rows one class, or None."""
    return self.summary.get('status', {}).get(str(seed), {}).get('collapsed_round')


class Measure(NamedTuple):
  """What a cell shows."""

  caption: str
  # (a finished run, the base row's with the same column and seed or None) -> number or None
  value: Callable[[Result, Result | None], float | None]
  axis: str  # the same in a word or two, beside a figure
  digits: int = 2
  best: Callable[..., float] = max
  base: str = ''  # the row that `value` compares with
  absent: str = '-'  # of a finished run without a number


class Row(NamedTuple):
  """One method."""

  name: str  # on the command line and in folders; the algorithm's word unless that is given
  title: str
  settings: Settings = {}
  by_scale: Mapping[str, Settings] = {}
  tuned: Mapping[
    str, Settings
  ] = {}  # by column group ('' is all), chosen on held-out training rows
  note: str = ''
  word: str = ''
  # The row of whose run of the same column and seed this one begins, where that run's program changes first;
  # 'table:row' is a row of another table. See fedjax_syn/tables/warm_start.py.
  origin: str = ''

  @property
  def algorithm(self) -> str:
    """The config's `algorithm`."""
    return self.word or self.name


class Column(NamedTuple):
  """One problem."""

  name: str
  title: str
  config: str  # a file of configs/, without .py
  settings: Settings = {}
  by_scale: Mapping[str, Settings] = {}
  group: str = ''  # columns that share tuned settings
  home: tuple[str, str] = ('', '')  # the table and column whose runs these are; else its own
  measure: Measure | None = None  # what its cells show; else the entry's


class Entry(NamedTuple):
  """One table or figure."""

  name: str  # 'dynafed/table1'
  title: str
  rows: tuple[Row, ...]
  columns: tuple[Column, ...]
  measure: Measure
  reported: Reported = {}
  reported_at: tuple[str, ...] = ('cpu', 'paper')  # scales at which the paper's figures are shown
  subject: str = ''  # the row of which it is said where it is not the best
  # Parts of an algorithm's word that leave no trace of their own in the metrics.
  without_phase: frozenset[str] = frozenset()
  notes: tuple[str, ...] = ()
  # Said where nothing is changed from the scale 'paper'.
  stated: str = "The paper's setting, as far as it states it"
  # (finished runs by row, column and seed) -> notes that depend on them
  remarks: Callable[[Mapping[tuple[str, str, int], Result]], Sequence[str]] | None = None
  average: bool = False  # a last column: the mean of a row's cells, where none is missing
  # (folder, seed, scale), of every finished run, see fedjax_syn/papers/post_run.py
  after: Callable[[pathlib.Path, int, Scale], None] | None = None
  draw: Callable[..., list[str]] | None = (
    None  # (figure's data, folder), see fedjax_syn/tables/draw.py
  )


AVERAGE = Column('average', 'Avg.', '')  # of no run of its own


def home_of(entry: Entry, column: Column) -> tuple[str, str]:
  """Returns the table and the column that a column's runs belong to."""
  return column.home if column.home[0] else (entry.name, column.name)


def folder_of(entry: Entry, row: Row, column: Column) -> str:
  """Returns where a cell's runs lie in the work folder; tables that share a cell share the folder."""
  table, name = home_of(entry, column)
  return f'{table}/{row.name}/{name}'


def measure_of(entry: Entry, column: Column) -> Measure:
  """Returns what a column shows."""
  return column.measure or entry.measure


def shared(column: Column, table: str, name: str = '', title: str = '') -> Column:
  """Returns a column of another table with the same runs."""
  return column._replace(
    name=name or column.name, title=title or column.title, home=(table, column.name)
  )


def tuned(table: Mapping[str, Mapping[str, Settings]], word: str) -> dict[str, dict[str, Any]]:
  """Returns a method's tuned settings by column group: a composition has those of its parts, then its own.

  Args:
    table: by method, by column group ('' is all).
    word: the algorithm's word; outer parts win.
  """
  out: dict[str, dict[str, Any]] = {}
  for part in dict.fromkeys([*word.split('+'), word]):
    for group, settings in table.get(part, {}).items():
      out[group] = {**out.get(group, {}), **settings}
  return out


def settings_of(row: Row, column: Column, scale: Scale) -> dict[str, Any]:
  """Returns what a cell changes in its column's config; later sources win: column, scale, row, tuning, its scale."""
  tuned = row.tuned if scale.comparable else {}
  return {
    'algorithm': row.algorithm,
    'compare': '',
    **column.settings,
    **column.by_scale.get(scale.name, {}),
    **row.settings,
    **tuned.get('', {}),
    **tuned.get(column.group, {}),
    **row.by_scale.get(scale.name, {}),
  }


def select(items: Sequence[Any], names: Sequence[str], flag: str) -> tuple[Any, ...]:
  """Returns the named rows or columns in the order of the names, all of them if there are none.

  Args:
    items: have a `name`.
    names: of some of them.
    flag: for the refusal, '--rows'.

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


def reported(columns: Sequence[Column], text: str) -> Reported:
  """Reads a paper's figures.

  Args:
    columns: in the paper's order.
    text: a line per row: its name, then for every column the mean, or for every column mean and ±; '-' stands
      for what the paper leaves out.

  Returns:
    (mean, ±) by (row, column).

  Raises:
    ValueError: if a line has too many or too few numbers.
  """
  out = {}
  for line in text.strip().splitlines():
    row, *numbers = line.split()
    values = [None if number == '-' else float(number) for number in numbers]
    alone = len(values) == len(columns)
    pairs = zip(
      *(values, [None] * len(values)) if alone else (values[::2], values[1::2]), strict=True
    )
    for column, pair in zip(columns, pairs, strict=True):
      if pair[0] is not None:
        out[row, column.name] = pair
  return out
