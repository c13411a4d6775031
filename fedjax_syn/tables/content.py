"""What a table says: numbers, texts of cells, heading and notes."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from fedjax_syn.config import identity
from fedjax_syn.runs import metrics
from fedjax_syn.tables.cells import Table, environment
from fedjax_syn.tables.spec import AVERAGE, Column, Entry, Key, Number, Result, Row, measure_of

UNIMPORTANT = ('seeds', 'data.dir', 'checkpoint_every', 'keep_checkpoints', 'layout.')
"""Settings that change no result."""
SUPERSCRIPT = str.maketrans('0123456789', '⁰¹²³⁴⁵⁶⁷⁸⁹')
Group = TypeVar('Group', bound=Hashable)


class Cell(NamedTuple):
  """One cell."""

  row: str
  column: str
  results: Mapping[int, Result]
  """By seed."""
  values: Mapping[int, float | None]
  """Of the finished seeds."""
  mean: float | None
  std: float | None
  paper: Number | None
  text: str


def make_cell(
  entry: Entry,
  row: Row,
  column: Column,
  results: Mapping[Key, Result],
  paper: Number | None = None,
  asked: frozenset[int] = frozenset(),
) -> Cell:
  """Returns a cell of some seeds.

  Args:
    entry: has the measure.
    row: the cell's row.
    column: the cell's column.
    results: of all runs of the table.
    paper: the paper's number; None shows none.
    asked: seeds that were asked for, of which some may not be there yet.
  """
  measure = measure_of(entry, column)
  mine = {s: r for (a, b, s), r in sorted(results.items()) if (a, b) == (row.name, column.name)}
  values: dict[int, float | None] = {}
  lacks_base = False
  for seed, result in mine.items():
    if result.state == 'finished':
      base = results.get((measure.base, column.name, seed))
      unmeasurable = bool(measure.base) and (base is None or base.state != 'finished')
      values[seed] = None if unmeasurable else measure.value(result, base)
      lacks_base |= unmeasurable
  numbers = [value for value in values.values() if value is not None]
  states = [result.state for result in mine.values()]
  of_seeds = lambda count: f' ({count} of {len(states)} seeds)' if len(states) > 1 else ''
  mean = std = None
  if 'diverged' in states:
    text = f'diverged{of_seeds(states.count("diverged"))}'
  elif 'failed' in states:
    reason = next(result.reason for result in mine.values() if result.state == 'failed')
    text = f'failed: {reason}'.replace('|', '\\|')
  elif numbers:
    statistics = metrics.statistics(numbers)
    mean, std = statistics['mean'], statistics['std']
    text = number(mean, std, measure.digits)
    if collapsed := sum(bool(result.collapsed(seed)) for seed, result in mine.items()):
      text += f' collapsed{of_seeds(collapsed)}'
    if len(numbers) < (every := len(asked | set(mine))):
      text += f' [{len(numbers)} of {every} seeds]'
  elif values:
    text = '-' if lacks_base else measure.absent
  else:
    text = 'in another process' if 'elsewhere' in states else '-'
  if paper and text != '-':
    text += f' ({number(*paper, measure.digits)})'
  return Cell(row.name, column.name, mine, values, mean, std, paper, text)


def average(entry: Entry, row: Row, cells: Iterable[Cell], paper: Number | None) -> Cell:
  """Returns the mean of a row's cells, of no run of its own; '-' if one is missing.

  Args:
    entry: has the columns.
    row: the row.
    cells: of all rows.
    paper: the paper's number.
  """
  means = [cell.mean for cell in cells if cell.row == row.name and cell.mean is not None]
  mean, text = None, '-'
  if len(means) == len(entry.columns):
    mean = sum(means) / len(means)
    text = number(mean, None, entry.measure.digits)
    text += f' ({number(*paper, entry.measure.digits)})' if paper else ''
  return Cell(row.name, AVERAGE.name, {}, {}, mean, None, paper, text)


def number(mean: float, std: float | None, digits: int) -> str:
  """Returns '76.61 ± 0.10', or '76.61' without a standard deviation."""
  return f'{mean:.{digits}f}' + ('' if std is None else f' ± {std:.{digits}f}')


class Content(NamedTuple):
  """All that is printed."""

  title: str
  heading: tuple[str, ...]
  """Lines above the table."""
  rows: tuple[Row, ...]
  columns: tuple[Column, ...]
  """With runs; `average` has its cells too."""
  cells: tuple[Cell, ...]
  marks: Mapping[str, str]
  """By row, the mark of its footnote."""
  notes: tuple[str, ...]
  environment: Mapping[str, Any]
  seconds: float


def make(table: Table, results: Mapping[Key, Result], selected: Sequence[Key] = ()) -> Content:
  """Returns the content of a table.

  Args:
    table: the table.
    results: of its runs.
    selected: runs that were asked for; rows and columns of no other runs are left out.
  """
  entry, scale = table.entry, table.scale
  keys = {*results, *selected}
  rows = tuple(row for row in entry.rows if row.name in {key[0] for key in keys})
  columns = tuple(column for column in entry.columns if column.name in {key[1] for key in keys})
  paper = entry.reported if scale.comparable and scale.name in entry.reported_at else {}

  def cell(row: Row, column: Column) -> Cell:
    names = row.name, column.name
    asked = frozenset(seed for *others, seed in selected if tuple(others) == names)
    return make_cell(entry, row, column, results, paper.get(names), asked)

  cells = tuple(cell(row, column) for row in rows for column in columns)
  if entry.average:
    of_paper = {row.name: paper.get((row.name, AVERAGE.name)) for row in rows}
    cells += tuple(average(entry, row, cells, of_paper[row.name]) for row in rows)
  footnotes = dict.fromkeys(row.note for row in rows if row.note)
  marks = {note: f'{i}'.translate(SUPERSCRIPT) for i, note in enumerate(footnotes, 1)}
  heading = [f'Scale {scale.name}. {captions(entry, columns)}']
  notes = [f'{mark} {note}' for note, mark in marks.items()]
  if scale.comparable:
    if paper:
      heading[0] += ' In parentheses: the paper.'
    heading += changes(table, rows, columns)
    notes += [*entry.notes, *initial_weights(columns, results), *seeds(cells)]
    notes += better_rows(entry, rows, columns, cells)
  else:
    heading.insert(0, f'**{scale.name}: not comparable**')
  if entry.remarks:
    notes += entry.remarks({k: r for k, r in results.items() if r.state == 'finished'})
  # Columns may show the same finished runs.
  seconds = {
    (r.folder if r.described else k): r.summary['seconds']['total']
    for k, r in results.items()
    if r.summary
  }
  of_rows = {row.name: marks[row.note] for row in rows if row.note}
  return Content(
    entry.title,
    tuple(heading),
    rows,
    columns,
    cells,
    of_rows,
    tuple(notes),
    environment(results.values()),
    sum(seconds.values()),
  )


def _grouped(pairs: Iterable[tuple[Group, str]]) -> dict[Group, list[str]]:
  """Returns the names of each group, in order."""
  groups: dict[Group, list[str]] = {}
  for group, name in pairs:
    groups.setdefault(group, []).append(name)
  return groups


def captions(entry: Entry, columns: Iterable[Column]) -> str:
  """States what the cells show, by column where columns differ."""
  titles = _grouped((measure_of(entry, column).caption, column.title) for column in columns)
  if len(titles) > 1:
    return '; '.join(f'{", ".join(names)}: {what}' for what, names in titles.items()) + '.'
  return ''.join(f'{what[:1].upper()}{what[1:]}.' for what in titles)


def changes(table: Table, rows: Iterable[Row], columns: Iterable[Column]) -> list[str]:
  """States which columns run at the paper's setting, and what is changed in the others."""
  plain, rows = table._replace(settings=()), tuple(rows)

  def changed(column: Column) -> tuple[str, ...]:
    pairs = ((plain.configure(r, column, 0, 'paper'), table.configure(r, column, 0)) for r in rows)
    lines = dict.fromkeys(line for pair in pairs for line in identity.diff(*pair))
    return tuple(line for line in lines if not line.startswith(UNIMPORTANT))

  by_change = _grouped((changed(column), column.title) for column in columns)
  lines = []
  for change, titles in by_change.items():
    where = '' if len(by_change) == 1 else f' ({"; ".join(titles)})'
    what = f'Changed from the paper: {"; ".join(change)}' if change else table.entry.stated
    lines.append(f'{what}{where}.')
  return lines


