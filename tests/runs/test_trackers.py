"""Trackers: what each is told, a resumed run keeps its name, and a failed tracker stops no run."""

import importlib.util
import json
import sys
import types

import numpy as np
import pytest
from PIL import Image

from fedjax_syn import config as config_lib
from fedjax_syn.config import identity
from fedjax_syn.runs import experiment, trackers
from tests.run_helpers import config_of

pytest_plugins = ['tests.run_fixtures']

LINES = [
  {'round': 1, 'seed': 0, 'test/accuracy': 0.5, 'seconds': 1.0},
  {'round': 2, 'seed': 0, 'test/accuracy': 0.75},
]
SETTINGS = {'client.lr': 0.1, 'seeds': [0, 1]}


def opened(folder, *names, lines=(), say=pytest.fail):
  return trackers.Trackers(folder, names, SETTINGS, lines, say)


@pytest.fixture
def picture(tmp_path):
  path = tmp_path / 'figures' / 'accuracy.png'
  path.parent.mkdir()
  Image.fromarray(np.zeros((4, 4), np.uint8)).save(path)
  return path


def test_tensorboard_holds_every_line_once_and_settings_and_figures(tmp_path, picture):
  """Opened twice, as by a resumed run: one file, with as many scalars as the lines have numbers."""
  opened(tmp_path, lines=LINES).close()
  both = opened(tmp_path, lines=LINES[:1])
  both.write(LINES[1])
  both.results({'test_accuracy/last': 0.75}, [picture])
  both.close()
  (file,) = tmp_path.glob('events.out.*')
  assert file.read_bytes().count(b'seed_0/test/accuracy') == 2
  assert file.read_bytes().count(b'seed_0/seconds') == 1
  assert b'figures/accuracy' in file.read_bytes() and b'\x89PNG' in file.read_bytes()
  (file,) = (tmp_path / 'hparams').glob('events.out.*')
  assert b'client.lr' in file.read_bytes() and b'results/test_accuracy/last' in file.read_bytes()
  assert not (tmp_path / trackers.NOTE).exists()  # nobody else was told


class FakeWandB(types.ModuleType):
  """What `WandB` calls of the package."""

  def __init__(self):
    super().__init__('wandb')
    self.begun, self.logged, self.summary, self.finished = [], [], {}, 0
    self.id, self.Image = 'abc', str

  def init(self, **arguments):
    self.begun.append(arguments)
    return self

  def define_metric(self, *names, **axes):
    pass

  def log(self, values):
    self.logged.append(values)

  def finish(self):
    self.finished += 1


class FakeMLflow(types.ModuleType):
  """What `MLflow` calls of the package."""

  def __init__(self):
    super().__init__('mlflow')
    self.metrics, self.params, self.runs, self.files, self.ended = [], [], 0, [], 0
    self.MlflowClient = lambda: self
    self.entities = types.SimpleNamespace(Metric=lambda *a: a, Param=lambda *a: a)

  def get_experiment_by_name(self, name):
    return None

  def create_experiment(self, name):
    return name

  def create_run(self, experiment, run_name):
    self.runs += 1
    return types.SimpleNamespace(info=types.SimpleNamespace(run_id=f'run {self.runs}'))

  def update_run(self, run, status):
    assert (run, status) == ('run 1', 'RUNNING')

  def log_batch(self, run, metrics=(), params=()):
    assert run == 'run 1' and len(params) <= 100 and len(metrics) <= 1000
    self.metrics += [(name, value, step) for name, value, _, step in metrics]
    self.params += params

  def log_artifact(self, run, path, folder):
    self.files.append((path, folder))

  def set_terminated(self, run):
    self.ended += 1


def put(monkeypatch, module):
  monkeypatch.setitem(sys.modules, module.__name__, module)
  if hasattr(module, 'entities'):
    monkeypatch.setitem(sys.modules, 'mlflow.entities', module.entities)
  return module


def twice(folder, name, picture):
  """A run that is interrupted after round 1 and resumed."""
  opened(folder, name, lines=LINES[:1]).close()
  both = opened(folder, name, lines=LINES[:1])
  both.write(LINES[1])
  both.results({'test_accuracy/last': 0.75}, [picture])
  both.close()


def test_wandb_is_told_once_and_goes_on(tmp_path, picture, monkeypatch):
  fake = put(monkeypatch, FakeWandB())
  twice(tmp_path, 'wandb', picture)
  assert [begun['id'] for begun in fake.begun] == [None, 'abc']
  assert fake.begun[0]['config'] == SETTINGS and fake.begun[0]['resume'] == 'allow'
  assert fake.logged == [
    {'round': 1, 'seed_0/test/accuracy': 0.5, 'seed_0/seconds': 1.0},
    {'round': 2, 'seed_0/test/accuracy': 0.75},
    {'figures/accuracy': str(picture)},
  ]
  assert fake.summary == {'results/test_accuracy/last': 0.75} and fake.finished == 2


def test_mlflow_is_told_once_and_goes_on(tmp_path, picture, monkeypatch):
  fake = put(monkeypatch, FakeMLflow())
  twice(tmp_path, 'mlflow', picture)
  assert fake.params == [('client.lr', '0.1'), ('seeds', '[0, 1]')]
  assert fake.metrics == [
    ('seed_0/test/accuracy', 0.5, 1),
    ('seed_0/seconds', 1.0, 1),
    ('seed_0/test/accuracy', 0.75, 2),
    ('results/test_accuracy/last', 0.75, 0),
  ]
  assert fake.files == [(str(picture), 'figures')] and fake.ended == 1


def test_a_tracker_that_fails_is_named_once_and_costs_no_run(fake, tmp_path, monkeypatch, capsys):
  broken = put(monkeypatch, FakeWandB())
  broken.log = lambda values: 1 / 0
  monkeypatch.setattr(importlib.util, 'find_spec', lambda name: True)
  assert experiment.run_experiment(config_of(trackers=('wandb',)), tmp_path) == 0
  (said,) = [line for line in capsys.readouterr().out.splitlines() if 'WARNING' in line]
  assert "trackers='wandb'" in said and 'ZeroDivisionError' in said
  assert json.loads((tmp_path / 'summary.json').read_text())['status']['1']['status'] == 'finished'


def test_a_tracker_that_is_not_installed_is_refused(monkeypatch):
  monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
  with pytest.raises(
    ValueError, match=r"trackers='mlflow': is not installed; pip install .*\[mlflow\]"
  ):
    config_lib.check(config_of(trackers=('mlflow',)))


def test_who_is_told_makes_no_other_run(monkeypatch):
  monkeypatch.setattr(importlib.util, 'find_spec', lambda name: True)
  told, plain = config_of(trackers=('wandb',)), config_of()
  assert identity.hash8(told) == identity.hash8(plain)
  assert not identity.diff(plain, told)
