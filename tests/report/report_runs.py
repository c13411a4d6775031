"""Runs for report tests, of a fake engine: two finished, one of several seeds, one interrupted."""

import shutil

import pytest
from PIL import Image

from fedjax_syn import report
from fedjax_syn.runs import experiment
from tests.report.stored import HOSTILE, KINDS, edit
from tests.run_fixtures import put_fake, put_stubs
from tests.run_helpers import config_of


@pytest.fixture(scope='session')
def run_folders(whole_folder, tmp_path_factory):
  """Returns three run folders.

  They are DynaFed with two seeds, FedAvg with personal models and a hostile setting, and DynaFed
  interrupted.
  """
  root = tmp_path_factory.mktemp('runs')
  with pytest.MonkeyPatch.context() as patch:
    put_stubs(patch)
    put_fake(patch)
    plain = config_of(
      algorithm='fedavg', seeds=(0,), personal_every=7, targets=(0.1, 1.0), **{'client.lr': 0.5}
    )
    assert experiment.run_experiment(plain, root / 'plain') == 0
  edit(root / 'plain', lambda stored: stored['config']['data'].update(dir=HOSTILE))
  shutil.copytree(whole_folder, root / 'broken-off')
  for name in (
    'summary.json',
    'partition.npz',
    'clients',
    'synthetic',
  ):  # as an old version leaves it
    path = root / 'broken-off' / name
    shutil.rmtree(path) if path.is_dir() else path.unlink()
  return [whole_folder, root / 'plain', root / 'broken-off']


@pytest.fixture(scope='session')
def named(tmp_path_factory):
  """Runs on a folder of images of two clients, ann and bob, and of ten classes.

  The first class has a hostile name.
  """
  root = tmp_path_factory.mktemp('named')
  for client, most in (('ann', 6), ('bob', 9)):
    for name in KINDS:
      (root / 'data' / client / name).mkdir(parents=True)
      for i in range(most):
        Image.new('L', (4, 4), 9 * i).save(root / 'data' / client / name / f'{i}.png')
  data = {'data.name': 'folder', 'data.dir': str(root / 'data'), 'data.clients': 2}
  data |= {'data.partition': 'natural', 'client.participation': 1.0}
  with pytest.MonkeyPatch.context() as patch:
    put_stubs(patch)
    put_fake(patch)
    config = config_of(seeds=(0,), **data)
    assert experiment.run_experiment(config, root / 'run') == 0
  return root / 'run'


@pytest.fixture(scope='module')
def opened(run_folders):
  return report.open_runs(run_folders)
