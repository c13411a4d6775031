"""FedDF, FedBE and ABAVG, which need server data: teachers, batches, weights and refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedjax_syn as fs
from fedjax_syn.algorithms.fedbe import sharpened_mean
from fedjax_syn.algorithms.feddf import ensemble
from fedjax_syn.core.contexts import Messages, Round
from fedjax_syn.core.types import Model, Output, Variables
from fedjax_syn.data.federated import Proxy
from fedjax_syn.server.distill import distil, draw_batches
from fedjax_syn.server.models import in_batches
from tests import tiny


def with_proxy(data, rows=6, seed=3):
  rng = np.random.default_rng(seed)
  x = jnp.asarray(rng.integers(0, 256, (rows, *data.x.shape[1:])).astype(np.uint8))
  return data._replace(proxy=Proxy(x, jnp.asarray(rng.integers(0, 3, rows), jnp.int32)))


def linear(inputs=4, classes=3) -> Model:
  """logits = x W, features = x; the whole matrix is the head."""

  def apply(variables, x, train=False, mask=None):
    flat = x.reshape(x.shape[0], -1)
    return Output(flat @ variables.params['w'], flat, variables.stats)

  def init(key):
    return Variables({'w': jax.random.normal(key, (inputs, classes))}, {})

  return Model('linear', init, apply, lambda p, z: z @ p['w'], lambda path: True)


def messages_of(weight, **payload):
  weight = jnp.asarray(weight, jnp.float32)
  total = lambda w: jax.tree.map(lambda leaf: jnp.tensordot(w, leaf, 1), payload)
  return Messages(weight, total(weight), total((weight > 0).astype(jnp.float32)), payload)


def base(lr=0.1):
  return fs.FedAvg(lr=lr, optimizer='sgd', batch_size=2)


def test_feddf_teacher_averages_logits_before_the_softmax():
  """Present: logits (0, ln 3) and (ln 4, ln 3). Their mean (ln 2, ln 3) gives 2/5 and 3/5.

  The absent client's logits would change it.
  """
  logits = jnp.log(jnp.array([[[1.0, 3.0]], [[4.0, 3.0]], [[1e9, 1.0]]]))
  got = ensemble(logits, jnp.array([1.0, 1.0, 0.0]))
  np.testing.assert_allclose(got, [[0.4, 0.6]], rtol=1e-6)


def test_fedbe_teacher_averages_probabilities_and_sharpens():
  """(1/4, 3/4) and (3/4, 1/4), the first twice as heavy: (5/12, 7/12), squared 25 : 49."""
  logits = jnp.log(jnp.array([[[1.0, 3.0]], [[3.0, 1.0]]]))
  got = sharpened_mean(logits, jnp.array([2.0, 1.0]), 2.0)
  np.testing.assert_allclose(got, [[25 / 74, 49 / 74]], rtol=1e-6)


def test_distillation_step_against_numpy():
  """KL(t || softmax(x W)) has the gradient x^T (p - t) / rows. SGD takes one step on all rows."""
  data = with_proxy(tiny.federated([3, 2]))
  task, rng = tiny.build(fs.FedAvg(), linear(), data).task(), np.random.default_rng(0)
  w = rng.normal(size=(4, 3)).astype(np.float32)
  images = (np.asarray(data.proxy.x, float).reshape(6, 4) / 255 - 0.5) / 0.3
  targets = np.exp(images @ rng.normal(size=(4, 3)))
  targets /= targets.sum(1, keepdims=True)
  lookup = {tuple(np.asarray(x).ravel()): t for x, t in zip(data.proxy.x, targets, strict=True)}

  def teacher(x):
    find = lambda xs: np.stack([lookup[tuple(np.asarray(row).ravel())] for row in xs]).astype(
      np.float32
    )
    shape = jax.ShapeDtypeStruct((x.shape[0], 3), jnp.float32)
    return jax.pure_callback(find, shape, x)

  run = lambda steps, **kw: distil(
    jax.random.key(1),
    task,
    teacher,
    {'w': jnp.asarray(w)},
    {},
    optax.sgd(0.5),
    steps=steps,
    batch_size=99,
    **kw,
  )
  path, w_start = [w.astype(float)], jnp.asarray(w)
  for _ in range(4):
    p = np.exp(images @ path[-1])
    p /= p.sum(1, keepdims=True)
    path.append(path[-1] - 0.5 * images.T @ (p - targets) / 6)
  got, loss = run(1)
  np.testing.assert_allclose(got['w'], path[1], rtol=0, atol=1e-5)
  p = np.exp(images @ w)
  p /= p.sum(1, keepdims=True)
  np.testing.assert_allclose(loss, (targets * np.log(targets / p)).sum(1).mean(), rtol=1e-4)
  averaged, _ = run(4, average_from=1, average_every=2)  # after the steps 1 and 3, counted from 0
  np.testing.assert_allclose(averaged['w'], (path[2] + path[4]) / 2, rtol=0, atol=1e-5)
  assert np.abs(path[4] - path[3]).max() > 1e-3
  # Scored by closeness to the second step, and looked at after every step, that one is kept.
  near = lambda w: -jnp.abs(w['w'] - jnp.asarray(path[2], jnp.float32)).max()
  best, _ = run(4, score=near)
  np.testing.assert_allclose(best['w'], path[2], rtol=0, atol=1e-5)
  best, _ = run(4, score=near, score_every=3)  # only the start and the third step are seen
  np.testing.assert_allclose(best['w'], path[3], rtol=0, atol=1e-5)
  best, _ = run(4, score=lambda w: -jnp.abs(w['w'] - w_start).max())
  np.testing.assert_array_equal(best['w'], w_start)


def test_batches_use_every_row_once_before_any_twice():
  rows = np.asarray(draw_batches(jax.random.key(0), 5, 2, 7)).ravel()  # 14 of three passes over 5
  for first in (0, 5):
    assert sorted(rows[first : first + 5]) == [0, 1, 2, 3, 4]
  assert len(set(rows[10:])) == 4


def test_rows_in_batches_come_back_in_order():
  x = jnp.arange(700.0)
  np.testing.assert_array_equal(in_batches(lambda v: v * 2, x), 2 * np.arange(700))


def test_abavg_weighs_by_accuracy_on_labelled_server_data():
  """Four server samples, all ones, have the labels 0 1 1 1.

  A client whose model answers 0 is right on one, a client that answers 1 on three. The absent
  client is right on none and does not count. Differences 1 and 3: (1/4 * 1 + 3/4 * 3) / 1 = 2.5.
  With labels 2 no client is right, and the result is the plain mean 2.
  """
  data = tiny.federated([1, 1, 1])
  x = jnp.full((4, 2, 2, 1), 255, jnp.uint8)
  answers = lambda c: jnp.zeros((4, 3)).at[:, c].set(1.0)
  old = {'w': jnp.zeros((4, 3)), 'b': jnp.zeros(())}
  sent = {'w': jnp.stack([answers(0), answers(1), answers(2)]), 'b': jnp.array([1.0, 3.0, 50.0])}
  messages = messages_of([1, 1, 0], params=sent, stats={})

  def aggregate(method, labels):
    proxy = Proxy(x, jnp.array(labels, jnp.int32))
    task = tiny.build(method, linear(), data._replace(proxy=proxy)).task()
    return method.aggregate(Round(task, jax.random.key(0), jnp.int32(1), old, {}, messages))

  for labels, want, mean in (([0, 1, 1, 1], 2.5, 0.5), ([2, 2, 2, 2], 2.0, 0.0)):
    new, logged = aggregate(fs.ABAVG(), labels)
    np.testing.assert_allclose(new['b'], want, rtol=1e-6)
    np.testing.assert_allclose(logged['client_accuracy'], mean, rtol=1e-6)


@pytest.mark.parametrize('make', [fs.FedDF, fs.FedBE, fs.ABAVG])
def test_server_data_is_asked_for_in_one_line(make):
  with pytest.raises(ValueError, match='needs server data with .*held_out'):
    tiny.build(make(), tiny.net(4, 3), tiny.federated([4, 3]))


@pytest.mark.parametrize(
  'make',
  [fs.FedDF, fs.FedGen, *(pytest.param(m, marks=pytest.mark.slow) for m in (fs.FedBE, fs.ABAVG))],
)
def test_a_round_without_a_sample_keeps_the_model(make):
  data = with_proxy(tiny.federated([0, 2]))
  engine = tiny.build(fs.chain(base(), make()), tiny.net(4, 3), data, participation=0.5)
  state, seed = engine.init(0), 0
  while True:  # the first seed whose first round draws the empty client
    state = engine.init(seed)
    before = jax.tree.map(np.array, state.params)
    after, _ = engine.run(seed, state, 1)
    moved = max(
      float(np.abs(a - b).max())
      for a, b in zip(*map(jax.tree.leaves, (before, after.params)), strict=True)
    )
    if moved == 0:
      break
    seed += 1
    assert seed < 20
  assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(after.server))
