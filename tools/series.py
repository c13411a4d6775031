"""Runs a series of experiments whose finished cells are small files, and shows them.

  python -m tools.series RESULTS [--data_dir=D] [--work=W] [--only=TEXT] [--limit=SECONDS]
      [--stop=SECONDS] [--smoke] [--plan]
  python -m tools.series RESULTS --show

  RESULTS     a folder with series.toml, under results/
  --data_dir  where the data lie; it is not part of a command that is written down
  --work      the folder of runs; runs/series/NAME
  --only      cells whose name contains the text
  --limit     begins no cell after so many seconds
  --stop      interrupts after so many seconds what then runs, which saves itself; exit status 75
  --smoke     with the small settings `smoke`; cells are written to W, and not to RESULTS
  --plan      prints the cells that are left, and their commands
  --show      writes RESULTS/table.md, RESULTS/gain.svg and the table's place in docs/results.md

series.toml says what is run: `base`, settings of all runs; `axis` and `values`, the columns;
`methods`, each with a grid, and `settings` of its own. For each method and value one sweep tries
the grid on held-out training rows (`tune`), and one run trains what it chose, on all of them
(`test`). A cell is written to RESULTS/<method>@<value>.tune.json or .test.json with its command,
its commit and its figures; a cell with a file is finished. The same command continues.

Where nothing is tuned, `runs` takes the place of `axis`, `values`, `methods`, `tune` and `test`: by
name, the `title` and the `settings` of a run, and `after`, the run in whose checkpoint of round
`from_round` it begins. It is written to RESULTS/<name>.run.json.
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
STOP = flags.DEFINE_float('stop', float('inf'), 'interrupts what runs after so many seconds')
SMOKE = flags.DEFINE_bool('smoke', False, 'with small settings, to W')
PLAN = flags.DEFINE_bool('plan', False, 'prints what is left')
SHOW = flags.DEFINE_bool('show', False, 'writes the table and the figure')
RESULTS_PAGE = ROOT / 'docs/results.md'
Json = dict[str, Any]


class Cell(NamedTuple):
  """One sweep or one run."""

  method: str  # or the name of a run
  value: str
  kind: str  # 'tune' or 'test', or 'run' of `runs`

  @property
  def name(self) -> str:
    """As its file is called."""
    return f'{self.method}.run' if self.kind == 'run' else f'{self.method}@{self.value}.{self.kind}'


class Series(NamedTuple):
  """A folder of results and what its series.toml says."""

  folder: pathlib.Path
  spec: Json

  def cells(self) -> Iterator[Cell]:
    """All cells, in the order in which they are run: a sweep, then its test."""
    if 'runs' in self.spec:
      return (Cell(name, '', 'run') for name in self.spec['runs'])
    pairs = itertools.product(self.spec['values'], self.spec['methods'])
    return (Cell(method, value, kind) for value, method in pairs for kind in ('tune', 'test'))

  def result(self, cell: Cell) -> Json | None:
    """Returns a finished cell's file, or None."""
    path = self.folder / f'{cell.name}.json'
    return json.loads(path.read_text()) if path.exists() else None

  def small(self, folder: pathlib.Path) -> 'Series':
    """Returns the series with the settings `smoke` after all others; its cells go to a folder."""
    words = self.spec['smoke']
    runs = {k: run | {'settings': [*run['settings'], *words]} for k, run in self.runs.items()}
    return Series(folder, self.spec | {'runs': runs})

  @property
  def runs(self) -> Json:
    """By name, the runs of a series that tunes nothing."""
    return self.spec.get('runs', {})

  def command(self, cell: Cell) -> list[str] | None:
    """Returns a cell's command line; None if another cell comes first and is not finished."""
    if cell.kind == 'run':
      run = self.spec['runs'][cell.method]
      words = ['python', 'launch/main.py', *self.spec['base'], *run['settings']]
      if first := run.get('after'):
        if self.result(Cell(first, '', 'run')) is None:
          return None
        folder = f'runs/series/{self.folder.resolve().name}/{first}.run'
        words.append(f'--config.start_from={folder}/checkpoints/{run["from_round"]}')
      return words
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


def run(series: Series, cell: Cell, work: pathlib.Path, seconds: float = float('inf')) -> int:
  """Runs a cell and writes its file; returns the exit status of its command.

  Args:
    series: the series.
    cell: one of its cells.
    work: the folder of runs.
    seconds: the command is asked to save itself and to stop after so many.
  """
  command = series.command(cell)
  if command is None:  # its sweep was refused or diverged
    return exit_status.REFUSED
  folder, here = work / cell.name, f'runs/series/{series.folder.resolve().name}'
  words = [word.replace(f'={here}/', f'={work}/') for word in command[1:]]
  words = [sys.executable, *words, f'--workdir={folder}']
  words += [f'--config.data.dir={DATA_DIR.value}'] if DATA_DIR.value else []
  began = time.perf_counter()
  status = _stoppable(words, seconds)
  spent = work / f'{cell.name}.seconds'  # by the commands that were interrupted
  before = float(spent.read_text()) if spent.exists() else 0.0
  took = before + time.perf_counter() - began
  if status == exit_status.INTERRUPTED:
    spent.write_text(f'{took:.0f}')
  if status == exit_status.FINISHED:
    head: Json = {'command': shlex.join(command), 'commit': _commit()}
    head['machine'] = platform.machine()
    head['seconds'] = round(took)
    figures = tuned_figures(folder) if cell.kind == 'tune' else test_figures(folder)
    text = json.dumps(head | figures, indent=1)
    (series.folder / f'{cell.name}.json').write_text(f'{text}\n')
  return status


