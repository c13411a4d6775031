"""Whole rounds of FedDM and FedDualMatch on a few digits.

The clients have no class, one, some and all classes.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_syn as fs
from fedjax_syn.algorithms.set_sharing import distribution_matching as dm
from fedjax_syn.algorithms.set_sharing.base import perturb_weights
from fedjax_syn.core.keys import fold
from fedjax_syn.core.types import Variables
from fedjax_syn.data.builders import digits
from fedjax_syn.models import create
from tests import tiny

ALL, ONE, NONE, SOME = range(4)  # clients
SIZES = (300, 30, 0, 120)


def data():
  """300 rows of every class, 30 of class 3, none, and 120 of the classes 0 to 4."""
  x, y = digits.read()[0]
  rng = np.random.default_rng(0)
  everyone = rng.permutation(len(y))[:300]
  rest = np.setdiff1d(np.arange(len(y)), everyone)
  ones = rest[y[rest] == 3][-30:]
  few = np.setdiff1d(rest[y[rest] < 5], ones)[:120]
  rows = np.concatenate([everyone, ones, few])
  mean, std = jnp.array([0.3061]), jnp.array([0.3763])
  return tiny.clients_of(x[rows], y[rows], SIZES, 10)._replace(mean=mean, std=std)


def net(width=32, depth=2):
  return create('mlp', shape=(8, 8, 1), num_classes=10, width=width, depth=depth, init='torch')


def trained(method, rounds=2, seed=0):
  engine = tiny.build(method, net(), data())
  state, report = engine.run(seed, engine.init(seed), rounds)
  test = digits.read()[1]
  accuracy = engine.evaluator(test.x, test.y)(state.params, state.stats)['accuracy']
  return engine, state, report, accuracy


SMALL_DM = {'iterations': 30, 'real_batch': 32, 'server_steps': 100, 'images_per_class': 4}
SMALL = {
  'iterations': 15,
  'matches': 2,
  'match_steps': 2,
  'server_steps': 100,
  'server_lr': 3e-3,
  'images_per_class': 4,
}
# Four images of 8 x 8 float32 pixels per class, and a byte per class that says whether it is there.
BYTES = {ALL: 10 * 4 * 256 + 10, ONE: 4 * 256 + 10, NONE: 10, SOME: 5 * 4 * 256 + 10}


@pytest.mark.parametrize(
  'method',
  [
    pytest.param(fs.FedDM(**SMALL_DM), marks=pytest.mark.slow),
    fs.FedDualMatch(**SMALL),
    pytest.param(fs.FedDualMatch(**SMALL | {'matches': 0}), marks=pytest.mark.slow),
    pytest.param(fs.FedDualMatch(**SMALL, alternate=True, restart=False), marks=pytest.mark.slow),
  ],
  ids=['feddm', 'feddualmatch', 'without-ggm', 'alternating'],
)
def test_the_global_model_learns_from_sets_alone(method):
  """Two rounds, 16 classes of four images in all: the accuracy is over twice chance.

  The bytes are those counted by hand.
  """
  engine, state, report, accuracy = trained(method)
  assert accuracy > 0.2
  sent = 4 * (10 + 1 + 5)
  assert report[f'{method.name}/images'] == sent
  up, down = engine.bytes_per_round()
  assert up == sum(BYTES.values())
  parameters = sum(leaf.size for leaf in jax.tree.leaves(state.params))
  radius = 1 if method.name == 'feddualmatch' else 0
  assert down == 4 * 4 * (parameters + radius)
  assert report[f'{method.name}/classes'] == pytest.approx(
    (10 + 1 + 5) / 3
  )  # of those with samples


@functools.lru_cache(maxsize=1)
def update_of(engine):
  """A client's update in round 1, compiled for all clients."""
  layer, task = engine.chain.client_update, engine.task()

  @jax.jit
  def update(seen):
    message, _, numbers = layer.client_update(seen._replace(task=task))
    return message, numbers

  return update


def updated(engine, client):
  """What a client's update returns: its message, and numbers."""
  seen = tiny.client_of(engine, type(engine.chain.client_update), client)
  return update_of(engine)(seen._replace(task=None))


@pytest.mark.parametrize('make', [lambda: fs.FedDM(**SMALL_DM), lambda: fs.FedDualMatch(**SMALL)])
def test_what_a_client_sends(make):
  """Present classes as they should be; absent ones are zeros; an empty client weighs nothing."""
  method = make()
  engine = tiny.build(method, net(), data())
  present = {ALL: [1] * 10, ONE: [0] * 3 + [1] + [0] * 6, NONE: [0] * 10, SOME: [1] * 5 + [0] * 5}
  for client, expected in present.items():
    message, numbers = updated(engine, client)
    sent = message.payload[method.name]
    np.testing.assert_array_equal(sent['present'], expected)
    there = np.abs(np.asarray(sent['x'])).max(axis=(1, 2, 3, 4)) > 0
    np.testing.assert_array_equal(there, np.array(expected, bool))
    assert message.weight == float(client != NONE) and numbers['finite']


@pytest.mark.parametrize('make', [fs.FedDM, fs.FedDualMatch])
def test_images_that_begin_as_real_ones_are_the_class_s_own(make):
  """A rate of almost nothing leaves the images as they were.

  Their pixels have steps of 1/255, divided by a deviation of 0.38.
  """
  fields = {'init': 'real', 'iterations': 1, 'lr': 1e-9, 'images_per_class': 3}
  method = make(**fields)
  engine = tiny.build(method, net(8, 1), data())
  message, _ = updated(engine, SOME)
  own = data()
  rows = own.order[-SIZES[SOME] :]
  real = (np.asarray(own.x[rows], np.float32) / 255 - 0.3061) / 0.3763
  sent = np.asarray(message.payload[method.name]['x'])
  for c in range(5):
    candidates = real[np.asarray(own.y[rows]) == c]
    apart = np.abs(sent[c][:, None] - candidates[None]).max(axis=(2, 3, 4))
    assert (apart.min(axis=1) < 1e-4).all()
    assert len(np.unique(apart.argmin(axis=1))) > 1 or len(candidates) == 1


