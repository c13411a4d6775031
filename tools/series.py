"""Runs a series of experiments whose finished cells are small files, and shows them.

  python -m tools.series RESULTS [--data_dir=D] [--work=W] [--only=TEXT] [--limit=SECONDS]
      [--stop=SECONDS] [--smoke] [--plan]
  python -m tools.series RESULTS|results --show

  RESULTS     a folder with series.toml, under results/
  --data_dir  where the data lie; it is not part of a command that is written down
  --work      the folder of runs; runs/series/NAME
  --only      cells whose name contains the text
  --limit     begins no cell after so many seconds
  --stop      interrupts after so many seconds what then runs, which saves itself; exit status 75
  --smoke     with the small settings `smoke`; cells are written to W, and not to RESULTS
  --plan      prints the cells that are left, and their commands
  --show      writes RESULTS/table.md, the figure docs/NAME.svg and the table's place in
              docs/results.md; of all series, for results

series.toml says what is run: `base`, settings of all runs; `axis` and `values`, the columns;
`methods`, each with a grid, and `settings`, `tune` and `test` of its own. For each method and value
one sweep tries the grid on held-out training rows (`tune`), and one run trains what it chose, on
all of them (`test`). Without `tune` there are only tests, with `settings`. A cell is written to
RESULTS/<method>@<value>.tune.json or .test.json with its command, its commit and its figures; a
cell with a file is finished. The same command continues. tools/series_methods.py says what else the
file may have.

Where nothing is tuned, `runs` takes the place of `axis`, `values`, `methods`, `tune` and `test`: by
name, the `title` and the `settings` of a run, and `after`, the run in whose checkpoint of round
`from_round` it begins. It is written to RESULTS/<name>.run.json. `curves` has the rounds of a table
and the runs that are compared (tools/series_curves.py).
"""

import json
import pathlib
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence

from absl import app, flags

from fedjax_syn.core import exit_status
from tools.series_cells import ROOT, Cell, Json, Series, load
from tools.series_flags import DATA_DIR, ONLY, SHOW, WORK

LIMIT = flags.DEFINE_float('limit', float('inf'), 'begins no cell after so many seconds')
STOP = flags.DEFINE_float('stop', float('inf'), 'interrupts what runs after so many seconds')
SMOKE = flags.DEFINE_bool('smoke', False, 'with small settings, to W')
PLAN = flags.DEFINE_bool('plan', False, 'prints what is left')


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
    if 'test/accuracy' in line:
      curves.setdefault(str(line['seed']), []).append(round(line['test/accuracy'], 4))
  return figures | {'curves': curves}


def main(argv: Sequence[str]) -> int:
  """Runs, plans or shows a series."""
  folder = pathlib.Path(argv[1])
  if SHOW.value:
    from tools import series_show  # slow to import

    alone = (folder / 'series.toml').exists()
    for path in (folder,) if alone else sorted(p.parent for p in folder.glob('*/series.toml')):
      series_show.show(path)
    return exit_status.FINISHED
  series = load(folder)
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
      first = series.runs.get(cell.method, {}).get('after', 'its sweep')
      print(cell.name, shlex.join(command) if command else f'after {first}', sep=': ')
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