def _stoppable(words: Sequence[str], seconds: float) -> int:
  """Runs a command, which is sent SIGTERM after so many seconds; returns its exit status."""
  with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL) as process:
    try:
      return process.wait(None if seconds == float('inf') else max(seconds, 0.0))
    except subprocess.TimeoutExpired:
      process.terminate()
      return process.wait()


def _commit() -> str:
  """Returns the commit of the code; '' where it is no checkout."""
  words = 'git', 'rev-parse', '--short', 'HEAD'
  return subprocess.run(words, cwd=ROOT, check=False, capture_output=True, text=True).stdout.strip()


def tuned_figures(folder: pathlib.Path) -> Json:
  """Returns the tries of a sweep."""
  cells = json.loads((folder / 'sweep.json').read_text())['cells']
  return {'cells': [{'values': c['values'], 'held_out': c['mean']} for c in cells]}


def test_figures(folder: pathlib.Path) -> Json:
  """Returns a run's accuracies by seed, its bytes, seconds and curves."""
  summary = json.loads((folder / 'summary.json').read_text())
  keys = 'test_accuracy', 'validation_accuracy', 'epsilon', 'bytes_up', 'bytes_down'
  figures = {key: summary[key] for key in keys if key in summary}
  figures['run_seconds'] = summary['seconds']
  lines = [json.loads(line) for line in (folder / 'metrics.jsonl').read_text().splitlines()]
  curves: dict[str, list[float]] = {}
  for line in lines:
    if 'test_accuracy' in line:
      curves.setdefault(str(line['seed']), []).append(round(line['test_accuracy'], 4))
  return figures | {'curves': curves}


def table(series: Series) -> str:
  """Returns the finished cells as Markdown: accuracy with the gain over the reference, tries."""
  if 'runs' in series.spec:
    return runs_table(series)
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


def runs_table(series: Series) -> str:
  """Returns the runs as Markdown: accuracies in per cent, their seeds, minutes and settings."""
  rows, left = [], []
  for name, run in series.spec['runs'].items():
    result = series.result(Cell(name, '', 'run'))
    if result is None:
      left.append(run['title'])
      continue
    test, held_out = (result.get(f'{split}_accuracy') for split in ('test', 'validation'))
    settings = [word.removeprefix('--config.') for word in run['settings']]
    if 'after' in run:
      settings.append(f'from round {run["from_round"]} of `{run["after"]}`')
    texts = run['title'], _text(test), _text(held_out), f'{result["seconds"] / 60:.1f}'
    rows.append(' | '.join((*texts, ', '.join(settings) or 'none')))
  head = 'run | test | held out | minutes | settings'
  note = f'\nNot run: {"; ".join(left)}.\n' if left else ''
  lines = '\n'.join(f'| {row} |' for row in (head, '--- | --- | --- | --- | ---', *rows))
  base = ' '.join(series.spec['base'])
  return f'{lines}\n{note}\nAll with `python launch/main.py {base}`.\n'


def _text(accuracy: Json | None) -> str:
  """Returns the mean of the last five rounds, per cent, with deviation and seeds."""
  if accuracy is None:
    return ''
  score = accuracy['mean_last_5']
  each = [f'{100 * value:.2f}' for value in score['per_seed'] if value is not None]
  if len(each) == 1:
    return each[0]
  return f'{100 * score["mean"]:.2f} ± {100 * score["std"]:.2f} ({", ".join(each)})'


def place(page: str, name: str, text: str) -> str:
  """Returns a page with a table between its marks `<!-- series: NAME -->`; unchanged without."""
  mark, end = f'<!-- series: {name} -->', '<!-- end of the series -->'
  before, found, after = page.partition(mark)
  if not found:
    return page
  return f'{before}{mark}\n\n{text.strip()}\n\n{end}{after.partition(end)[2]}'


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
    text = table(series)
    (series.folder / 'table.md').write_text(text)
    if 'runs' not in series.spec:
      draw(series, series.folder / 'gain.svg')
    page = place(RESULTS_PAGE.read_text(), series.folder.resolve().name, text)
    RESULTS_PAGE.write_text(page)
    return exit_status.FINISHED
  work = pathlib.Path(WORK.value or ROOT / 'runs/series' / series.folder.resolve().name).resolve()
  if SMOKE.value:
    work.mkdir(parents=True, exist_ok=True)
    series = series.small(work)
  began, failed = time.perf_counter(), 0
  for cell in series.cells():
    if ONLY.value not in cell.name or series.result(cell) is not None:
      continue
    if PLAN.value:
      command = series.command(cell)
      print(cell.name, shlex.join(command) if command else 'after its sweep', sep=': ')
      continue
    passed = time.perf_counter() - began
    if passed > STOP.value:
      return exit_status.INTERRUPTED
    if passed > LIMIT.value:
      break
    print(cell.name, flush=True)
    if status := run(series, cell, work, STOP.value - passed):
      print(f'{cell.name}: exit status {status}', file=sys.stderr)
      if status == exit_status.INTERRUPTED:
        return status
      failed += 1
  return exit_status.DIVERGED if failed else exit_status.FINISHED


if __name__ == '__main__':
  sys.exit(app.run(main))
