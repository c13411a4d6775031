"""What a table or a figure of a paper is, as data: rows, columns, their settings by scale, what the paper reports."""

import difflib
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

Settings = Mapping[str, Any]  # dotted key of a config: value
Reported = Mapping[
  tuple[str, str], tuple[float, float]
]  # (row, column): mean and what stands after ±


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
  # (folder, seed, scale), of every finished run, see launch/after.py
  after: Callable[[pathlib.Path, int, Scale], None] | None = None
  draw: Callable[..., list[str]] | None = None  # (figure's data, folder), see launch/draw.py


def folder_of(entry: Entry, row: Row, column: Column) -> str:
  """Returns where a cell's runs lie in the work folder; tables that share a cell share the folder."""
  table, name = column.home if column.home[0] else (entry.name, column.name)
  return f'{table}/{row.name}/{name}'


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
    text: a line per row: its name, then mean and ± for every column.

  Returns:
    (mean, ±) by (row, column).

  Raises:
    ValueError: if a line has too many or too few numbers.
  """
  out = {}
  for line in text.strip().splitlines():
    row, *numbers = line.split()
    values = [float(number) for number in numbers]
    pairs = zip(values[::2], values[1::2], strict=True)
    for column, pair in zip(columns, pairs, strict=True):
      out[row, column.name] = pair
  return out
