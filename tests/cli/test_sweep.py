"""The sweep: which cells run, what selects, what is left behind, and how it continues."""

import contextlib
import json
import pathlib
import signal

import pytest
from absl.testing import flagsaver

from fedjax_syn.cli import sweep as sweep_lib
from fedjax_syn.core import paths, stopping
from fedjax_syn.runs import lock
from fedjax_syn.tables import sweep as search
from fedjax_syn.tables import work_list
from tests.run_helpers import replace_experiment, summary_of


class Runs(list):
  """A fake experiment: test accuracy orders the values of client.lr opposite to validation."""

  validation = {0.001: 0.6, 0.01: 0.8, 0.1: 0.7}

  def __init__(self):
    super().__init__()
    self.signalled = None  # the learning rate of a cell whose run is asked to stop
    self.ends = {}  # exit status by learning rate
    self.personal = {}  # accuracy of the clients' own models on held-out rows, by learning rate

  def run_experiment(self, config, workdir, *, config_name):
    self.append((config, pathlib.Path(workdir)))
    if config.client.lr == self.signalled:
      with stopping.stoppable():
        signal.raise_signal(signal.SIGTERM)
    status = self.ends.get(config.client.lr, 0)
    if status in (0, 3):
      mean = self.validation.get(config.client.lr, 0.5) if status == 0 else None
      test = None if mean is None else 1 - mean
      status = {'status': 'finished'} if status == 0 else {'status': 'diverged', 'round': 1}
      both = [summary_of(value, {'0': status})['test_accuracy'] for value in (mean, test)]
      both = [{k: {**v, 'std': 0.02} for k, v in one.items()} for one in both]
      summary = {**summary_of(test, {'0': status}), 'validation_accuracy': both[0]}
      summary['test_accuracy'] = both[1]
      if config.personal_every:
        own = self.personal.get(config.client.lr)
        summary['personal'] = {'validation/accuracy': {'mean': own, 'std': None, 'per_seed': [own]}}
      status = self.ends.get(config.client.lr, 0)
      workdir.mkdir(parents=True, exist_ok=True)
      (workdir / 'summary.json').write_text(json.dumps(summary))
    return status


@pytest.fixture
def runs(monkeypatch, tmp_path):
  runs = Runs()
  replace_experiment(monkeypatch, tmp_path, runs.run_experiment)
  return runs


def start(*arguments):
  with flagsaver.flagsaver():
    return sweep_lib.main(['sweep.py', '--workdir=W', *arguments])


LR = '--grid=client.lr=0.001,0.01,0.1'


def test_validation_selects_and_test_does_not(runs, capsys):
  """The fake's test accuracy is best where validation is worst: 0.001, which must not be chosen."""
  assert start(LR, '--config.rounds=40') == 0
  out = capsys.readouterr().out
  left = json.loads(pathlib.Path('W/sweep.json').read_text())
  assert left['best']['values'] == {'client.lr': '0.01'} and left['best']['mean'] == 0.8
  assert [cell['mean'] for cell in left['cells']] == [0.6, 0.8, 0.7]
  line = out.splitlines()[-1]
  assert line == (
    'python launch/main.py --config=configs/one_digit.py --config.rounds=40'
    ' --config.client.lr=0.01 --config.data.validation=0'
  )
  table = pathlib.Path('W/sweep.md').read_text().splitlines()
  assert table[:3] == [
    '| client.lr | validation accuracy |',
    '|---|---|',
    '| 0.01 | 80.00 ± 2.00 |',
  ]
  assert 'data.validation was 0: 10%' in out
  assert all(c.data.validation == 0.1 and c.compare == '' for c, _ in runs)


def test_the_clients_own_models_select_where_they_are_asked_to(runs, capsys):
  """The global model is best at 0.01, the clients' own at 0.1; W knows which of them selected."""
  runs.personal = {0.001: 0.2, 0.01: 0.3, 0.1: 0.4}
  with pytest.raises(SystemExit, match='2'):
    start(LR, '--select=clients')
  assert not runs
  assert '--config.personal_every=30 does after the last round' in capsys.readouterr().err
  best = lambda: json.loads(pathlib.Path('W/sweep.json').read_text())['best']
  both = '--config.personal_every=30', LR
  assert start(*both, '--select=clients') == 0
  assert best()['values'] == {'client.lr': '0.1'} and best()['mean'] == 0.4
  count = len(runs)
  assert start(*both, '--select=clients') == 0 and len(runs) == count
  assert start(*both) == 0
  assert best()['values'] == {'client.lr': '0.01'} and best()['mean'] == 0.8


