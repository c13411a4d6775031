"""What a run's methods share."""

import pathlib

import numpy as np

from fedjax_syn import config as config_lib
from fedjax_syn.data import held_out
from fedjax_syn.data.dataset import make
from fedjax_syn.data.settings import Data
from fedjax_syn.data.split import Split
from fedjax_syn.runs import assemble


def test_all_methods_of_a_run_use_the_same_training_rows_on_each_device():
  settings = {
    'algorithm': 'fedprox',
    'compare': 'fedavg,fedavgm',
    'layout.devices': 4,
    'client.participation': 1.0,
  }
  small = {'data.clients': 4, 'model.name': 'mlp', 'model.width': 4, 'model.depth': 1}
  resolved = config_lib.check({**settings, **small})
  jobs = assemble.jobs(resolved, pathlib.Path('nowhere'), assemble.load(resolved), None)
  assert len(jobs) == 3
  first, *others = (job.engine.data.x for job in jobs)
  assert len(first.sharding.device_set) == 4 and all(x is first for x in others)


def test_personal_models_are_measured_on_test_rows_and_on_held_out_rows():
  """Rows show their client."""
  x = np.arange(30, dtype=np.uint8).reshape(-1, 1, 1, 1) % 3
  rows, owners = Split(x, np.arange(30) // 15), x.ravel().astype(np.int32)
  data = make('own', 'own', rows, rows, 2, 'unit', clients=owners, test_clients=owners)
  data = held_out.hold_out(data, 'validation', 0.2, 0)
  settings = Data(partition='natural', clients=3)
  problem = assemble.problem_of(data, settings, lambda: None)
  calls = []

  class Engine:
    def personal(self, x, y, owners):
      calls.append((x, owners))
      return lambda seed, state: None

  assert len(assemble.round_measures(Engine(), problem, {}, 1, 1)) == 1
  assert [len(x) for x, _ in calls] == [30, 6]
  assert all((x.ravel() == of).all() for x, of in calls)
  assert assemble.round_measures(Engine(), problem, {}, 0, 1) == () and len(calls) == 2
