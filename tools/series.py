"""Runs a series of experiments whose finished cells are small files, and shows them.

  python -m tools.series RESULTS [--data_dir=D] [--work=W] [--only=TEXT] [--limit=SECONDS] [--plan]
  python -m tools.series RESULTS --show

  RESULTS     a folder with series.toml, under results/
  --data_dir  where the data lie; it is not part of a command that is written down
  --work      the folder of runs; runs/series/NAME
  --only      cells whose name contains the text
  --limit     begins no cell after so many seconds
  --plan      prints the cells that are left, and their commands
  --show      writes RESULTS/table.md and RESULTS/gain.svg

series.toml says what is run: `base`, settings of all runs; `axis` and `values`, the columns;
`methods`, each with a grid, and `settings` of its own. For each method and value one sweep tries
the grid on held-out training rows (`tune`), and one run trains what it chose, on all of them
(`test`). A cell is written to RESULTS/<method>@<value>.tune.json or .test.json with its command,
its commit and its figures; a cell with a file is finished. The same command continues.
"""

import itertools
import json
import pathlib
import platform
import shlex
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from absl import app, flags

from fedjax_syn.core import exit_status
from fedjax_syn.plotting import canvas, style

ROOT = pathlib.Path(__file__).parents[1]
DATA_DIR = flags.DEFINE_string('data_dir', '', 'where the data lie')
WORK = flags.DEFINE_string('work', '', 'the folder of runs')
ONLY = flags.DEFINE_string('only', '', 'cells whose name contains the text')
LIMIT = flags.DEFINE_float('limit', float('inf'), 'begins no cell after so many seconds')
PLAN = flags.DEFINE_bool('plan', False, 'prints what is left')
SHOW = flags.DEFINE_bool('show', False, 'writes table.md and gain.svg')
Json = dict[str, Any]


class Cell(NamedTuple):
  """One sweep or one run."""

  method: str
  value: str
  kind: str  # 'tune' or 'test'

  @property
  def name(self) -> str:
    """As its file is called."""
    return f'{self.method}@{self.value}.{self.kind}'


class Series(NamedTuple):
  """A folder of results and what its series.toml says."""

  folder: pathlib.Path
  spec: Json

  def cells(self) -> Iterator[Cell]:
    """All cells, in the order in which they are run: a sweep, then its test."""
    pairs = itertools.product(self.spec['values'], self.spec['methods'])
    return (Cell(method, value, kind) for value, method in pairs for kind in ('tune', 'test'))

  def result(self, cell: Cell) -> Json | None:
    """Returns a finished cell's file, or None."""
    path = self.folder / f'{cell.name}.json'
    return json.loads(path.read_text()) if path.exists() else None

  def command(self, cell: Cell) -> list[str] | None:
    """Returns a cell's command line; None for a test whose sweep is not finished."""
    method = self.spec['methods'][cell.method]
    own = [f'--config.algorithm={cell.method}', *method.get('settings', ())]
    own.append(f'--config.{self.spec["axis"]}={cell.value}')
    words = [*self.spec['base'], *own, *self.spec[cell.kind]]
    if cell.kind == 'tune':
      grid = {key: text for key, text in method.items() if key != 'settings'}
      tries = [word for key, text in grid.items() for word in ('--grid', f'{key}={text}')]
      return ['python', 'launch/sweep.py', *words, *tries]
    tuned = self.result(cell._replace(kind='tune'))
    if tuned is None:
      return None
    chosen = [f'--config.{key}={text}' for key, text in best(tuned)['values'].items()]
    return ['python', 'launch/main.py', *words, *chosen]


def load(folder: pathlib.Path) -> Series:
  """Reads RESULTS/series.toml."""
  return Series(folder, tomllib.loads((folder / 'series.toml').read_text()))


def best(tuned: Json) -> Json:
  """Returns the cell of a sweep with the highest mean on held-out rows, the first of equals."""
  return max(tuned['cells'], key=lambda cell: cell['held_out'] or 0)


