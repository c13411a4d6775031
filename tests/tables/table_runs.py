"""Replaces the experiment: runs that cost nothing and leave the files that tables read."""

import json
import pathlib
import sys

from fedjax_syn import algorithms
from fedjax_syn import config as config_lib
from fedjax_syn.cli import tables as tables_lib
from tests.run_helpers import summary_of

TWO = ('--rows=fedavg,dynafed', '--cols=mlp-0.01,mlp-0.04')  # two by two cells of Table 5


class Runs(list):
  """Remembers its calls; accuracy, exit status and traces by (algorithm, alpha) or algorithm."""

  def __init__(self):
    super().__init__()
    self.accuracy: dict = {}  # of the last rounds; a list is one number per seed
    self.curve: dict = {}  # test accuracy of rounds 1, 2, ...
    self.ends: dict = {}  # 3 (diverged), 75, 2, or an exception
    self.untraced: set[str] = set()
    self.seconds = 2.0

  def run_experiment(self, config, workdir, *, config_name, show):
    workdir = pathlib.Path(workdir)
    self.append((config, workdir))
    word, seed = config.algorithm, config.seeds[0]
    of = lambda found, default: found.get((word, config.data.alpha), found.get(word, default))
    status = of(self.ends, 0)
    if isinstance(status, Exception):
      raise status
    if status == 2:
      print('data.name=x: not | there', file=sys.stderr)
      return 2
    if config.start_from and not (pathlib.Path(config.start_from) / f'seed_{seed}').is_dir():
      print(f'start_from={config.start_from}: not there', file=sys.stderr)
      return 2
    workdir.mkdir(parents=True, exist_ok=True)
    described = {
      'config': config_lib.to_dict(config),
      'dataset': {'title': 'data', 'normalisation': {'name': 'auto', 'mean': [0.0], 'std': [1.0]}},
      'devices': ['cpu cpu'],
      'host': {'name': 'a_host', 'machine': 'x86_64', 'cores': 2},
      'versions': {'jax': '0.10.2'},
      'commit': 'abc',
    }
    (workdir / 'config.json').write_text(json.dumps(described))
    if status == 75:
      return 75
    accuracy = of(self.accuracy, 0.5)
    accuracy = accuracy[seed] if isinstance(accuracy, list) else accuracy
    lines, first = [], int(pathlib.Path(config.start_from).name or 1)
    # What other runs begin in; DynaFed's are read when something is computed of its runs.
    for phase in algorithms.create(word, config).phases if 'fedcog' in word else ():
      (workdir / f'checkpoints/{phase}/seed_{seed}').mkdir(parents=True, exist_ok=True)
    for round, value in enumerate(of(self.curve, [accuracy] * 6), first):
      traces = {f'{p}/loss': 0.5 for p in word.split('+') if p not in self.untraced}
      lines.append({'round': round, 'seed': seed, 'test/accuracy': value, **traces})
    (workdir / 'metrics.jsonl').write_text(''.join(json.dumps(line) + '\n' for line in lines))
    state = {0: 'finished', 3: 'diverged'}[status]
    mean = accuracy if status == 0 else None
    summary = summary_of(mean, {str(seed): {'status': state, 'round': 6}}, self.seconds)
    (workdir / 'summary.json').write_text(json.dumps(summary))
    return status


def start(*arguments, table='dynafed/table5', scale='cpu'):
  """Makes a table in W."""
  words = [f'--table={table}', f'--scale={scale}', '--workdir=W']
  return tables_lib.main(['tables.py', *words, *arguments])


def read_json(table='dynafed/table5'):
  return json.loads(pathlib.Path('W', table, 'table.json').read_text())


def row(text, title):
  """The cells of a row of the printed table."""
  line = next(line for line in text.splitlines() if line.startswith(f'| {title}'))
  return [part.strip() for part in line.strip('|').split(' | ')]
