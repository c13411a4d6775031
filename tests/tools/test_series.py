"""A series: what is left, which command a cell has, what finished cells say, and interruptions."""

import json
import signal
import sys
import types

import pytest

from fedjax_syn import config as config_lib
from fedjax_syn.config import files
from tools import series, series_cells, series_methods, series_show

pytest_plugins = ['tests.run_fixtures']

SPEC = """
title = "Two methods"
base = ["--config.compare="]
axis = "data.alpha"
values = ["0.1", "1"]
tune = ["--config.data.validation=0.1"]
test = ["--config.seeds=0,1"]
reference = "fedavg"

[methods.fedavg]
"client.lr" = "0.1,0.2"

[methods."scaffold+dynafed"]
settings = ["--config.scaffold.option=1"]
tune = ["--config.dynafed.length=5"]
"client.lr" = "0.1,0.2"
"""


def cell(*seeds):
  """A finished test whose best round is 70 % for FedAvg (a mean of 50 %), and else 90 %."""
  best = 0.7 if sum(seeds) == len(seeds) * 0.5 else 0.9
  scores = {'mean_last_5': {'per_seed': seeds}, 'best': {'per_seed': [best] * len(seeds)}}
  cost = {'bytes_up': 3e9, 'bytes_down': 4.5e9, 'run_seconds': {'total': 80.4}}
  return {'test_accuracy': scores} | cost


@pytest.fixture
def finished(tmp_path):
  """A series whose cells at alpha 0.1 are finished."""
  (tmp_path / 'series.toml').write_text(SPEC)
  tries = [
    {'values': {'client.lr': '0.1'}, 'held_out': 0.5},
    {'values': {'client.lr': '0.2'}, 'held_out': 0.6},
    {'values': {'client.lr': '0.3'}, 'held_out': None},  # it diverged
  ]
  for method, seeds in (('fedavg', (0.5, 0.5)), ('scaffold+dynafed', (0.605, 0.645))):
    (tmp_path / f'{method}@0.1.tune.json').write_text(json.dumps({'cells': tries}))
    (tmp_path / f'{method}@0.1.test.json').write_text(json.dumps(cell(*seeds)))
  return series_cells.load(tmp_path)


def test_a_sweep_comes_first_and_its_best_try_is_run(finished):
  names = [cell.name for cell in finished.cells()]
  assert names[:2] == ['fedavg@0.1.tune', 'fedavg@0.1.test'] and len(names) == 8
  tune = finished.command(series_cells.Cell('scaffold+dynafed', '0.1', 'tune'))
  assert tune == [
    'python',
    'launch/sweep.py',
    '--config.compare=',
    '--config.algorithm=scaffold+dynafed',
    '--config.scaffold.option=1',
    '--config.data.alpha=0.1',
    '--config.data.validation=0.1',
    '--config.dynafed.length=5',
    '--grid',
    'client.lr=0.1,0.2',
  ]
  test = finished.command(series_cells.Cell('fedavg', '0.1', 'test'))
  assert test[1] == 'launch/main.py' and test[-2:] == [
    '--config.seeds=0,1',
    '--config.client.lr=0.2',
  ]
  assert finished.command(series_cells.Cell('fedavg', '1', 'test')) is None


def test_the_table_has_gains_over_the_reference_and_says_what_is_left(finished, tmp_path):
  text = series_show.table(finished)
  assert '| method | alpha 0.1 | alpha 1 |' in text
  assert '| FedAvg | 50.00 ± 0.00 |  |' in text
  assert '| SCAFFOLD + DynaFed | 62.50 ± 2.83 |  |' in text  # 60.5 and 64.5
  assert '| FedAvg | lr 0.2 (60.00) |  |' in text
  assert '| SCAFFOLD + DynaFed | 3.00 GB | 4.50 GB | 40 |' in text
  assert 'Cells that are not finished: 2.' in text
  series_methods.draw(finished, tmp_path / 'gain.svg')
  assert '<svg' in (tmp_path / 'gain.svg').read_text()


