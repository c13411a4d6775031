"""Natural federations: every method is tuned and tested, and docs/federations.md shows it.

  python -m tools.federations [--data_dir=D] [--work=W] [--only=TEXT]
  python -m tools.federations --show

  --data_dir  where the archives of the packages lie; it is no part of a command in a file
  --work      the folder of runs; runs/federations
  --only      cells whose name contains the text
  --show      writes the tables of docs/federations.md, and docs/federations.svg

A cell is a data set and a method, as watch@fedavg. A sweep tries RATES on a fifth of the training
rows that is held out (seed 3), and a run trains the best on all training rows (seeds 0, 1, 2). Its
file is results/federations/<cell>.json: commands, commit, what each rate reached, accuracies, and
processor seconds of both. A cell with a file is finished. The same command continues.

Centralised training has one client with the rows of all. Local training is Ditto with lambda 0:
its personal models never see the global one. All pass equally often over the rows.
"""

import json
import pathlib
import resource
import shlex
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import app

from fedjax_syn.cli import jax_setup
from fedjax_syn.config import files
from fedjax_syn.core import exit_status
from fedjax_syn.data import datasets
from fedjax_syn.plotting import canvas
from fedjax_syn.runs import experiment
from fedjax_syn.tables import sweep
from tools.series_flags import DATA_DIR, ONLY, SHOW, WORK

ROOT = pathlib.Path(__file__).parents[1]
RESULTS, PAGE, PICTURE = 'results/federations', 'docs/federations.md', 'docs/federations.svg'
SETS = ('watch', 'vietnam')
RATES = '0.03,0.1,0.3,1'
TUNE = ('--config.seeds=3,', '--config.data.validation=0.2')
TEST = ('--config.seeds=0,1,2',)
Json = dict[str, Any]


class Method(NamedTuple):
  """A row of the table."""

  title: str
  settings: tuple[str, ...]
  personal: bool = False  # clients have models of their own, which count


ONE_CLIENT = ('--config.data.partition=iid', '--config.data.clients=1')
METHODS = {
  'centralised': Method('centralised', ('--config.algorithm=fedavg', *ONE_CLIENT)),
  'local': Method(
    'local only', ('--config.algorithm=ditto', '--config.ditto.lambda_personal=0'), True
  ),
  'fedavg': Method('FedAvg', ('--config.algorithm=fedavg',)),
  'scaffold': Method('SCAFFOLD', ('--config.algorithm=scaffold',)),
  'ditto': Method('Ditto', ('--config.algorithm=ditto',), True),
}


def path_of(name: str, method: str) -> pathlib.Path:
  """Returns the file of a cell."""
  return ROOT / RESULTS / f'{name}@{method}.json'


def commands(name: str, method: str, rate: str = '') -> list[str]:
  """Returns the command line of a cell's sweep, or of its test at a rate."""
  of = METHODS[method]
  words = [f'--config=configs/{name}.py', '--config.compare=', '--config.layout.devices=1']
  words += of.settings if of.personal else (*of.settings, '--config.personal_every=0')
  if rate:
    return ['python', 'launch/main.py', *words, *TEST, f'--config.client.lr={rate}']
  select = ['--select=clients'] if of.personal else []
  return ['python', 'launch/sweep.py', *words, *TUNE, f'--grid=client.lr={RATES}', *select]


def processor_seconds() -> float:
  """Returns what this process has used so far."""
  return sum(resource.getrusage(resource.RUSAGE_SELF)[:2])


def run(name: str, method: str, work: pathlib.Path) -> int:
  """Runs a cell, as its two commands would, and writes its file; returns the exit status."""
  began = processor_seconds()
  select = sweep.CLIENTS if METHODS[method].personal else sweep.GLOBAL
  folder, of = work / f'{name}@{method}', config_of(commands(name, method))
  cells = [sweep.make_cell(of, {'client.lr': rate}, folder) for rate in RATES.split(',')]
  records = sweep.sweep(cells, folder, name, select)
  if len(records) < len(cells) or any(r['status'] == exit_status.INTERRUPTED for r in records):
    return exit_status.INTERRUPTED
  tries = {record['values']['client.lr']: record['mean'] for record in records}
  rate = max(tries, key=lambda rate: tries[rate] or 0)
  tuned, test, folder = processor_seconds(), commands(name, method, rate), work / f'{folder}.test'
  if status := experiment.run_experiment(config_of(test), folder, config_name=name):
    return status
  seconds = {'tune': round(tuned - began, 1), 'test': round(processor_seconds() - tuned, 1)}
  commit = subprocess.run(
    ('git', 'rev-parse', '--short', 'HEAD'), cwd=ROOT, check=True, capture_output=True, text=True
  ).stdout.strip()
  content = {'sweep': shlex.join(commands(name, method)), 'run': shlex.join(test)}
  content |= {'commit': commit, 'held_out': tries, 'rate': rate, 'processor_seconds': seconds}
  content |= figures(name, method, folder)
  path_of(name, method).parent.mkdir(parents=True, exist_ok=True)
  path_of(name, method).write_text(f'{json.dumps(content, indent=1)}\n')
  return exit_status.FINISHED