def run(series: Series, cell: Cell, work: pathlib.Path) -> int:
  """Runs a cell and writes its file; returns the exit status of its command."""
  command = series.command(cell)
  if command is None:  # its sweep was refused or diverged
    return exit_status.REFUSED
  folder = work / cell.name
  words = [sys.executable, *command[1:], f'--workdir={folder}']
  words += [f'--config.data.dir={DATA_DIR.value}'] if DATA_DIR.value else []
  began = time.perf_counter()
  status = subprocess.run(words, cwd=ROOT, check=False, stdout=subprocess.DEVNULL).returncode
  if status == exit_status.FINISHED:
    commit = subprocess.run(
      ('git', 'rev-parse', '--short', 'HEAD'), cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()
    head = {'command': shlex.join(command), 'commit': commit, 'machine': platform.machine()}
    head['seconds'] = round(time.perf_counter() - began)
    figures = tuned_figures(folder) if cell.kind == 'tune' else test_figures(folder)
    text = json.dumps(head | figures, indent=1)
    (series.folder / f'{cell.name}.json').write_text(f'{text}\n')
  return status


def tuned_figures(folder: pathlib.Path) -> Json:
  """Returns the tries of a sweep."""
  cells = json.loads((folder / 'sweep.json').read_text())['cells']
  return {'cells': [{'values': c['values'], 'held_out': c['mean']} for c in cells]}


def test_figures(folder: pathlib.Path) -> Json:
  """Returns a run's test accuracy by seed, its bytes, seconds and curves."""
  summary = json.loads((folder / 'summary.json').read_text())
  figures = {key: summary[key] for key in ('test_accuracy', 'bytes_up', 'bytes_down')}
  figures['run_seconds'] = summary['seconds']
  lines = [json.loads(line) for line in (folder / 'metrics.jsonl').read_text().splitlines()]
  curves: dict[str, list[float]] = {}
  for line in lines:
    if 'test_accuracy' in line:
      curves.setdefault(str(line['seed']), []).append(round(line['test_accuracy'], 4))
  return figures | {'curves': curves}


def table(series: Series) -> str:
  """Returns the finished cells as Markdown: accuracy with the gain over the reference, tries."""
  spec, values = series.spec, series.spec['values']
  head = ['method', *(f'{spec["axis"].split(".")[-1]} {value}' for value in values)]
  rows = [head, ['---'] * len(head)]
  chosen = [head, ['---'] * len(head)]
  for method in spec['methods']:
    name = style.method_name(method)
    accuracy = [_accuracy(series, method, value) for value in values]
    rows.append([name, *accuracy])
    chosen.append([name, *(_chosen(series, method, value) for value in values)])
  lines = lambda rows: '\n'.join('| ' + ' | '.join(row) + ' |' for row in rows)
  left = sum(series.result(cell) is None for cell in series.cells())
  note = f'\n{left} cells are not finished.\n' if left else ''
  return f'{lines(rows)}\n{note}\nChosen on held-out rows (accuracy there):\n\n{lines(chosen)}\n'


def _score(series: Series, method: str, value: str) -> Json | None:
  result = series.result(Cell(method, value, 'test'))
  return result and result['test_accuracy']['mean_last_5']


def _gain(series: Series, method: str, value: str) -> float | None:
  """Percentage points over the reference method."""
  own, other = _score(series, method, value), _score(series, series.spec['reference'], value)
  return 100 * (own['mean'] - other['mean']) if own and other else None


def _accuracy(series: Series, method: str, value: str) -> str:
  score, gain = _score(series, method, value), _gain(series, method, value)
  if not score:
    return ''
  std = '' if score['std'] is None else f' ± {100 * score["std"]:.2f}'
  more = '' if gain is None or method == series.spec['reference'] else f' ({gain:+.1f})'
  return f'{100 * score["mean"]:.2f}{std}{more}'


def _chosen(series: Series, method: str, value: str) -> str:
  tuned = series.result(Cell(method, value, 'tune'))
  if not tuned:
    return ''
  cell = best(tuned)
  values = ', '.join(f'{key.split(".")[-1]} {text}' for key, text in cell['values'].items())
  return f'{values} ({100 * cell["held_out"]:.2f})'


def draw(series: Series, path: pathlib.Path) -> None:
  """Draws each method's gain over the reference against the axis."""
  figure, (axes,) = canvas.begin(6, 4)
  methods = list(series.spec['methods'])
  for method, line in zip(methods, style.styles(methods), strict=True):
    pairs = [(float(v), _gain(series, method, v)) for v in series.spec['values']]
    pairs = [(x, y) for x, y in pairs if y is not None]
    if pairs:
      axes.plot(*zip(*pairs, strict=True), marker='.', label=style.method_name(method), **line.line)
  axes.set_xscale('log')
  axes.set_xlabel(series.spec['axis'].split('.')[-1])
  reference = style.method_name(series.spec['reference'])
  axes.set_ylabel(f'test accuracy, points above {reference}')
  canvas.finish(figure, path, series.spec['title'])


def main(argv: Sequence[str]) -> int:
  """Runs, plans or shows a series."""
  series = load(pathlib.Path(argv[1]))
  if SHOW.value:
    (series.folder / 'table.md').write_text(table(series))
    draw(series, series.folder / 'gain.svg')
    return exit_status.FINISHED
  work = pathlib.Path(WORK.value or ROOT / 'runs/series' / series.folder.resolve().name)
  began, failed = time.perf_counter(), 0
  for cell in series.cells():
    if ONLY.value not in cell.name or series.result(cell) is not None:
      continue
    if PLAN.value:
      command = series.command(cell)
      print(cell.name, shlex.join(command) if command else 'after its sweep', sep=': ')
      continue
    if time.perf_counter() - began > LIMIT.value:
      break
    print(cell.name, flush=True)
    if status := run(series, cell, work.resolve()):
      print(f'{cell.name}: exit status {status}', file=sys.stderr)
      if status == exit_status.INTERRUPTED:
        return status
      failed += 1
  return exit_status.DIVERGED if failed else exit_status.FINISHED


if __name__ == '__main__':
  sys.exit(app.run(main))
