"""What sets give away: copies of training images are found, of each method's images."""

import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_syn import config as config_lib
from fedjax_syn.algorithms.dynafed import dynamics
from fedjax_syn.algorithms.set_sharing.class_sets import ClassSet
from fedjax_syn.data import federated
from fedjax_syn.papers import given_away
from fedjax_syn.runs import restore


def begun(algorithm, **settings):
  """A run on digits, with its initial model."""
  config = config_lib.get_default()
  chosen = {
    'algorithm': algorithm,
    'compare': '',
    'model.name': 'mlp',
    'model.width': 8,
    **settings,
  }
  for key, value in chosen.items():
    config_lib.override(config, key, str(value))
  return restore.begin(config_lib.check(config), 0)


def test_copies_of_half_of_the_training_rows():
  """Half of the members have distance 0: the area is 1/2 + 1/4, and all copies are near."""
  run = begun('fedavg')
  train = run.problem.dataset.train
  x = federated.normalise(run.problem.data, jnp.asarray(train.x[::2]))
  syn = dynamics.labelled(x, jnp.asarray(train.y[::2]), 10, jnp.zeros(()))
  report = given_away.measure(given_away.Set(run, syn), steps=200)
  attacks = report['membership']
  assert report['images'] == len(train.y) // 2 and report['nearest']['share_nearer'] == 1
  assert attacks['distance']['auc'] == pytest.approx(0.75, abs=0.03)
  for control in ('distance, noise', 'loss, network before training'):
    assert attacks[control]['auc'] == pytest.approx(0.5, abs=4 * attacks[control]['std_error'])
  assert report['accuracy_from_scratch'] > 0.3


def test_the_sets_that_clients_sent(monkeypatch, tmp_path):
  """Of two clients, one with classes 0 and 2 and one with 2: three classes of two images."""
  run = begun(
    'feddm', **{'data.clients': 2, 'client.participation': 1, 'feddm.images_per_class': 2}
  )
  x = jnp.arange(2 * 10 * 2 * 64.0).reshape(2, 10, 2, 8, 8, 1)
  present = jnp.zeros((2, 10), bool).at[0, jnp.array([0, 2])].set(True).at[1, 2].set(True)
  state = run.state.server['feddm']._replace(sets=ClassSet(x, present))
  run = run._replace(state=run.state._replace(server={**run.state.server, 'feddm': state}))
  opened = restore.Opened(tmp_path, run.config, {})
  monkeypatch.setattr(restore, 'read', lambda folder: opened)
  monkeypatch.setattr(restore, 'restore', lambda *_, **__: run)
  syn = given_away.open_set(tmp_path, 0).syn
  expected = np.concatenate([x[0, 0], x[0, 2], x[1, 2]])
  np.testing.assert_array_equal(syn.x, expected)
  np.testing.assert_array_equal(syn.y.argmax(1), [0, 0, 2, 2, 2, 2])


def test_fedavg_makes_no_images(monkeypatch, tmp_path):
  opened = restore.Opened(tmp_path, begun('fedavg').config, {})
  monkeypatch.setattr(restore, 'read', lambda folder: opened)
  with pytest.raises(ValueError, match="algorithm='fedavg' makes no images"):
    given_away.open_set(tmp_path, 0)
