"""Losses through a round, worked by hand; the trace ends where the engine's round ends."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedjax_syn as fs
from fedjax_syn.algorithms.dynafed.client_losses import round_losses
from fedjax_syn.algorithms.dynafed.unroll import inner_loss
from fedjax_syn.core.keys import Purpose, fold, stream
from fedjax_syn.core.optimizers import optimize
from fedjax_syn.core.sampling import SAMPLERS
from fedjax_syn.core.types import Variables
from tests import tiny


def towards(target, steps):
  """Fine-tuning that halves the distance to a target: SGD with rate 1/2 on (w - target)^2 / 2."""
  loss = lambda w, i: 0.5 * (w['w'] - target) ** 2
  return lambda w, stats, record: optimize(loss, optax.sgd(0.5), w, jnp.arange(steps), record)


def hand(every=1, clients=(0, 1), steps=2, weighting='uniform'):
  """Client A holds {0}, B {4, 4, 4}; loss (w - x)^2 / 2, SGD with rate 1/2 from w = 1."""
  method = fs.FedAvg(
    lr=0.5, optimizer='sgd', epochs=0, steps=steps, batch_size=3, weighting=weighting
  )
  return losses_of(method, clients, towards(3.0, 2), every=every)


def losses_of(method, clients, finetune, **options):
  engine = tiny.build(method, tiny.quadratic(1.0), tiny.two_points(), loss=tiny.half_square)
  keys = jax.random.split(jax.random.key(0), len(clients))
  client = engine.client_context(0, engine.init(0), 0)
  return round_losses(engine.task(), client, keys, jnp.array(clients), finetune, **options)


def test_by_hand():
  """A: w = 1, 1/2, 1/4; B: 1, 5/2, 13/4. Half the sum is 7/4; fine-tuning to 3 gives 19/8, 43/16.

  Losses are half the squared distances to 0 and to 4; the mean counts B's three rows.
  """
  found = hand()
  half_square = lambda distances: np.square(distances) / 2
  np.testing.assert_array_equal(found.at, [0, 1, 2])
  np.testing.assert_array_equal(found.steps, [2, 2])
  np.testing.assert_allclose(found.local[0], half_square([1, 1 / 2, 1 / 4]))
  np.testing.assert_allclose(found.local[1], half_square([3, 3 / 2, 3 / 4]))
  w = np.array([7 / 4, 19 / 8, 43 / 16])
  np.testing.assert_allclose(found.tuned[:, 0], half_square(w))
  np.testing.assert_allclose(found.tuned[:, 1], half_square(w - 4))
  np.testing.assert_allclose(found.mean, (half_square(w) + 3 * half_square(w - 4)) / 4)
  assert float(found.params['w']) == 43 / 16


def test_measuring_less_often_changes_nothing_else():
  """Looks after 0, 2 and 4 of three steps: the last one is after the third."""
  often, seldom = hand(every=1, steps=3), hand(every=2, steps=3)
  np.testing.assert_array_equal(seldom.at, [0, 2, 4])
  np.testing.assert_array_equal(seldom.local, often.local[:, [0, 2, 3]])
  np.testing.assert_array_equal(seldom.tuned, often.tuned)


def test_a_client_without_a_part_in_the_round_has_losses_of_the_global_model_only():
  """B alone: the aggregate is its own 13/4, and A's loss at it is (13/4)^2 / 2."""
  found = hand(clients=(1,))
  assert found.local.shape == (1, 3) and found.tuned.shape == (3, 2)
  assert found.tuned[0] == pytest.approx([(13 / 4) ** 2 / 2, (3 / 4) ** 2 / 2])


def test_size_weighting_averages_by_rows():
  """(1/4 + 3 * 13/4) / 4 = 5/2."""
  assert hand(weighting='size').tuned[0, 0] == pytest.approx(2.5**2 / 2)


FIELDS = {'length': 2, 'segment': 1, 'inner_steps': 2, 'iterations': 3, 'images_per_class': 2}


@pytest.mark.parametrize('optimizer', [pytest.param('sgd', marks=pytest.mark.slow), 'adam'])
def test_it_ends_where_the_engine_s_round_ends(optimizer):
  """Round L + 1 of a DynaFed run, from the engine's keys.

  Clients of 6, 3, 0 and 8 rows all take part. So the round has partial batches, a client without
  data, and several local steps.
  """
  sizes = [6, 3, 0, 8]
  base = fs.FedAvg(lr=0.05, optimizer=optimizer, batch_size=4, epochs=2)
  data, model = tiny.federated(sizes), tiny.net(4, 3)
  engine = tiny.build(
    fs.chain(base, fs.DynaFed(**FIELDS, finetune_steps=3, finetune_lr=0.01)), model, data
  )
  state, _ = engine.run(0, engine.init(0), 2)
  while engine.pending(state):
    state, _, _ = engine.server_work(0, state, 60.0)
  state = jax.tree.map(np.asarray, state)
  expected, _ = engine.run(0, jax.tree.map(jnp.asarray, state), 1)

  clients = SAMPLERS['fixed'](4, 1.0)[1](stream(0, Purpose.SAMPLE, 3))
  keys = jax.vmap(functools.partial(fold, stream(0, Purpose.CLIENT, 3)))(clients)
  syn = jax.tree.map(jnp.asarray, state.server['dynafed'].syn)

  def tune(w, stats, record):
    loss = lambda w, i: inner_loss(model, stats, None)(w, syn.x, syn.y, None)
    return optimize(loss, optax.adam(0.01), w, jnp.arange(3), record)

  client = engine.client_context(0, state, 0)
  found = round_losses(engine.task(3), client, keys, clients, tune)
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), found.params, expected.params
  )
  np.testing.assert_array_equal(found.steps, 2 * -(-np.array(sizes)[np.array(clients)] // 4))
  # The last fine-tuned model's loss over all rows, without clients or batches.
  x = (np.asarray(data.x) / 255 - 0.5) / 0.3
  logits = model.apply(Variables(expected.params, {}), jnp.asarray(x, jnp.float32)).logits
  losses = optax.softmax_cross_entropy_with_integer_labels(logits, data.y)
  assert found.mean[-1] == pytest.approx(float(losses.mean()), rel=1e-5)
  empty = int(np.flatnonzero(np.array(clients) == 2)[0])
  assert np.isnan(found.local[empty]).all() and np.isnan(found.tuned[:, 2]).all()
  assert np.isfinite(np.delete(found.tuned, 2, axis=1)).all()


def test_methods_that_change_local_training_are_refused():
  method = fs.chain(fs.FedAvg(optimizer='sgd'), fs.SCAFFOLD())
  with pytest.raises(ValueError, match='scaffold.*plain local training'):
    losses_of(method, (0, 1), towards(3.0, 1))
