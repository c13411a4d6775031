"""What a table comes to, as numbers (table.json) and as Markdown (table.md)."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fedjax_syn.config import identity
from fedjax_syn.runs import metrics
from fedjax_syn.tables.cells import Table, environment
from fedjax_syn.tables.spec import AVERAGE, Column, Entry, Result, Row, measure_of

Key = tuple[str, str, int]  # row, column, seed by name
UNIMPORTANT = ('seeds', 'data.dir', 'checkpoint_every')  # change no result
SUPERSCRIPT = str.maketrans('0123456789', '⁰¹²³⁴⁵⁶⁷⁸⁹')


class Cell(NamedTuple):
  """One cell: what its seeds came to."""

  row: str
  column: str
  results: Mapping[int, Result]
  values: Mapping[int, float | None]  # of the finished seeds
  mean: float | None
  std: float | None
  paper: tuple[float, float | None] | None
  text: str


def make_cell(
  entry: Entry,
  row: Row,
  column: Column,
  results: Mapping[Key, Result],
  paper: tuple[float, float | None] | None = None,
  asked: frozenset[int] = frozenset(),
) -> Cell:
  """Puts the seeds of a cell together.

  Args:
    entry: has the measure.
    row: the cell's row.
    column: the cell's column.
    results: of all runs of the table.
    paper: mean and ± that the paper reports; None shows none.
    asked: seeds that were asked for, of which some may not be there yet.

  Returns:
    The cell.
  """
  measure = measure_of(entry, column)
  mine = {s: r for (a, b, s), r in sorted(results.items()) if (a, b) == (row.name, column.name)}
  values, lost = {}, False
  for seed, result in mine.items():
    base = results.get((measure.base, column.name, seed))
    if result.state == 'finished':
      unmeasurable = bool(measure.base) and (base is None or base.state != 'finished')
      values[seed] = None if unmeasurable else measure.value(result, base)
      lost |= unmeasurable
  numbers = [value for value in values.values() if value is not None]
  states = [result.state for result in mine.values()]
  mean = std = None
  if 'diverged' in states:
    count = f' ({states.count("diverged")} of {len(states)} seeds)' if len(states) > 1 else ''
    text = f'diverged{count}'
  elif 'failed' in states:
    reason = next(result.reason for result in mine.values() if result.state == 'failed')
    text = f'failed: {reason}'.replace('|', '\\|')
  elif numbers:
    statistics = metrics.statistics(numbers)
    mean, std = statistics['mean'], statistics['std']
    text = number(mean, std, measure.digits)
    collapsed = sum(bool(result.collapsed(seed)) for seed, result in mine.items())
    if collapsed:
      text += ' collapsed' + (f' ({collapsed} of {len(states)} seeds)' if len(states) > 1 else '')
    every = len(asked | set(mine))
    if len(numbers) < every:
      text += f' [{len(numbers)} of {every} seeds]'
  elif values:
    text = '-' if lost else measure.absent
  else:
    text = 'in another process' if 'elsewhere' in states else '-'
  if paper and text != '-':
    text += f' ({number(*paper, measure.digits)})'
  return Cell(row.name, column.name, mine, values, mean, std, paper, text)


def average(
  entry: Entry, row: Row, cells: Sequence[Cell], paper: tuple[float, float | None] | None
) -> Cell:
  """Returns the mean of a row's cells, of no run of its own; '-' if one is missing.

  Args:
    entry: has the columns.
    row: the row.
    cells: of all rows.
    paper: what the paper reports.
  """
  means = [cell.mean for cell in cells if cell.row == row.name]
  whole = len(means) == len(entry.columns) and None not in means
  mean = sum(means) / len(means) if whole else None
  text = number(mean, None, entry.measure.digits) if whole else '-'
  if whole and paper:
    text += f' ({number(*paper, entry.measure.digits)})'
  return Cell(row.name, AVERAGE.name, {}, {}, mean, None, paper, text)


def number(mean: float, std: float | None, digits: int) -> str:
  """Returns '76.61 ± 0.10', or '76.61' without a standard deviation."""
  return f'{mean:.{digits}f}' + ('' if std is None else f' ± {std:.{digits}f}')


class Content(NamedTuple):
  """All that is printed."""

  title: str
  heading: tuple[str, ...]  # lines above the table
  rows: tuple[Row, ...]
  columns: tuple[Column, ...]  # with runs; `average` has its cells too
  cells: tuple[Cell, ...]
  marks: Mapping[str, str]  # by row, the mark of its footnote
  notes: tuple[str, ...]
  environment: Mapping[str, Any]
  seconds: float


def make(
  table: Table,
  results: Mapping[Key, Result],
  selected: Sequence[Key] = (),
) -> Content:
  """Puts a table together.

  Args:
    table: the table.
    results: what its runs came to.
    selected: runs that were asked for; rows and columns of no other runs are left out.

  Returns:
    What to print.
  """
  entry, scale = table.entry, table.scale
  keys = {*results, *selected}
  rows = tuple(row for row in entry.rows if row.name in {key[0] for key in keys})
  columns = tuple(column for column in entry.columns if column.name in {key[1] for key in keys})
  show = scale.comparable and scale.name in entry.reported_at
  paper = entry.reported if show else {}
  asked = lambda *names: frozenset(seed for *cell, seed in selected if tuple(cell) == names)
  cells = tuple(
    make_cell(
      entry,
      row,
      column,
      results,
      paper.get((row.name, column.name)),
      asked(row.name, column.name),
    )
    for row in rows
    for column in columns
  )
  if entry.average:
    key = AVERAGE.name
    cells += tuple(average(entry, row, cells, paper.get((row.name, key))) for row in rows)
  marks: dict[str, str] = {}
  for row in rows:
    if row.note and row.note not in marks:
      marks[row.note] = str(len(marks) + 1).translate(SUPERSCRIPT)
  heading = [f'Scale {scale.name}. {captions(entry, columns)}']
  notes = [f'{mark} {note}' for note, mark in marks.items()]
  if scale.comparable:
    if paper:
      heading[0] += ' In parentheses: the paper.'
    heading += changes(table, rows, columns)
    notes += [*entry.notes, *chosen(columns, results), *seeds(cells)]
    notes += best_lines(entry, rows, columns, cells)
  else:
    heading.insert(0, f'**{scale.name}: not comparable**')
  if entry.remarks:
    notes += entry.remarks({k: r for k, r in results.items() if r.state == 'finished'})
  return Content(
    entry.title,
    tuple(heading),
    rows,
    columns,
    cells,
    {row.name: marks[row.note] for row in rows if row.note},
    tuple(notes),
    environment(list(results.values())),
    # Columns may show the same runs, and a run without a folder is one of those that failed.
    sum(
      {
        r.folder or k: r.summary['seconds']['total'] for k, r in results.items() if r.summary
      }.values()
    ),
  )


def captions(entry: Entry, columns: Sequence[Column]) -> str:
  """Says what the cells show, by column where columns differ."""
  titles: dict[str, list[str]] = {}
  for column in columns:
    titles.setdefault(measure_of(entry, column).caption, []).append(column.title)
  several = len(titles) > 1
  parts = [f'{", ".join(t)}: {what}' if several else _sentence(what) for what, t in titles.items()]
  return f'{"; ".join(parts)}.' if several else ''.join(parts)


def changes(table: Table, rows: Sequence[Row], columns: Sequence[Column]) -> list[str]:
  """Says which columns run at the paper's setting, and what is changed in the others."""
  by_change: dict[tuple[str, ...], list[str]] = {}
  plain = table._replace(settings=())
  for column in columns:
    found: dict[str, None] = {}
    for row in rows:
      pair = plain.configure(row, column, 0, 'paper'), table.configure(row, column, 0)
      for line in identity.diff(*pair):
        if not line.startswith((*UNIMPORTANT, 'layout.')):
          found[line] = None
    by_change.setdefault(tuple(found), []).append(column.title)
  lines = []
  for change, titles in by_change.items():
    where = '' if len(by_change) == 1 else f' ({"; ".join(titles)})'
    what = f'Changed from the paper: {"; ".join(change)}' if change else table.entry.stated
    lines.append(f'{what}{where}.')
  return lines