def config_of(command: Sequence[str]) -> Any:
  """Returns the config of a command line."""
  path, *settings = [word for word in command if word.startswith('--config')]
  settings += [f'--config.data.dir={DATA_DIR.value}'] if DATA_DIR.value else []
  return files.load_config(str(ROOT / path.partition('=')[2]), settings)


def figures(name: str, method: str, folder: pathlib.Path) -> Json:
  """Returns the accuracies of a run by seed, after the last round.

  'test' counts all test rows of clients that train. 'clients' are accuracies of each of them, means
  over seeds; 'worst_tenth' is the mean of the lowest tenth. 'unseen' is the mean over the clients
  that never train.
  """
  summary = json.loads((folder / 'summary.json').read_text())
  out: Json = {'test': summary['test_accuracy']['last']['per_seed']}
  if not METHODS[method].personal or method == 'ditto':
    out['unseen'] = summary.get('unseen', {}).get('test/accuracy', {}).get('per_seed')
  seeds = [dict(np.load(folder / f'clients/seed_{seed}.npz')) for seed in (0, 1, 2)]
  key = 'personal_accuracy' if METHODS[method].personal else 'global_accuracy'
  if method != 'centralised':  # its one client is all of them
    own = np.array([arrays[key] for arrays in seeds])
    rows = _test_rows(name)
    there = rows > 0
    out['test'] = (own[:, there] @ rows[there] / rows.sum()).tolist()
    lowest = np.sort(own[:, there])[:, : -(-there.sum() // 10)]
    out['worst_tenth'] = lowest.mean(axis=1).tolist()
    out['clients'] = own[:, there].mean(axis=0).round(4).tolist()
  return out


def _test_rows(name: str) -> np.ndarray:
  """Returns how many test rows each client has that trains."""
  config = files.load_config(str(ROOT / f'configs/{name}.py'), [])
  data = config.data
  dataset = datasets.load(name, DATA_DIR.value, unseen_clients=data.unseen_clients, seed=data.seed)
  return np.bincount(dataset.test_clients, minlength=data.clients)


def table(name: str) -> str:
  """Returns the finished cells of a data set as Markdown; '' for none."""
  lines = [
    '| method | test rows | worst tenth of clients | unseen clients | rate |',
    '|---|---|---|---|---|',
  ]
  for method, of in METHODS.items():
    if path_of(name, method).exists():
      content = json.loads(path_of(name, method).read_text())
      cells = [_percent(content.get(key)) for key in ('test', 'worst_tenth', 'unseen')]
      lines.append(f'| {of.title} | {" | ".join(cells)} | {content["rate"]} |')
  return '\n'.join(lines) if len(lines) > 2 else ''


def _percent(values: Sequence[float] | None) -> str:
  return f'{100 * np.mean(values):.1f} ± {100 * np.std(values, ddof=1):.1f}' if values else ''


def seconds() -> float:
  """Returns the processor seconds of all finished cells."""
  paths = (ROOT / RESULTS).glob('*.json')
  return sum(sum(json.loads(p.read_text())['processor_seconds'].values()) for p in paths)


def place(page: str, name: str, text: str) -> str:
  """Returns a page with the text between the comments `federations: NAME` and `end`."""
  head, begin, rest = page.partition(f'<!-- federations: {name} -->\n')
  if not begin:
    raise ValueError(f'{PAGE} has no place for {name!r}')
  return f'{head}{begin}\n{text}\n\n<!-- end -->{rest.partition("<!-- end -->")[2]}'


def draw(path: pathlib.Path) -> None:
  """Draws the accuracy of each client, a panel for each data set."""
  figure, panels = canvas.begin(8, 3.4, len(SETS), len(SETS))
  for axes, name in zip(panels, SETS, strict=True):
    done = [m for m in METHODS if path_of(name, m).exists() and m != 'centralised']
    for i, method in enumerate(done):
      values = 100 * np.array(json.loads(path_of(name, method).read_text())['clients'])
      places = i + 0.5 * (np.arange(len(values)) / max(1, len(values) - 1) - 0.5)
      axes.plot(places, np.sort(values), '.', markersize=4)
      axes.plot([i - 0.3, i + 0.3], [values.mean()] * 2, **canvas.REFERENCE)
    axes.set_xticks(range(len(done)), [METHODS[m].title for m in done])
    axes.set(title=name, ylabel='accuracy on own test rows (%)')
  canvas.finish(figure, path, grid='y')


def main(argv: Sequence[str]) -> int:
  """Runs the cells that are left, or shows those that are finished."""
  if SHOW.value:
    page = (ROOT / PAGE).read_text()
    for name in SETS:
      page = place(page, name, table(name))
    total = f'All runs of these tables took {seconds() / 60:.0f} minutes of one processor core.'
    (ROOT / PAGE).write_text(place(page, 'seconds', total))
    draw(ROOT / PICTURE)
    return exit_status.FINISHED
  jax_setup.prepare_jax(1)
  work = pathlib.Path(WORK.value or 'runs/federations').resolve()
  for name in SETS:
    for method in METHODS:
      if ONLY.value in f'{name}@{method}' and not path_of(name, method).exists():
        print(f'{name}@{method}', flush=True)
        if status := run(name, method, work):
          return status
  return exit_status.FINISHED


if __name__ == '__main__':
  sys.exit(app.run(main))
