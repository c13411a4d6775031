"""What a table leaves in its folder: table.md, table.json and pictures."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fedjax_syn.core import paths
from fedjax_syn.tables import content as content_lib
from fedjax_syn.tables import draw
from fedjax_syn.tables.cells import Table
from fedjax_syn.tables.content import Cell, Content
from fedjax_syn.tables.spec import AVERAGE, Key, Result


def write(table: Table, results: Mapping[Key, Result], selected: Sequence[Key]) -> str:
  """Writes a table's files; two calls may write the same ones at the same time.

  Args:
    table: the table.
    results: of its runs.
    selected: the runs that were asked for.

  Returns:
    The Markdown, and the paths of the pictures.
  """
  content = content_lib.make(table, results, selected)
  folder = table.workdir / table.entry.name
  folder.mkdir(parents=True, exist_ok=True)
  text = markdown(content)
  values = json.dumps(as_json(content, table), indent=1) + '\n'
  paths.write_whole(folder / 'table.md', text.encode())
  paths.write_whole(folder / 'table.json', values.encode())
  finished = {key: result for key, result in results.items() if result.state == 'finished'}
  if (table.entry.draw or table.entry.pictures) and finished:
    heading = content.title if table.scale.comparable else f'{table.scale.name}: not comparable'
    numbers = {(c.row, c.column): (c.mean, c.std or 0.0) for c in content.cells if c.mean}
    drawing = draw.Drawing(table.entry, content.rows, content.columns, finished, numbers, heading)
    text += ''.join(f'- {folder / name}\n' for name in draw.write(drawing, folder))
  return text


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
    title = row.title + content.marks.get(row.name, '')
    cells = (texts[row.name, column.name] for column in columns)
    lines.append(f'| {" | ".join([title, *cells])} |')
  lines += ['', *(f'- {note}' for note in content.notes)]
  lines += [f'- machine: {machine}' for machine in content.environment['machines']]
  for versions in content.environment['versions']:
    lines.append(f'- {", ".join(f"{name} {version}" for name, version in versions.items())}')
  lines.append(f'- {content.seconds:.0f} s in all')
  return '\n'.join(lines) + '\n'


def as_json(content: Content, table: Table) -> dict[str, Any]:
  """Returns the table as JSON values."""
  return {
    'table': table.entry.name,
    'title': content.title,
    'scale': table.scale.name,
    'comparable': table.scale.comparable,
    'measure': content_lib.captions(table.entry, content.columns),
    'heading': list(content.heading),
    'cells': [_cell(c) for c in content.cells],
    'notes': list(content.notes),
    **content.environment,
    'seconds': round(content.seconds, 1),
  }


def _cell(c: Cell) -> dict[str, Any]:
  per_seed = {
    str(seed): {'state': r.state, 'reason': r.reason, 'value': c.values.get(seed)}
    for seed, r in c.results.items()
  }
  paper = {'paper': {'mean': c.paper[0], 'std': c.paper[1]}} if c.paper else {}
  numbers = {'mean': c.mean, 'std': c.std, **paper}
  return {'row': c.row, 'column': c.column, 'text': c.text, **numbers, 'seeds': per_seed}
