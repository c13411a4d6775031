"""FedAvgM, FedExP, FedSAM, FedDecorr and MOON against numbers worked by hand or numpy, and at their neutral settings."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_syn as fs
from fedjax_syn import algorithms
from fedjax_syn.algorithms.feddecorr import correlation_loss
from fedjax_syn.algorithms.fednova import effective_steps
from fedjax_syn.algorithms.moon import contrastive_loss
from fedjax_syn.models import create
from tests import tiny


def quadratic(method, rounds, start=1.0):
  engine = tiny.build(method, tiny.quadratic(start), tiny.two_points(), loss=tiny.half_square)
  state, report = engine.run(0, engine.init(0), rounds)
  return float(state.params['w']), report, state


def sgd(lr=0.5, **fields):
  return fs.FedAvg(lr=lr, optimizer='sgd', batch_size=1, **fields)


@pytest.mark.parametrize('form', ['heavy_ball', 'average', 'damped'])
def test_momentum_by_hand(form):
  """In a round A goes to w / 2 and B to 4 - (4 - w) / 8 = 3.5 + w / 8: d(w) = 1.75 - 0.6875 w, d(1) = 1.0625.

  m = 1/2: heavy ball: v = 1.0625, w = 2.0625; v = 0.53125 + d(2.0625) = 0.53125 + 0.33203125, w = 2.92578125.
  Damped: the second step is divided by 3/2: w = 2.0625 + 0.86328125 / 1.5. Average: v = 0.53125, w = 1.53125;
  v = 0.265625 + (1.75 - 0.6875 * 1.53125) / 2."""
  d = lambda w: 1.75 - 0.6875 * w
  v = 1.0625
  want = {
    'heavy_ball': 2.0625 + 0.5 * v + d(2.0625),
    'damped': 2.0625 + (0.5 * v + d(2.0625)) / 1.5,
    'average': 1.53125 + 0.5 * 0.53125 + 0.5 * d(1.53125),
  }[form]
  got, report, _ = quadratic(fs.chain(sgd(), fs.FedAvgM(momentum=0.5, form=form)), 2)
  np.testing.assert_allclose(got, want, rtol=1e-6)
  assert report['fedavgm/rounds'] == 2


def test_extrapolation_by_hand():
  """w = 1: d_A = -0.5, d_B = 2.625, mean 1.0625; mean square (0.25 + 6.890625) / 2 = 3.5703125.

  eta = 3.5703125 / (2 (1.12890625 + 0.1)) = 1.45262...; a large epsilon gives 1, FedAvg."""
  eta = 3.5703125 / (2 * (1.0625**2 + 0.1))
  got, report, _ = quadratic(fs.chain(sgd(), fs.FedExP(epsilon=0.1)), 1)
  np.testing.assert_allclose(got, 1 + eta * 1.0625, rtol=1e-6)
  np.testing.assert_allclose(report['fedexp/server_step'], eta, rtol=1e-6)
  np.testing.assert_allclose(
    quadratic(fs.chain(sgd(), fs.FedExP(epsilon=100.0)), 1)[0], 2.0625, rtol=1e-6
  )


def test_sharpness_aware_gradient_at_two_points():
  """On (w - x)^2 / 2 the gradient at w + rho sign(w - x) is w - x + rho sign(w - x).

  rho = 0.2, rate 1/2, from 1: A: 1.2, to 0.4. B: -3.2 to 2.6; -1.6 to 3.4; -0.8 to 3.8. The mean is 2.1."""
  np.testing.assert_allclose(quadratic(fs.chain(sgd(), fs.FedSAM(rho=0.2)), 1)[0], 2.1, rtol=1e-6)


def test_sharpness_aware_step_against_numpy_in_more_dimensions():
  """Softmax regression on one batch: the norm is over all parameters together."""
  data = tiny.federated([5])
  model = tiny.net(4, 3)
  engine = tiny.build(
    fs.chain(fs.FedAvg(lr=0.1, optimizer='sgd', batch_size=8), fs.FedSAM(rho=0.3)), model, data
  )
  start = jax.tree.map(np.array, engine.init(0).params)
  after = engine.run(0, engine.init(0), 1)[0].params
  x = (jnp.asarray(data.x, jnp.float32) / 255 - 0.5) / 0.3

  def gradient(params):
    def loss(p):
      logits = jnp.tanh(x.reshape(5, 4) @ p['w0'] + p['b0']) @ p['w1']
      return -jax.nn.log_softmax(logits)[jnp.arange(5), data.y].mean()

    return jax.grad(loss)(params)

  g = gradient(start)
  norm = np.sqrt(sum(float((leaf**2).sum()) for leaf in jax.tree.leaves(g)))
  there = jax.tree.map(lambda p, g: p + 0.3 * g / norm, start, g)
  want = jax.tree.map(lambda p, g: p - 0.1 * g, start, gradient(there))
  for a, b in zip(jax.tree.leaves(after), jax.tree.leaves(want), strict=True):
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-6)


def test_correlation_loss_by_hand():
  """Three samples, features (1, 2, 3), (2, 4, 6) and (1, 0, 1): standardised, the first two are equal, so that their
  product is N - 1 = 2; the third, (1, -2, 1) / sqrt(3), has the product 0 with (-1, 0, 1). The six off-diagonal
  squares are 4, 4, 0, 0, 0, 0: their mean over N = 3 is 8 / 6 / 3. A padded sample changes nothing."""
  z = jnp.array([[1.0, 2.0, 1.0], [2.0, 4.0, 0.0], [3.0, 6.0, 1.0], [50.0, -70.0, 9.0]])
  mask = jnp.array([1.0, 1.0, 1.0, 0.0])
  np.testing.assert_allclose(correlation_loss(z, mask), 4 / 9, rtol=1e-5)
  np.testing.assert_allclose(correlation_loss(z[:3], mask[:3]), 4 / 9, rtol=1e-5)
  assert np.isfinite(jax.grad(lambda z: correlation_loss(z, jnp.array([1.0, 0, 0, 0])))(z)).all()


def test_contrastive_loss_by_hand():
  """cos 1 with the global and 0 with the previous features, tau 1/2: -ln(e^2 / (e^2 + 1)); twins give ln 2."""
  z = jnp.array([[2.0, 0.0], [0.0, 3.0]])
  near, far = jnp.array([[1.0, 0.0], [0.0, 1.0]]), jnp.array([[0.0, 1.0], [1.0, 0.0]])
  want = np.log(1 + np.exp(-2))
  np.testing.assert_allclose(contrastive_loss(z, near, far, jnp.ones(2), 0.5), want, rtol=1e-5)
  masked = contrastive_loss(z, jnp.stack([near[0], far[1]]), far, jnp.array([1.0, 0.0]), 0.5)
  np.testing.assert_allclose(masked, want, rtol=1e-5)
  np.testing.assert_allclose(
    contrastive_loss(z, near, near, jnp.ones(2), 0.5), np.log(2), rtol=1e-5
  )


def test_moon_keeps_the_local_model_of_a_client_s_last_round():
  engine = tiny.build(
    fs.chain(fs.FedAvg(lr=0.1, optimizer='sgd', batch_size=4), fs.MOON()),
    tiny.net(4, 3),
    tiny.federated([6, 0, 3]),
  )
  state, _ = engine.run(0, engine.init(0), 1)
  kept = state.clients['moon'].params
  mean = jax.tree.map(lambda leaf: (leaf[0] + leaf[2]) / 2, kept)
  for a, b in zip(jax.tree.leaves(mean), jax.tree.leaves(state.params), strict=True):
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-6)
  first = engine.init(0).params
  for a, b in zip(jax.tree.leaves(kept), jax.tree.leaves(first), strict=True):
    np.testing.assert_array_equal(a[1], b)  # no sample, no training


def test_moons_projection_head_becomes_the_models_head():
  model = create('mlp', shape=(2, 2, 1), num_classes=3, width=8, depth=1)
  engine = tiny.build(
    fs.chain(fs.FedAvg(lr=0.1, batch_size=4), fs.MOON(projection=5)), model, tiny.federated([6, 3])
  )
  variables = engine.model.init(jax.random.key(0))
  x = jnp.ones((2, 2, 2, 1))
  out = engine.model.apply(variables, x)
  assert out.features.shape == (2, 5) and out.logits.shape == (2, 3)
  np.testing.assert_allclose(
    engine.model.head(variables.params, out.features), out.logits, rtol=1e-6, atol=1e-6
  )
  heads = [
    path
    for path, _ in jax.tree_util.tree_leaves_with_path(variables.params)
    if engine.model.is_head(path)
  ]
  assert {path[1].key for path in heads} == {'classifier'} and len(heads) == 2
  state, report = engine.run(0, engine.init(0), 2)
  assert np.isfinite(report['train/loss'])


def base(lr=0.1):
  return fs.FedAvg(lr=lr, optimizer='sgd', batch_size=2)


NEUTRAL = {
  'fedavgm': lambda b: fs.chain(b, fs.FedAvgM(momentum=0.0)),
  'average': lambda b: fs.chain(b, fs.FedAvgM(momentum=0.0, form='average')),
  'damped': lambda b: fs.chain(b, fs.FedAvgM(momentum=0.0, form='damped')),
  'fedexp': lambda b: fs.chain(b, fs.FedExP(epsilon=1e6)),
  'fedsam': lambda b: fs.chain(b, fs.FedSAM(rho=0.0)),
  'feddecorr': lambda b: fs.chain(b, fs.FedDecorr(beta=0.0)),
  'moon': lambda b: fs.chain(b, fs.MOON(mu=0.0)),
}


def params_after(method, rounds=3):
  engine = tiny.build(method, tiny.net(4, 3), tiny.federated([4, 0, 3]))
  return jax.tree.leaves(engine.run(0, engine.init(0), rounds)[0].params)


@functools.cache
def fedavg_params():
  return params_after(base())


@pytest.mark.parametrize('name', NEUTRAL)
def test_neutral_settings_are_fedavg(name):
  for a, b in zip(params_after(NEUTRAL[name](base())), fedavg_params(), strict=True):
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-6)


@pytest.mark.slow  # their float64 counterparts would fail as well
@pytest.mark.parametrize('make', [fs.FedAvgM, fs.FedSAM, fs.FedDecorr, fs.MOON])
def test_other_settings_are_not(make):
  pairs = zip(params_after(fs.chain(base(), make())), fedavg_params(), strict=True)
  assert max(float(np.abs(a - b).max()) for a, b in pairs) > 1e-5


def test_logged_sharpness_by_hand():
  """With rho = 0.2 A ends at 0.4 and B at 3.8 (above): A (0.6^2 - 0.4^2) / 2 = 0.1, B (0.4^2 - 0.2^2) / 2 = 0.06."""
  report = quadratic(fs.chain(sgd(), fs.FedSAM(rho=0.2)), 1)[1]
  np.testing.assert_allclose(report['fedsam/sharpness'], 0.08, rtol=1e-5)


def test_logged_cosines_and_correlation():
  """In the first round the previous model is the global one; later they differ."""
  base = lambda: fs.FedAvg(lr=0.5, optimizer='sgd', batch_size=4, epochs=5)
  engine = tiny.build(fs.chain(base(), fs.MOON()), tiny.net(4, 3), tiny.federated([6, 0, 3]))
  state, first = engine.run(0, engine.init(0), 1)
  assert 0 < first['moon/cosine_global'] < 1
  assert first['moon/cosine_global'] == first['moon/cosine_previous']
  _, second = engine.run(0, state, 1)
  assert second['moon/cosine_global'] != second['moon/cosine_previous']
  engine = tiny.build(fs.chain(base(), fs.FedDecorr()), tiny.net(4, 3), tiny.federated([6, 0, 3]))
  _, report = engine.run(0, engine.init(0), 1)
  assert report['feddecorr/correlation'] > 0


@pytest.mark.parametrize('rho', [0.0, 0.9])
def test_effective_steps_against_the_sum_of_the_weights(rho):
  """With momentum the gradient of step j enters all later velocities: its weight is sum_{i >= j} rho^(i - j)."""
  for tau in (1, 2, 7):
    want = sum(rho ** (i - j) for j in range(tau) for i in range(j, tau))
    np.testing.assert_allclose(effective_steps(jnp.int32(tau), rho), want, rtol=1e-5)


def test_fednova_round_by_hand():
  """w = 1: A takes 1 step, d = -0.5; B takes 3, d = 2.625. Means: a = 2, d / a = (-0.5 + 0.875) / 2 = 0.1875: 1.375.

  With momentum 1/2 the differences come from a loop in numpy, and a_B = 1.75 + 1.5 + 1."""
  got, report, _ = quadratic(fs.chain(sgd(), fs.FedNova()), 1)
  np.testing.assert_allclose(got, 1.375, rtol=1e-6)
  np.testing.assert_allclose(report['fednova/effective_steps'], 2, rtol=1e-6)
  heavy = fs.FedAvg(lr=0.5, optimizer='sgd', momentum=0.5, batch_size=1)
  differences = []
  for x, steps in ((0, 1), (4, 3)):
    w, v = 1.0, 0.0
    for _ in range(steps):
      v = 0.5 * v + (w - x)
      w -= 0.5 * v
    differences.append(w - 1.0)
  a = np.array([1.0, 1.75 + 1.5 + 1.0])
  want = 1 + a.mean() * (np.array(differences) / a).mean()
  np.testing.assert_allclose(quadratic(fs.chain(heavy, fs.FedNova()), 1)[0], want, rtol=1e-5)


def test_fednova_is_fedavg_at_equal_steps_and_refuses_adam():
  equal = lambda: fs.FedAvg(lr=0.1, optimizer='sgd', momentum=0.9, batch_size=2, epochs=0, steps=5)
  for a, b in zip(
    params_after(fs.chain(equal(), fs.FedNova())), params_after(equal()), strict=True
  ):
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-6)
  with pytest.raises(ValueError, match='client.optimizer=sgd'):
    fs.chain(fs.FedAvg(lr=1e-3), fs.FedNova())


LOGGED = {
  'vhl': 'noise_loss',
  'fedreg': 'forgotten',
  'fedrep': 'head_moved',
  'ditto': 'distance',
}


@pytest.mark.parametrize(('name', 'key'), LOGGED.items())
def test_methods_that_change_the_loss_only_are_seen_in_the_log(name, key):
  layer = algorithms.layer_class(name)()
  method = fs.chain(fs.FedAvg(lr=0.1, optimizer='sgd', batch_size=4), layer)
  model = create('mlp', shape=(2, 2, 1), num_classes=3, width=5, depth=1)
  engine = tiny.build(method, model, tiny.federated([6, 0, 3]))
  _, report = engine.run(0, engine.init(0), 2)  # Ditto's models are apart from the second round on
  assert np.isfinite(report[f'{name}/{key}']) and report[f'{name}/{key}'] > 0