def test_the_config_s_own_validation_share_stays(runs, capsys):
  start(LR, '--config.data.validation=0.2')
  assert all(c.data.validation == 0.2 for c, _ in runs)
  out = capsys.readouterr().out
  assert 'data.validation was 0' not in out
  assert (
    out.splitlines()[-1].count('data.validation') == 1
  )  # the share is not in the chosen command


def test_every_cell_of_a_product_has_its_own_folder_and_values(runs):
  start('--grid', 'client.lr=0.01,0.1', '--grid=client.schedule=cosine,exponential(0.9)')
  found = {(c.client.lr, c.client.schedule): w.name for c, w in runs}
  assert found == {
    (0.01, 'cosine'): 'client.lr=0.01,client.schedule=cosine',
    (0.01, 'exponential(0.9)'): 'client.lr=0.01,client.schedule=exponential(0.9)',
    (0.1, 'cosine'): 'client.lr=0.1,client.schedule=cosine',
    (0.1, 'exponential(0.9)'): 'client.lr=0.1,client.schedule=exponential(0.9)',
  }


def test_a_tuple_in_a_grid_keeps_its_commas():
  grid = search.read_grid(['targets=(0.5,),(0.6,0.7)', 'client.lr=1'])
  assert grid == {'targets': ['(0.5,)', '(0.6,0.7)'], 'client.lr': ['1']}


def test_a_budget_takes_a_subset_by_the_data_seed():
  grid = {'a': list('0123456789'), 'b': list('0123456789')}
  every = search.choose(grid, 0, 0)
  assert len(every) == 100 and search.choose(grid, 100, 0) == every
  some = search.choose(grid, 7, 0)
  assert len(some) == 7 and some == search.choose(grid, 7, 0)
  assert some == [
    cell for cell in every if cell in some
  ]  # distinct cells of the grid, in its order
  assert any(search.choose(grid, 7, seed) != some for seed in (1, 2, 3))
  more = search.choose(grid, 9, 0)
  assert len(more) == 9 and all(cell in more for cell in some)  # a larger budget repeats no run


def test_a_budget_is_said(runs, capsys):
  start(LR, '--budget=2')
  assert len(runs) == 2
  assert '2 of 3 cells, chosen at random by data.seed=0' in capsys.readouterr().out


def test_an_interrupted_sweep_goes_on_where_it_was(runs, capsys):
  runs.ends = {0.01: 75}
  assert start(LR) == 75
  assert [c.client.lr for c, _ in runs] == [0.001, 0.01]
  assert 'python launch/main.py' not in capsys.readouterr().out
  runs.ends = {}
  assert start(LR) == 0
  assert [c.client.lr for c, _ in runs] == [0.001, 0.01, 0.01, 0.1]
  assert start(LR) == 0 and len(runs) == 4  # all finished
  start(LR, '--config.rounds=29')
  assert (
    len(runs) == 7
  )  # other settings are other cells, to be refused or resumed by the experiment


def test_a_request_in_the_last_stretch_of_a_cell_begins_no_other(runs, capsys):
  """The cell still comes to its end and its status is 0; the run's own handlers took the signal."""
  runs.signalled = 0.01
  assert start(LR) == 75
  assert [c.client.lr for c, _ in runs] == [0.001, 0.01]
  assert 'python launch/main.py' not in capsys.readouterr().out
  runs.signalled = None
  assert start(LR) == 0
  assert [c.client.lr for c, _ in runs] == [0.001, 0.01, 0.1]


def test_a_cell_of_another_process_is_waited_for(runs, capsys, monkeypatch):
  other = contextlib.ExitStack()
  other.enter_context(lock.hold(pathlib.Path('W/client.lr=0.01')))
  monkeypatch.setattr(
    work_list.time, 'sleep', lambda s: other.close() if s == work_list.POLL else None
  )
  assert start(LR) == 0
  assert [c.client.lr for c, _ in runs] == [0.001, 0.1, 0.01]
  left = json.loads(pathlib.Path('W/sweep.json').read_text())
  assert [cell['mean'] for cell in left['cells']] == [0.6, 0.8, 0.7]  # in the grid's order
  assert left['best']['values'] == {'client.lr': '0.01'}
  assert 'waiting for client.lr=0.01 (process ' in capsys.readouterr().out


