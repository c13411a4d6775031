"""A series: what is left, which command a cell has, and what its finished cells say."""

import json

import pytest

from tools import series

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
"client.lr" = "0.1,0.2"
"""


@pytest.fixture
def finished(tmp_path):
  """A series whose cells at alpha 0.1 are finished."""
  (tmp_path / 'series.toml').write_text(SPEC)
  tries = [
    {'values': {'client.lr': '0.1'}, 'held_out': 0.5},
    {'values': {'client.lr': '0.2'}, 'held_out': 0.6},
    {'values': {'client.lr': '0.3'}, 'held_out': None},  # it diverged
  ]
  for method, mean in (('fedavg', 0.5), ('scaffold+dynafed', 0.625)):
    (tmp_path / f'{method}@0.1.tune.json').write_text(json.dumps({'cells': tries}))
    score = {'test_accuracy': {'mean_last_5': {'mean': mean, 'std': 0.01}}}
    (tmp_path / f'{method}@0.1.test.json').write_text(json.dumps(score))
  return series.load(tmp_path)


def test_a_sweep_comes_first_and_its_best_try_is_run(finished):
  names = [cell.name for cell in finished.cells()]
  assert names[:2] == ['fedavg@0.1.tune', 'fedavg@0.1.test'] and len(names) == 8
  tune = finished.command(series.Cell('scaffold+dynafed', '0.1', 'tune'))
  assert tune == [
    'python',
    'launch/sweep.py',
    '--config.compare=',
    '--config.algorithm=scaffold+dynafed',
    '--config.scaffold.option=1',
    '--config.data.alpha=0.1',
    '--config.data.validation=0.1',
    '--grid',
    'client.lr=0.1,0.2',
  ]
  test = finished.command(series.Cell('fedavg', '0.1', 'test'))
  assert test[1] == 'launch/main.py' and test[-2:] == [
    '--config.seeds=0,1',
    '--config.client.lr=0.2',
  ]
  assert finished.command(series.Cell('fedavg', '1', 'test')) is None


def test_the_table_has_gains_over_the_reference_and_says_what_is_left(finished, tmp_path):
  text = series.table(finished)
  assert '| method | alpha 0.1 | alpha 1 |' in text
  assert '| FedAvg | 50.00 ± 1.00 |  |' in text
  assert '| SCAFFOLD + DynaFed | 62.50 ± 1.00 (+12.5) |  |' in text
  assert '| FedAvg | lr 0.2 (60.00) |  |' in text
  assert '4 cells are not finished.' in text
  series.draw(finished, tmp_path / 'gain.svg')
  assert '<svg' in (tmp_path / 'gain.svg').read_text()
