"""Networks with dropout: the key of a local step, layouts, resuming, and methods."""

import functools

import jax
import numpy as np
import pytest

import fedjax_syn as fs
from fedjax_syn import models
from fedjax_syn.client.local import RANDOM_LAYERS, STEP, shuffled
from fedjax_syn.core.keys import fold
from fedjax_syn.core.objectives import cross_entropy
from fedjax_syn.core.types import Variables
from fedjax_syn.data import federated
from fedjax_syn.engine import Engine, Layout
from tests import tiny

SIZES = [5, 0, 1, 9, 4, 2, 0, 7]
SGD = lambda **fields: fs.FedAvg(lr=0.5, optimizer='sgd', **fields)


def net(rate=0.5):
  of = {'shape': (2, 2, 1), 'num_classes': 3, 'width': 6, 'depth': 1}
  return models.create('mlp', dropout=rate, **of)


def trained(data, layout, method=None, rounds=2, model=None):
  engine = Engine(method or SGD(batch_size=4), model or net(), data, layout=layout)
  return engine, engine.run(0, engine.init(0), rounds)[0]


def near(a, b, **tolerance):
  for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
    np.testing.assert_allclose(x, y, rtol=0, **tolerance)


def test_a_local_step_by_hand():
  """Two full-batch steps of one client: the mask of a step follows from client, round and step."""
  data = tiny.federated([6])
  engine, state = trained(data, Layout(1, 'loop', 1), SGD(batch_size=0, epochs=2), rounds=1)
  start = engine.init(0)
  key = engine.client_context(0, start, 0).key
  model, w = net(), start.params
  x, y = federated.normalise(data, data.x), data.y
  # The order of the samples decides which of them a row of the mask is for.

  @functools.partial(jax.jit, static_argnames='drops')
  @jax.grad
  def slope(w, step, order, drops):
    drawn = fold(fold(key, step, STEP), 0, RANDOM_LAYERS) if drops else None
    out = model.apply(Variables(w, {}), x[order], train=True, key=drawn)
    return cross_entropy(out.logits, y[order], np.ones(6, np.float32))

  def steps(w, drops):
    for step in range(2):
      order = shuffled(key, step, data.positions, 6)[:6]
      grads = slope(w, step, order, drops=drops)
      w = jax.tree.map(lambda w, g: w - 0.5 * g, w, grads)
    return w

  near(state.params, steps(w, True), atol=1e-6)
  without = steps(w, False)['head']['kernel']
  assert np.abs(state.params['head']['kernel'] - without).max() > 1e-3


def test_layouts_placements_and_resuming_draw_the_same():
  """Blocks, devices and a plain loop agree; host memory and a stop between rounds change no bit."""
  data = tiny.federated(SIZES)
  loop, layout = trained(data, Layout(1, 'loop', 1))[1].params, Layout(3, 'blocks', 2)
  engine, state = trained(data, layout)
  near(state.params, loop, atol=1e-6)
  host = trained(jax.tree.map(np.asarray, data), layout)[1]
  near(host.params, state.params, atol=0)
  once = engine.run(0, engine.init(0), 1)[0]
  near(engine.run(0, once, 1)[0].params, state.params, atol=0)


def test_evaluation_is_deterministic():
  data = tiny.federated([6, 6])
  engine, state = trained(data, Layout(1, 'loop', 1), rounds=1)
  plain = Engine(SGD(batch_size=4), net(0.0), data, layout=Layout(1, 'loop', 1))
  x, y = np.asarray(data.x), np.asarray(data.y)
  scores = (e.evaluator(x, y)(state.params, state.stats) for e in (engine, engine, plain))
  first, again, without = scores
  assert first == again == without


@pytest.mark.parametrize('rate, words', [(1.0, '0 <= p < 1'), (-0.1, '0 <= p < 1')])
def test_rates_that_are_refused(rate, words):
  with pytest.raises(ValueError, match=words):
    net(rate)


def test_networks_without_dropout_say_so():
  with pytest.raises(ValueError, match='dropout = 0.5: is for mlp, convnet1d, not lenet; 0 would'):
    models.create('lenet', shape=(32, 32, 1), num_classes=3, dropout=0.5)
