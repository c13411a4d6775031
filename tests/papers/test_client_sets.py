"""Sets of a finished run: they are the run's own, what is measured of them, and what is refused."""

import functools
import json
import shutil

import jax
import numpy as np
import pytest

import fedjax_syn as fs
from fedjax_syn.algorithms.set_sharing import gradient_matching
from fedjax_syn.cli import export, inspect, jax_setup
from fedjax_syn.papers import post_run
from fedjax_syn.papers.feddualmatch import client_sets
from fedjax_syn.runs import experiment, stored_files
from fedjax_syn.tables import spec
from fedjax_syn.tables.post_run import compute
from tests.plotting.test_figures import assert_picture
from tests.run_helpers import config_of

CHANGES = {
  'algorithm': 'feddualmatch',
  'rounds': 1,
  'seeds': (0,),
  'data.partition': 'dirichlet',
  'data.alpha': 0.5,
  'data.clients': 4,
  'client.participation': 1.0,
  'feddualmatch.images_per_class': 2,
  'feddualmatch.iterations': 3,
  'feddualmatch.matches': 1,
  'feddualmatch.match_steps': 2,
  'feddualmatch.server_steps': 4,
}


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  """A tiny run."""
  folder = tmp_path_factory.mktemp('run')
  assert experiment.run_experiment(config_of(**CHANGES), folder) == 0
  return folder


def test_the_sets_are_those_that_the_run_would_send(folder):
  """The next round of the engine has the same radius R_t, which is computed from all sets."""
  run = client_sets.open_run(folder, 0)
  sets = client_sets.distil(run)
  np.testing.assert_array_equal(sets.present, run.problem.counts > 0)
  state, _ = run.engine.run(0, run.state, 1)
  w, stats = jax.tree.map(np.asarray, client_sets.open_run(folder, 0).state[1:3])
  rate = fs.FedDualMatch().radius_lr
  radius_of = functools.partial(gradient_matching.radius, run.problem.model, lr=rate)
  radius = jax.jit(radius_of)(w, stats, sets)
  np.testing.assert_allclose(state.server['feddualmatch'].radius, radius, rtol=1e-3)


def test_inspection_leaves_numbers_and_a_picture(folder, monkeypatch, capsys):
  monkeypatch.setattr(jax_setup, 'prepare_jax', lambda *_: None)
  monkeypatch.setattr(client_sets, 'POINTS', 2)  # each number of steps is compiled
  assert inspect.main(['inspect_run.py', str(folder)]) == 0
  assert_picture(folder / 'figures' / 'client_set.png')
  found = json.loads((folder / 'inspect.json').read_text())
  names = ('spread_data', 'spread_before', 'spread_after', 'sigma_d', 'sigma_g')
  assert all(found[name] > 0 for name in names)
  assert found['spread_after'] < found['spread_before']  # what gradient matching is for
  assert 'sigma_g: ' in capsys.readouterr().out
  compute(post_run.CLIENT_SETS, folder, 0, spec.SCALES['smoke'])
  stored = json.loads((folder / 'client_sets.json').read_text())
  np.testing.assert_allclose([stored[n] for n in names], [found[n] for n in names], rtol=1e-4)


def test_other_runs_are_refused(folder, tmp_path):
  stored = json.loads((folder / 'config.json').read_text())
  stored_files.write_json(tmp_path / 'config.json', stored)
  with pytest.raises(ValueError, match='no checkpoint of seed 0'):
    client_sets.open_run(tmp_path, 0)
  stored['config']['algorithm'] = 'fedprox'
  stored_files.write_json(tmp_path / 'config.json', stored)
  with pytest.raises(ValueError, match="'fedprox': its clients send no sets"):
    client_sets.open_run(tmp_path, 0)


def test_the_first_seed_that_has_a_model_is_looked_into(folder, tmp_path):
  shutil.copytree(folder / 'checkpoints', tmp_path / 'checkpoints')
  stored = json.loads((folder / 'config.json').read_text())
  stored['config']['seeds'] = [5, 0]  # 5 diverged in round 1, say
  stored_files.write_json(tmp_path / 'config.json', stored)
  assert client_sets.open_run(tmp_path, None).seed == 0
  with pytest.raises(ValueError, match='no checkpoint of seed 5'):
    client_sets.open_run(tmp_path, 5)


def test_the_sets_of_the_last_round_are_kept_and_exported(folder, tmp_path):
  """Two images for each class that a client has, in the order of the clients' messages."""
  present = client_sets.open_run(folder, 0).problem.counts > 0
  learned = fs.load(folder).synthetic
  x, y = learned['x'], learned['y']
  assert x.shape == (1, 2 * present.sum(), 8, 8, 1) and (y.sum(axis=-1) == 1).all()
  np.testing.assert_array_equal(y[0].sum(axis=0), 2 * present.sum(axis=0))
  assert np.isfinite(x).all() and (x.std(axis=(2, 3, 4)) > 0).all()
  assert (folder / 'figures' / 'synthetic.png').exists()
  lines = export.export(folder, tmp_path, ['npz', 'png'], None)
  assert [line.rpartition(': ')[2] for line in lines] == [f'{x.shape[1]} synthetic images'] * 2