def test_feddm_leaves_out_classes_with_few_samples():
  """A class of a client needs ten samples; with 31 client ONE sends nothing."""
  method = fs.FedDM(**SMALL_DM | {'least': 31, 'iterations': 1, 'server_steps': 2})
  engine = tiny.build(method, net(8, 1), data())
  _, report = engine.run(0, engine.init(0), 1)
  counts = np.asarray(data().class_counts)
  kept = int((counts >= 31).sum())
  assert report['feddm/images'] == 4 * kept and 0 < kept < 16
  assert engine.bytes_per_round()[0] == 4 * 10 + 4 * kept * 256


def test_without_any_set_the_model_stays():
  """Nobody has a class with 1,000 samples: nothing is trained, nothing is lost."""
  method = fs.FedDM(**SMALL_DM | {'least': 1000, 'iterations': 1, 'server_steps': 2})
  engine = tiny.build(method, net(8, 1), data())
  before = jax.tree.map(np.array, engine.init(0).params)
  state, _ = engine.run(0, engine.init(0), 1)
  for a, b in zip(*map(jax.tree.leaves, (before, state.params)), strict=True):
    np.testing.assert_array_equal(a, b)


def test_matching_moves_the_features_of_every_present_class_nearer():
  """Mean squared distance of the class means, all layers, at the start (noise) and at the end."""
  losses = {}
  for iterations in (1, 60):
    method = fs.FedDualMatch(**SMALL | {'iterations': iterations})
    engine = tiny.build(method, net(8), data())
    losses[iterations] = float(updated(engine, ALL)[1]['loss'].value)
  assert losses[60] < 0.3 * losses[1]


@pytest.mark.parametrize(
  ('alignment', 'per_stage', 'iterations'),
  [('backward', True, 30), ('backward', False, 15), ('all', True, 15), ('last', True, 15)],
)
def test_iterations_of_the_stages(alignment, per_stage, iterations, monkeypatch):
  """Two pooled layers are two stages, of 15 iterations each or 15 in all.

  All layers at once are one stage, and so is the last layer.
  """
  seen = []

  def spy(loss, start, steps, **rest):
    seen.append(steps)
    return start

  monkeypatch.setattr(dm, 'descend', spy)
  method = fs.FedDualMatch(**SMALL, alignment=alignment, per_stage=per_stage)
  engine = tiny.build(method, net(), data())
  method.client_update(tiny.client_of(engine, fs.FedDualMatch, ONE))
  assert seen == [iterations]


def test_the_order_of_the_layers_in_time(monkeypatch):
  """In the first half of the iterations the loss uses the last layer, in the second half both.

  For the images x of class 3 the loss is the sum of the squared distances of the layers' class
  means.
  """
  caught = {}

  def spy(loss, start, steps, **rest):
    caught.update(loss=loss, start=start, steps=steps)
    return start

  monkeypatch.setattr(dm, 'descend', spy)
  method = fs.FedDualMatch(**SMALL)
  engine = tiny.build(method, net(), data())
  found = data()
  client = tiny.client_of(engine, fs.FedDualMatch, ONE)
  method.client_update(client)
  x, parts = caught['start'].x[3], []
  w = Variables(perturb_weights(fold(client.key, 0), client.params, 5.0), client.stats)
  rows = (np.asarray(found.x[300:330], np.float32) / 255 - 0.3061) / 0.3763
  for real, synthetic in zip(
    dm.layers(engine.model, w, jnp.asarray(rows), 'pooled'),
    dm.layers(engine.model, w, x, 'pooled'),
    strict=True,
  ):
    parts.append(float(((real.mean(0) - synthetic.mean(0)) ** 2).sum()))
  value = lambda i: float(caught['loss'](jnp.int32(i))(x, jnp.int32(3)))
  assert caught['steps'] == 30
  for i in (0, 14):
    np.testing.assert_allclose(value(i), parts[1], rtol=1e-3)
  for i in (15, 29, 30):
    np.testing.assert_allclose(value(i), sum(parts), rtol=1e-3)


def test_the_radius_is_sent_in_the_next_round():
  """R_0 = 5 at first, then what was computed from the sets, with noise where that is asked for."""
  quick = SMALL | {'matches': 0, 'server_steps': 1, 'iterations': 2}
  radii = []
  for sigma in (0.0, 1.0):
    engine = tiny.build(fs.FedDualMatch(**quick, sigma_r=sigma), net(8, 1), data())
    state = engine.init(0)
    assert float(state.server['feddualmatch'].radius) == 5.0
    state, report = engine.run(0, state, 1)
    radii.append(report['feddualmatch/radius'])
    assert float(state.server['feddualmatch'].radius) == radii[-1]
  assert 0 < radii[0] != 5.0 and radii[1] >= 0 and abs(radii[1] - radii[0]) > 1e-3


@pytest.mark.parametrize('make', [fs.FedDM, fs.FedDualMatch])
def test_after_a_layer_that_trains_locally_they_are_refused(make):
  with pytest.raises(ValueError, match="cannot come after 'fedprox': its clients send data"):
    fs.chain(fs.FedProx(), make())