def initial_weights(columns: Iterable[Column], results: Mapping[Key, Result]) -> list[str]:
  """Names what the papers leave open: initial weights and normalisation."""
  pairs = []
  for column in columns:
    runs = (r.described for (_, c, _), r in results.items() if c == column.name and r.described)
    if described := next(runs, None):
      init = described['config']['model']['init']
      pixels = described['dataset']['normalisation']['name']
      pairs.append((f"initial weights '{init}', normalisation '{pixels}'", column.title))
  return [f'{what}: {"; ".join(titles)}' for what, titles in _grouped(pairs).items()]


def seeds(cells: Iterable[Cell]) -> list[str]:
  """States how many seeds each cell has."""
  pairs = ((', '.join(map(str, c.values)), f'{c.row}/{c.column}') for c in cells if c.values)
  groups = _grouped(pairs)
  common = max(groups, key=lambda which: len(groups[which]), default='')
  rest = [f'{which} for {", ".join(names)}' for which, names in groups.items() if which != common]
  return [f'seeds: {"; ".join([common, *rest])}'] if groups else []


def better_rows(
  entry: Entry, rows: Iterable[Row], columns: Iterable[Column], cells: Sequence[Cell]
) -> list[str]:
  """Returns a line for every column in which another row is better than the proposed method."""
  titles = {row.name: row.title for row in rows}
  lines = []
  for column in columns:
    means = {c.row: c.mean for c in cells if c.column == column.name and c.mean is not None}
    tried = any(c.column == column.name and c.row == entry.proposed and c.results for c in cells)
    if not means or not tried:
      continue
    measure = measure_of(entry, column)
    first = measure.best(means, key=means.__getitem__)
    if first != entry.proposed and means[first] != means.get(entry.proposed):
      has = lambda name: f'{means[name]:.{measure.digits}f}' if name in means else 'no number'
      lines.append(
        f'{column.title}: {titles[entry.proposed]} ({has(entry.proposed)}) is not the best;'
        f' {titles[first]} has {has(first)}'
      )
  return lines
