"""What a run's methods share."""

import pathlib

from fedjax_syn import config as config_lib
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