def chosen(columns: Sequence[Column], results: Mapping[Key, Result]) -> list[str]:
  """Names what the paper leaves open and a reader wants to know: initial weights and normalisation."""
  found: dict[str, list[str]] = {}
  for column in columns:
    told = [r.described for (_, c, _), r in results.items() if c == column.name and r.described]
    if told:
      init = told[0]['config']['model']['init']
      pixels = told[0]['dataset']['normalisation']['name']
      found.setdefault(f"initial weights '{init}', normalisation '{pixels}'", []).append(
        column.title
      )
  return [f'{what}: {"; ".join(titles)}' for what, titles in found.items()]


def seeds(cells: Sequence[Cell]) -> list[str]:
  """Says how many seeds each cell has."""
  found: dict[str, list[str]] = {}
  for cell in cells:
    if cell.values:
      found.setdefault(', '.join(map(str, cell.values)), []).append(f'{cell.row}/{cell.column}')
  common = max(found, key=lambda which: len(found[which]), default='')
  rest = [f'{which} for {", ".join(names)}' for which, names in found.items() if which != common]
  return [f'seeds: {"; ".join([common, *rest])}'] if found else []


def best_lines(
  entry: Entry, rows: Sequence[Row], columns: Sequence[Column], cells: Sequence[Cell]
) -> list[str]:
  """Returns a line for every column in which the entry's subject has a result and another row a better one."""
  titles = {row.name: row.title for row in rows}
  lines = []
  for column in columns:
    means = {c.row: c.mean for c in cells if c.column == column.name and c.mean is not None}
    tried = any(c.column == column.name and c.row == entry.subject and c.results for c in cells)
    if not means or not tried:
      continue
    measure = measure_of(entry, column)
    first = measure.best(means, key=means.get)
    if first != entry.subject and means[first] != means.get(entry.subject):
      has = lambda name: f'{means[name]:.{measure.digits}f}' if name in means else 'no number'
      lines.append(
        f'{column.title}: {titles[entry.subject]} ({has(entry.subject)}) is not the best;'
        f' {titles[first]} has {has(first)}'
      )
  return lines


