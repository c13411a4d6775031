"""FedProx, FedDF, FedBE, ABAVG and FedGen against numbers worked by hand or an independent numpy version."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedjax_syn as fs
from fedjax_syn.algorithms.fedbe import gaussian_models, sharpened_mean
from fedjax_syn.algorithms.feddf import ensemble
from fedjax_syn.algorithms.fedgen import Broadcast, diversity_loss, ensemble_loss
from fedjax_syn.core.contexts import Messages, Round
from fedjax_syn.core.keys import fold
from fedjax_syn.core.objectives import cross_entropy
from fedjax_syn.core.types import Model, Output, Step, Variables
from fedjax_syn.data.federated import Proxy
from fedjax_syn.models.generator import Moments, generator, running
from fedjax_syn.server.distill import distil, draw_batches
from fedjax_syn.server.models import ClientModels, in_batches
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


def test_fedprox_round_by_hand():
  """w = 1, rate 1/2, mu = 2, batch 1: the gradient is (w - x) + 2 (w - 1).

  A ({0}): 1 -> 0.5. B ({4, 4, 4}): -3 to 2.5; -1.5 + 3 = 1.5 to 1.75; -2.25 + 1.5 = -0.75 to 2.125.
  The mean of 0.5 and 2.125 is 1.3125; without the term it would be 2.0625."""
  method = fs.chain(fs.FedAvg(lr=0.5, optimizer='sgd', batch_size=1), fs.FedProx(mu=2.0))
  engine = tiny.build(method, tiny.quadratic(1.0), tiny.two_points(), loss=tiny.half_square)
  state, _ = engine.run(0, engine.init(0), 1)
  np.testing.assert_allclose(state.params['w'], 1.3125, rtol=1e-6)


def test_feddf_teacher_averages_logits_before_the_softmax():
  """Present: logits (0, ln 3) and (ln 4, ln 3); their mean (ln 2, ln 3) gives 2/5 and 3/5. The absent one would pull."""
  logits = jnp.log(jnp.array([[[1.0, 3.0]], [[4.0, 3.0]], [[1e9, 1.0]]]))
  got = ensemble(logits, jnp.array([1.0, 1.0, 0.0]))
  np.testing.assert_allclose(got, [[0.4, 0.6]], rtol=1e-6)


def test_fedbe_teacher_averages_probabilities_and_sharpens():
  """(1/4, 3/4) and (3/4, 1/4), the first twice as heavy: (5/12, 7/12), squared 25 : 49."""
  logits = jnp.log(jnp.array([[[1.0, 3.0]], [[3.0, 1.0]]]))
  got = sharpened_mean(logits, jnp.array([2.0, 1.0]), 2.0)
  np.testing.assert_allclose(got, [[25 / 74, 49 / 74]], rtol=1e-6)


def test_fedbe_draws_from_the_gaussian_of_the_clients():
  """Present clients 1 and 5: mean 3, variance 4, times 1/4 is 1; 4,000 draws know both to 4 / sqrt(4000) = 0.063."""
  params = {'w': jnp.array([[1.0, 7.0], [5.0, 7.0], [100.0, 0.0]])}
  clients = ClientModels(Variables(params, {}), jnp.array([1.0, 1.0, 0.0]))
  drawn = gaussian_models(jax.random.key(0), clients, clients.present, 4000, 0.25)['w']
  assert drawn.shape == (4000, 2)
  np.testing.assert_allclose(drawn[:, 0].mean(), 3, atol=0.063)
  np.testing.assert_allclose(drawn[:, 0].std(), 1, atol=0.063)
  np.testing.assert_array_equal(drawn[:, 1], 7)


def test_distillation_step_against_numpy():
  """KL(t || softmax(x W)) has the gradient x^T (p - t) / rows; one step of SGD on all rows at once."""
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
  """Four server samples, all ones: a client whose model answers 0 is right on one of the labels 0 1 1 1 and one
  that answers 1 on three; the absent client, right on none, counts for nothing. Differences 1 and 3:
  (1/4 * 1 + 3/4 * 3) / 1 = 2.5. With labels 2 nobody is right: the plain mean 2."""
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


def test_fedgen_ensemble_loss_by_hand():
  """Label 0 lies with client 0 (3 samples) and client 1 (1), label 1 with client 1 only.

  Client 0 gives label 0 the probability 1/2, client 1 gives both labels 1/4: y = (0, 1) costs
  3/4 ln 2 + 1/4 ln 4 and ln 4, the mean is (5/4 ln 2 + 2 ln 2) / 2."""
  logits = jnp.log(jnp.array([[[0.5, 0.5, 0.0001]] * 2, [[0.25, 0.25, 0.5]] * 2]))
  logits = logits.at[0, :, 2].set(-1e9)
  counts = jnp.array([[3.0, 0, 0], [1.0, 2, 0]])
  got = ensemble_loss(logits, jnp.array([0, 1]), counts)
  np.testing.assert_allclose(got, 13 / 8 * np.log(2), rtol=1e-6)


def test_fedgen_diversity_loss_by_hand():
  """Two samples: noise (0, 0) and (1, 3) is 5 apart on average, features (0) and (0.2) 0.2; two of the four pairs
  are different, so the exponent is -(1 + 1) / 4."""
  got = diversity_loss(jnp.array([[0.0, 0], [1, 3]]), jnp.array([[0.0], [0.2]]))
  np.testing.assert_allclose(got, np.exp(-0.5), rtol=1e-6)


def test_fedgen_client_loss_against_numpy():
  """Round 3: CE + 0.5^2 (2 CE(head(G(y')), y') + 3 KL(p(head(G(y))) || p(x))), the padded sample without weight."""
  data = tiny.federated([3, 2])
  method = fs.FedGen(alpha=2.0, beta=3.0, decay=0.5, noise=2, hidden=3)
  engine = tiny.build(method, linear(), data)
  g = generator(noise=2, hidden=3, features=4, num_classes=3)
  weights = g.init(jax.random.key(5))
  moments = Moments(jnp.array([0.1, -0.2, 0.3]), jnp.array([0.5, 1.0, 2.0]))
  rng = np.random.default_rng(1)
  w = rng.normal(size=(4, 3)).astype(np.float32)
  x = rng.normal(size=(3, 2, 2, 1)).astype(np.float32)
  y, mask = np.array([0, 2, 1]), np.array([1.0, 1.0, 0.0], np.float32)
  step = Step(jax.random.key(9), 0, jnp.asarray(x), jnp.asarray(y), jnp.asarray(mask), {})

  def plain(params, step):
    out = engine.model.apply(Variables(params, {}), step.x)
    return cross_entropy(out.logits, step.y, step.mask), out

  heard = Broadcast(weights, moments, 1.0)
  client = tiny.client_of(engine, fs.FedGen, broadcast=heard, prepared=0.25)
  got, _ = method.loss(client, plain, {'w': jnp.asarray(w)}, step)

  noise = jax.random.uniform(fold(step.key, 0), (2, 3, 2))
  other = np.asarray(jax.random.randint(fold(step.key, 0, 1), (3,), 0, 3))
  log_softmax = lambda z: z - np.log(np.exp(z).sum(-1, keepdims=True))
  own = log_softmax(x.reshape(3, 4) @ w)
  generated = lambda y, eps: np.asarray(g.apply(weights, jnp.asarray(y), eps, moments)[0])
  made = log_softmax(generated(other, noise[0]) @ w)
  same = log_softmax(generated(y, noise[1]) @ w)
  teacher = -made[np.arange(3), other].mean()
  pull = (np.exp(same) * (same - own)).sum(-1)[:2].mean()
  want = -own[[0, 1], y[:2]].mean() + 0.25 * (2 * teacher + 3 * pull)
  np.testing.assert_allclose(got, want, rtol=1e-4)


def test_fedgen_hears_the_label_of_a_batch_of_one_class():
  """With a batch's own moments its label would cancel: a client of one class would be told nothing of that class."""
  g = generator(noise=2, hidden=3, features=4, num_classes=3)
  weights = g.init(jax.random.key(0))
  noise = jax.random.uniform(jax.random.key(1), (5, 2))
  of = lambda label, moments: g.apply(weights, jnp.full(5, label), noise, moments)[0]
  mixed = jnp.array([0, 1, 2, 0, 1])
  _, moments = g.apply(weights, mixed, noise)
  np.testing.assert_allclose(of(0, None), of(2, None), atol=1e-5)
  assert np.abs(of(0, moments) - of(2, moments)).min() > 1e-3
  # What a row becomes does not depend on its neighbours.
  alone = g.apply(weights, mixed[:1], noise[:1], moments)[0]
  np.testing.assert_allclose(alone, g.apply(weights, mixed, noise, moments)[0][:1], rtol=1e-5)


def test_fedgen_keeps_running_moments_as_torch_does():
  """A tenth of the batch's mean and of its variance over n - 1: means 2, variances over n - 1 (1 + 0 + 1) / 2 = 1."""
  batch = Moments(jnp.array([2.0]), jnp.array([2 / 3]))
  got = running(Moments(jnp.zeros(1), jnp.ones(1)), batch, 3)
  np.testing.assert_allclose(got.mean, [0.2], rtol=1e-6)
  np.testing.assert_allclose(got.variance, [0.9 + 0.1], rtol=1e-6)


def base(lr=0.1):
  return fs.FedAvg(lr=lr, optimizer='sgd', batch_size=2)


NEUTRAL = {
  'fedprox': (lambda: fs.chain(base(), fs.FedProx(mu=0.0)), [4, 0, 3]),
  'fedmix': (lambda: fs.chain(base(), fs.FedMix(mixing=0.0)), [4, 0, 3]),
  'fedgen': (lambda: fs.chain(base(), fs.FedGen(alpha=0.0, beta=0.0)), [4, 0, 3]),
  'feddf': (lambda: fs.chain(base(), fs.FedDF(lr=1e-30)), [4, 0, 3]),
  'fedbe': (lambda: fs.chain(base(), fs.FedBE(lr=1e-30)), [4, 0, 3]),
  'abavg with one client': (lambda: fs.chain(base(), fs.ABAVG()), [5]),
  'scaffold with one client': (lambda: fs.chain(base(), fs.SCAFFOLD()), [5]),
}


def params_after(method, sizes, rows):
  """The leaves at the start and after three rounds."""
  engine = tiny.build(method, tiny.net(4, 3), with_proxy(tiny.federated(list(sizes)), rows=rows))
  start = jax.tree.map(np.array, engine.init(0).params)
  return jax.tree.leaves(start), jax.tree.leaves(engine.run(0, engine.init(0), 3)[0].params)


@functools.cache
def fedavg_params(lr, sizes, rows):
  return params_after(base(lr), sizes, rows)


@pytest.mark.parametrize('name', NEUTRAL)
def test_neutral_settings_are_fedavg(name):
  make, sizes = NEUTRAL[name]
  start, plain = fedavg_params(0.1, tuple(sizes), 5)
  got = params_after(make(), sizes, 5)[1]
  for a, b in zip(got, plain, strict=True):
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-6)
  assert max(np.abs(a - b).max() for a, b in zip(got, start, strict=True)) > 1e-3


@pytest.mark.slow  # their float64 counterparts would fail as well
@pytest.mark.parametrize('make', [fs.FedProx, fs.FedDF, fs.FedBE, fs.ABAVG, fs.FedGen])
def test_a_method_that_is_not_neutral_leaves_fedavg(make):
  sizes = (4, 0, 3)
  pairs = zip(
    params_after(fs.chain(base(1.0), make()), sizes, 61)[1],
    fedavg_params(1.0, sizes, 61)[1],
    strict=True,
  )
  assert max(float(np.abs(a - b).max()) for a, b in pairs) > 1e-6


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


def test_scaffold_takes_option_2_by_itself_only_where_a_step_is_the_gradient():
  """After one round from w = 1: option 1 keeps the gradients 1 and -3, option 2 keeps (x - y) / (K eta)."""

  def variates(method):
    engine = tiny.build(method, tiny.quadratic(1.0), tiny.two_points(), loss=tiny.half_square)
    return engine.run(0, engine.init(0), 1)[0].clients['scaffold']['w']

  plain = lambda: fs.FedAvg(lr=0.5, optimizer='sgd', batch_size=1)
  adam = lambda: fs.FedAvg(lr=0.5, optimizer='adam', batch_size=1)
  np.testing.assert_allclose(variates(fs.chain(plain(), fs.SCAFFOLD())), [1, -1.75], rtol=1e-6)
  np.testing.assert_allclose(variates(fs.chain(adam(), fs.SCAFFOLD())), [1, -3], rtol=1e-6)
  # Adam moves by its rate in every step: A 1 -> 0.5, B towards 4; asked for, option 2 runs there too.
  np.testing.assert_allclose(variates(fs.chain(adam(), fs.SCAFFOLD(option=2)))[0], 1, rtol=1e-4)
