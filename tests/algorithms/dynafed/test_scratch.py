"""Training from scratch: gradient descent by hand, and what a set with the right labels teaches."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_syn import models
from fedjax_syn.algorithms.dynafed.scratch import train_from_scratch
from fedjax_syn.algorithms.dynafed.synthetic_set import SyntheticSet, soft_cross_entropy
from fedjax_syn.core.types import Variables
from tests import tiny


def set_of(images=6, side=2, classes=3):
  keys = jax.random.split(jax.random.key(2), 2)
  x = jax.random.normal(keys[0], (images, side, side, 1))
  return SyntheticSet(x, 3 * jax.random.normal(keys[1], (images, classes)), jnp.zeros(()))


def remember(seen):
  def evaluate(params, stats):
    seen.append(Variables(params, stats))
    return {'accuracy': len(seen) / 10}

  return evaluate


def test_it_is_gradient_descent_from_the_key_s_initial_weights():
  """Seven steps of SGD, replayed one by one, are evaluated after 0, 3, 6 and 7."""
  model, syn, key, seen = tiny.net(4, 3), set_of(), jax.random.key(5), []
  found = train_from_scratch(
    key, model, syn, remember(seen), optimizer=optax.sgd(0.2), steps=7, every=3
  )
  np.testing.assert_array_equal(found.steps, [0, 3, 6, 7])
  np.testing.assert_allclose(found.accuracy, [0.1, 0.2, 0.3, 0.4])
  w, expected = model.init(key).params, []
  loss = lambda w: soft_cross_entropy(model.apply(Variables(w, {}), syn.x).logits, syn.y)
  slope = jax.jit(jax.grad(loss))
  for step in range(8):
    if step in (0, 3, 6, 7):
      expected.append(w)
    w = jax.tree.map(lambda p, g: p - 0.2 * g, w, slope(w))
  for mine, theirs in zip(seen, expected, strict=True):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), mine.params, theirs)
  jax.tree.map(np.testing.assert_array_equal, found.variables, seen[-1])


def test_moments_and_batches_go_on_across_evaluations():
  """Adam on batches of four ends at the same weights however often one looks."""
  model, syn, key = tiny.net(4, 3), set_of(), jax.random.key(5)
  ends = [
    train_from_scratch(
      key,
      model,
      syn,
      remember([]),
      optimizer=optax.adam(0.1),
      steps=6,
      every=every,
      batch_size=batch,
    ).variables
    for every, batch in ((1, 4), (6, 4), (6, 0))
  ]
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), ends[0], ends[1])
  assert float(jnp.abs(ends[0].params['w1'] - ends[2].params['w1']).max()) > 1e-3


def test_a_set_teaches_its_labels():
  model, syn = tiny.net(4, 3), set_of()

  def evaluate(params, stats):
    logits = model.apply(Variables(params, stats), syn.x).logits
    return {'accuracy': float(jnp.mean(logits.argmax(-1) == syn.y.argmax(-1)))}

  found = train_from_scratch(
    jax.random.key(0), model, syn, evaluate, optimizer=optax.adam(0.1), steps=200, every=200
  )
  assert found.accuracy[0] < 1 and found.accuracy[-1] == pytest.approx(1)


def test_running_statistics_are_those_of_the_training():
  """BatchNorm with the initial statistics (mean 0, variance 1) would be another network."""
  model = models.create('convnet', shape=(4, 4, 1), num_classes=3, width=2, depth=1, norm='batch')
  found = train_from_scratch(
    jax.random.key(0),
    model,
    set_of(side=4),
    remember([]),
    optimizer=optax.sgd(0.1),
    steps=2,
    every=2,
  )
  before = model.init(jax.random.key(0)).stats
  moved = jax.tree.map(lambda a, b: float(jnp.abs(a - b).max()), found.variables.stats, before)
  assert min(jax.tree.leaves(moved)) > 1e-4