def test_differences_are_of_equal_seeds_and_of_the_best_round_too(finished):
  _, gains, best, *_ = (t for t in series_show.table(finished).split('\n\n') if t[0] == '|')
  # 10.5 and 14.5: their standard error is 2, and t of one degree of freedom 12.706
  assert '| SCAFFOLD + DynaFed above FedAvg | +12.50 ± 25.41 |  |' in gains
  assert '| SCAFFOLD + DynaFed above FedAvg | +20.00 ± 0.00 |  |' in best


def test_a_seed_that_diverged_is_named(finished):
  path = finished.folder / 'scaffold+dynafed@0.1.test.json'
  text = json.loads(path.read_text())
  text['test_accuracy']['mean_last_5']['per_seed'] = [0.6, None]
  path.write_text(json.dumps(text))
  assert '| SCAFFOLD + DynaFed | a seed diverged |  |' in series_show.table(finished)


PARTITIONS = """
title = "Partitions"
base = []
axis = "data.seed"
values = ["1", "2", "3"]
column = "partition"
replicates = "all"
test = []
reference = "fedavg"
pairs = [["fedavg", "dynafed"]]
methods.fedavg.settings = ["--config.client.lr=0.1"]
methods.dynafed.settings = []
"""


def test_values_that_repeat_one_measurement_have_their_mean_and_interval(tmp_path):
  (tmp_path / 'series.toml').write_text(PARTITIONS)
  stored = series_cells.load(tmp_path)
  assert [cell.name for cell in stored.cells()][:2] == ['fedavg@1.test', 'dynafed@1.test']
  command = stored.command(series_cells.Cell('fedavg', '1', 'test'))
  assert command[1:] == [
    'launch/main.py',
    '--config.algorithm=fedavg',
    '--config.client.lr=0.1',
    '--config.data.seed=1',
  ]
  for method, own in (('fedavg', (0.5, 0.5, 0.5)), ('dynafed', (0.5, 0.6, 0.7))):
    for value, accuracy in zip('123', own, strict=True):
      (tmp_path / f'{method}@{value}.test.json').write_text(json.dumps(cell(accuracy)))
  text = series_show.table(stored)
  assert '| method | partition 1 | partition 2 | partition 3 | all |' in text
  assert '| DynaFed | 50.00 | 60.00 | 70.00 | 60.00 ± 10.00 |' in text
  # differences 0, 10, 20: standard error 10 / sqrt(3), t of two degrees of freedom 4.3027
  assert '| DynaFed above FedAvg | +0.00 | +10.00 | +20.00 | +10.00 ± 24.84 |' in text
  assert '| FedAvg above DynaFed | +0.00 | -10.00 | -20.00 | -10.00 ± 24.84 |' in text
  assert 'Chosen' not in text


RUNS = """
title = "Three runs"
base = ["--config.compare="]
smoke = ["--config.rounds=3"]

[runs.dynafed]
title = "DynaFed"
settings = ["--config.algorithm=dynafed"]

[runs.late]
title = "From round 50"
settings = ["--config.rounds=70"]
after = "dynafed"
from_round = 50
"""


def score(*seeds):
  """A run's accuracy."""
  std = 0.01 if len(seeds) > 1 else None
  mean = {'mean': sum(seeds) / len(seeds), 'std': std, 'per_seed': seeds}
  return {'seconds': 90, 'test_accuracy': {'mean_last_5': mean}}


@pytest.fixture
def runs(tmp_path):
  folder = tmp_path / 'three'
  folder.mkdir()
  (folder / 'series.toml').write_text(RUNS)
  return series_cells.load(folder)


def test_a_run_begins_where_another_one_is_at_its_round(runs):
  first, late = runs.cells()
  assert (first.name, late.name) == ('dynafed.run', 'late.run')
  assert runs.command(late) is None
  (runs.folder / 'dynafed.run.json').write_text(json.dumps(score(0.5)))
  assert runs.command(late)[2:] == [
    '--config.compare=',
    '--config.rounds=70',
    '--config.start_from=runs/series/three/dynafed.run/checkpoints/50',
  ]