def test_a_sweep_that_stops_while_it_waits_is_75_and_recommends_nothing(runs, capsys, monkeypatch):
  stop = lambda s: signal.raise_signal(signal.SIGTERM) if s == work_list.POLL else None
  monkeypatch.setattr(work_list.time, 'sleep', stop)
  with lock.hold(pathlib.Path('W/client.lr=0.01')):
    assert start(LR) == 75
  assert 'python launch/main.py' not in capsys.readouterr().out and len(runs) == 2
  assert start(LR) == 0 and len(runs) == 3


def test_a_full_disk_ends_a_sweep(runs):
  runs.ends = {0.01: 74}
  assert start(LR) == 74 and len(runs) == 2


def test_flair_brings_its_own_validation_rows(runs, capsys):
  """A share of the training rows beside them is refused by the data set."""
  assert (
    start(f'--config={paths.CONFIGS.parent}/configs/fedcog_flair.py', '--grid=client.lr=0.001,0.01')
    == 0
  )
  assert [c.data.validation for c, _ in runs] == [0, 0]
  assert 'data.validation was 0' not in capsys.readouterr().out


def test_cells_that_diverge_or_are_refused_do_not_end_the_sweep(runs):
  runs.ends = {0.01: 3, 0.001: 2}
  assert start(LR) == 0
  left = json.loads(pathlib.Path('W/sweep.json').read_text())
  assert left['best']['values'] == {'client.lr': '0.1'}
  table = pathlib.Path('W/sweep.md').read_text()
  assert '| 0.01 | diverged |' in table and '| 0.001 | refused |' in table
  assert start(LR) == 0 and [c.client.lr for c, _ in runs[3:]] == [
    0.001
  ]  # a refused cell is tried again


def test_without_any_result_the_status_is_3(runs):
  runs.ends = {0.001: 3, 0.01: 3, 0.1: 3}
  assert start(LR) == 3
  assert json.loads(pathlib.Path('W/sweep.json').read_text())['best'] is None


@pytest.mark.parametrize(
  ('arguments', 'line'),
  [
    ([], '--grid: nothing to try'),
    (['--grid=client.lr'], '--grid client.lr: must be key=value,value'),
    (
      ['--grid=client.lr=0.1,0.1'],
      '--grid client.lr=0.1,0.1: must be key=value,value with distinct values',
    ),
    (
      [LR, '--grid=client.lr=1'],
      '--grid client.lr=1: must be key=value,value with distinct values, each key',
    ),
    (['--grid=client.lrr=0.1,0.2'], "client.lrr='0.1': no such field; nearest: client.lr"),
    (['--grid=client.lr=0.1,fast'], "client.lr='fast': must be a number"),
    (['--grid=client.lr=0.1,-1'], 'client.lr=-1.0: must be greater than 0'),
    (
      ['--grid=data.validation=0.1,0'],
      'data.validation=0.0: a sweep selects by validation accuracy',
    ),
    ([LR, '--config.compare=dynafed'], "compare='dynafed': is the algorithm itself"),
    ([LR, '--budget=-1'], 'flag --budget=-1'),
  ],
)
def test_a_bad_grid_is_refused_before_any_cell_runs(arguments, line, runs, capsys):
  with pytest.raises(SystemExit) as end:
    start(*arguments)
  err = capsys.readouterr().err
  assert end.value.code == 2 and not runs
  assert err.startswith(line) and err.count('\n') == 1


@pytest.mark.parametrize(
  'content', ['', '[]', '{"cells": 3}', '{"cells": [{"folder": "x"}]}', None, 'a digit'], ids=str
)
def test_damaged_records_are_not_believed(runs, capsys, content):
  """A changed digit made another setting the best."""
  assert start(LR) == 0 and len(runs) == 3
  path = pathlib.Path('W/sweep.json')
  text = path.read_text()
  assert json.loads(text)['best']['mean'] == 0.8
  if content is None:
    path.unlink()
    path.mkdir()
  else:
    changed = text.replace('"mean": 0.6', '"mean": 0.9')
    path.write_text(changed if content == 'a digit' else content)
  capsys.readouterr()
  if content is None:
    with pytest.raises(SystemExit):  # it cannot be written either
      start(LR)
    (line,) = capsys.readouterr().err.splitlines()
    assert 'W/sweep.json is a folder' in line and len(runs) == 3
    return
  assert start(LR) == 0 and len(runs) == 6  # folders that are whole cost nothing to open
  out = capsys.readouterr().out
  assert 'WARNING: W/sweep.json is damaged' in out
  assert json.loads(path.read_text())['best']['values'] == {'client.lr': '0.01'}