def markdown(content: Content) -> str:
  """Returns the table as Markdown."""
  means = (AVERAGE,) if any(cell.column == AVERAGE.name for cell in content.cells) else ()
  columns = (*content.columns, *means)
  head = ['method', *(column.title for column in columns)]
  lines = [f'# {content.title}', '']
  for line in content.heading:
    lines += [line, '']
  lines += [f'| {" | ".join(head)} |', '|---' * len(head) + '|']
  texts = {(cell.row, cell.column): cell.text for cell in content.cells}
  for row in content.rows:
    mark = content.marks.get(row.name, '')
    line = [f'{row.title}{mark}', *(texts[row.name, column.name] for column in columns)]
    lines.append(f'| {" | ".join(line)} |')
  lines += ['', *(f'- {note}' for note in content.notes)]
  lines += [f'- machine: {machine}' for machine in content.environment['machines']]
  for versions in content.environment['versions']:
    lines.append(f'- {", ".join(f"{name} {version}" for name, version in versions.items())}')
  lines.append(f'- {content.seconds:.0f} s in all')
  return '\n'.join(lines) + '\n'


def as_json(content: Content, table: Table) -> dict[str, Any]:
  """Returns the table as JSON values."""

  def cell(c: Cell) -> dict[str, Any]:
    per_seed = {
      str(seed): {'state': r.state, 'reason': r.reason, 'value': c.values.get(seed)}
      for seed, r in c.results.items()
    }
    paper = {'paper': {'mean': c.paper[0], 'std': c.paper[1]}} if c.paper else {}
    numbers = {'mean': c.mean, 'std': c.std, **paper}
    return {'row': c.row, 'column': c.column, 'text': c.text, **numbers, 'seeds': per_seed}

  return {
    'table': table.entry.name,
    'title': content.title,
    'scale': table.scale.name,
    'comparable': table.scale.comparable,
    'measure': captions(table.entry, content.columns),
    'heading': list(content.heading),
    'cells': [cell(c) for c in content.cells],
    'notes': list(content.notes),
    **content.environment,
    'seconds': round(content.seconds, 1),
  }


def _sentence(text: str) -> str:
  return f'{text[:1].upper()}{text[1:]}.'