def test_the_table_of_runs_goes_into_its_place_in_a_page(runs):
  (runs.folder / 'dynafed.run.json').write_text(json.dumps(score(0.5, 0.6)))
  text = series_show.table(runs)
  assert '| DynaFed | 55.00 ± 1.00 (50.00, 60.00) | 1.5 | algorithm=dynafed |' in text
  assert 'Not run: From round 50.' in text
  page = 'a\n<!-- series: three -->\nold\n<!-- end of the series -->\nb\n'
  placed = series_show.place(page, 'three', text)
  assert placed.startswith('a\n') and placed.endswith('<!-- end of the series -->\nb\n')
  assert 'old' not in placed and text.strip() in placed
  assert series_show.place(placed, 'three', text) == placed
  assert series_show.place(page, 'another', text) == page


def test_small_settings_come_last_and_leave_the_results_alone(runs, tmp_path):
  small = runs.small(tmp_path / 'work')
  cell = next(small.cells())
  assert small.command(cell)[-1] == '--config.rounds=3'
  assert small.folder == tmp_path / 'work'


def test_a_cell_has_the_curve_of_each_seed(whole_folder):
  figures = series.test_figures(whole_folder)
  assert set(figures['curves']) == {'0', '1'}
  for curve, mean in zip(
    figures['curves'].values(), figures['test_accuracy']['mean_last_5']['per_seed'], strict=True
  ):
    assert sum(curve[-5:]) / 5 == pytest.approx(mean, abs=1e-4)


def test_a_command_that_is_out_of_time_is_sent_a_signal():
  words = [sys.executable, '-c', 'import time; time.sleep(60)']
  assert series._stoppable(words, 0.1) == -signal.SIGTERM


def test_seconds_of_interrupted_commands_count(runs, tmp_path, monkeypatch):
  work = tmp_path / 'work'
  (work / 'dynafed.run').mkdir(parents=True)
  summary = {'test_accuracy': {}, 'bytes_up': 1, 'bytes_down': 2, 'seconds': 3}
  (work / 'dynafed.run' / 'summary.json').write_text(json.dumps(summary))
  (work / 'dynafed.run' / 'metrics.jsonl').write_text('')
  statuses = iter((75, 0))
  monkeypatch.setattr(series, '_stoppable', lambda words, seconds: next(statuses))
  monkeypatch.setattr(series, 'DATA_DIR', types.SimpleNamespace(value=''))
  cell = next(runs.cells())
  assert series.run(runs, cell, work, 1.0) == 75
  assert runs.result(cell) is None
  (work / 'dynafed.run.seconds').write_text('100')
  assert series.run(runs, cell, work) == 0
  assert runs.result(cell)['seconds'] == 100


@pytest.mark.parametrize(
  'path', sorted(series_cells.ROOT.glob('results/*/series.toml')), ids=lambda path: path.parent.name
)
def test_the_settings_of_every_stored_series_are_accepted(path):
  stored = series_cells.load(path.parent)
  for name, run in stored.runs.items():
    for more in ((), stored.spec.get('smoke', ())):
      config, *words = (*stored.spec['base'], *run['settings'], *more)
      checked = config_lib.check(files.load_config(config.partition('=')[2], words))
      assert run.get('after', name) in stored.runs and checked.seeds, name
  methods = () if stored.runs else stored.cells()
  commands = [stored.command(cell) for cell in methods if cell.kind == 'test']
  for _, _, config, *words in filter(None, commands):
    assert config_lib.check(files.load_config(config.partition('=')[2], words)).seeds


def test_the_page_of_results_has_what_is_stored():
  page = series_show.PAGE.read_text()
  for path in series_cells.ROOT.glob('results/*/series.toml'):
    stored = series_cells.load(path.parent)
    if stored.runs:
      assert series_show.place(page, path.parent.name, series_show.table(stored)) == page, path
