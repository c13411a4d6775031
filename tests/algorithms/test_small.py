"""SCAFFOLD, FedOpt and FedMix against numbers worked by hand or an independent numpy version."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_syn as fs
from fedjax_syn import algorithms
from fedjax_syn.core.types import Model, Output, Variables
from tests import tiny


def quadratic_run(method, rounds):
  engine = tiny.build(method, tiny.quadratic(1.0), tiny.two_points(), loss=tiny.half_square)
  state, _ = engine.run(0, engine.init(0), rounds)
  return state


def test_scaffold_two_rounds_by_hand():
  """w = 1, rate 1/2, batch 1: A ({0}) takes K = 1 step, B ({4, 4, 4}) K = 3; all c start at zero.

  Round 1: A 1 -> 0.5, c_A = 0.5 / (1 * 0.5) = 1. B 1 -> 2.5 -> 3.25 -> 3.625, c_B = -2.625 / 1.5 = -1.75.
  x = 2.0625, c = (1 - 1.75) / 2 = -0.375.
  Round 2: A's gradient 2.0625 - 1 - 0.375 = 0.6875, to 1.71875; c_A = 1 + 0.375 + 0.34375 / 0.5 = 2.0625.
  B's gradients w - 4 + 1.75 - 0.375: 2.34375, 2.484375, 2.5546875; c_B = -1.75 + 0.375 - 0.4921875 / 1.5
  = -1.703125. x = 2.13671875, c = -0.375 + (1.0625 + 0.046875) / 2 = 0.1796875."""
  state = quadratic_run(
    fs.chain(fs.FedAvg(lr=0.5, optimizer='sgd', batch_size=1), fs.SCAFFOLD()), 2
  )
  np.testing.assert_allclose(state.params['w'], 2.13671875, rtol=1e-6)
  np.testing.assert_allclose(state.server['scaffold']['w'], 0.1796875, rtol=1e-6)
  np.testing.assert_allclose(state.clients['scaffold']['w'], [2.0625, -1.703125], rtol=1e-6)


def test_scaffold_option_1_keeps_the_gradient_at_the_global_model():
  """At w = 1 the full gradients are 1 - 0 and 1 - 4, whatever the path; c is their mean."""
  state = quadratic_run(
    fs.chain(fs.FedAvg(lr=0.5, optimizer='sgd', batch_size=1), fs.SCAFFOLD(option=1)), 1
  )
  np.testing.assert_allclose(state.clients['scaffold']['w'], [1, -3], rtol=1e-6)
  np.testing.assert_allclose(state.server['scaffold']['w'], -1, rtol=1e-6)
  np.testing.assert_allclose(state.params['w'], 2.0625, rtol=1e-6)


def test_scaffold_s_correction_after_a_step_with_momentum():
  """w = 1, rate 1/2, momentum 1/2, two steps on all samples; the optimizer's steps are 1/2 of d = g + (last d) / 2.

  Round 1: A: d = 1, then 0.5 + 0.5 = 1: 1 -> 0.5 -> 0. B: d = -3, -3: to 2.5, to 4. Variates are the mean d,
  1 and -3, c = -1, and x = 1 + (-1 + 3) / 2 = 2.
  Round 2: -(c - c_A) / 2 = 1 comes on top of A's steps: d = 2 to 2, d = 2 + 1 = 3 to 1.5; c_A = 2.5.
  -(c - c_B) / 2 = -1: B's d = -2 to 2, d = -2 - 1 = -3 to 2.5; c_B = -2.5, c = 0, x = 2 + (-0.5 + 0.5) / 2 = 2."""
  sgd = fs.FedAvg(lr=0.5, optimizer='sgd', momentum=0.5, epochs=0, steps=2, batch_size=3)
  state = quadratic_run(fs.chain(sgd, fs.SCAFFOLD(correction='step')), 2)
  np.testing.assert_allclose(state.clients['scaffold']['w'], [2.5, -2.5], rtol=1e-6)
  np.testing.assert_allclose(state.server['scaffold']['w'], 0, atol=1e-6)
  np.testing.assert_allclose(state.params['w'], 2, rtol=1e-6)


@pytest.mark.parametrize('option', [1, 2])
def test_for_plain_sgd_it_does_not_matter_where_scaffold_corrects(option):
  sgd = fs.FedAvg(lr=0.1, optimizer='sgd', batch_size=1)
  one, other = (
    quadratic_run(fs.chain(sgd, fs.SCAFFOLD(option=option, correction=c)), 3)
    for c in ('gradient', 'step')
  )
  np.testing.assert_allclose(one.params['w'], other.params['w'], rtol=1e-6)
  np.testing.assert_allclose(
    one.clients['scaffold']['w'], other.clients['scaffold']['w'], rtol=1e-5
  )
  assert abs(float(one.params['w']) - 1) > 0.1
  with pytest.raises(ValueError, match="correction='steps': unknown; known: 'gradient', 'step'"):
    fs.SCAFFOLD(correction='steps')


def test_fedopt_with_plain_sgd_is_its_base_and_adam_steps_by_its_rate():
  """The mean difference is 0.5 (see FedAvg's hand-worked round); Adam's first step has the length of its rate."""
  base = lambda: fs.FedAvg(lr=0.5, optimizer='sgd')
  np.testing.assert_allclose(
    quadratic_run(fs.chain(base(), fs.FedOpt(optimizer='sgd', lr=1.0)), 1).params['w'],
    1.5,
    rtol=1e-6,
  )
  np.testing.assert_allclose(
    quadratic_run(fs.chain(base(), fs.FedOpt(optimizer='adam', lr=0.1)), 1).params['w'],
    1.1,
    rtol=1e-5,
  )


def linear(weights: np.ndarray) -> Model:
  def apply(variables, x, train=False, mask=None):
    flat = x.reshape(x.shape[0], -1)
    return Output(flat @ variables.params['w'], flat, variables.stats)

  init = lambda key: Variables({'w': jnp.asarray(weights, jnp.float32)}, {})
  return Model('linear', init, apply, lambda p, z: z @ p['w'], lambda path: True)


def fedmix_loss(w, x, y, x_g, y_g, l):
  """The mean over samples of Eq. 4, in numpy: the gradient of CE in its input u is W (softmax(W'u) - e_y)."""
  total = 0.0
  for sample, label in zip(x, y, strict=True):
    u = (1 - l) * sample
    logits = u @ w
    log_p = logits - np.log(np.exp(logits).sum())
    slope = w @ (np.exp(log_p) - np.eye(w.shape[1])[label])
    total += -(1 - l) * log_p[label] - l * (y_g * log_p).sum() + l * (1 - l) * slope @ x_g
  return total / len(x)


def test_fedmix_step_against_numpy():
  """One client, so that the exchanged average is its own; the step's gradient by central differences of numpy."""
  rng = np.random.default_rng(0)
  data = tiny.federated([5])
  w = rng.normal(size=(4, 3))
  l, rate = 0.3, 0.1
  engine = tiny.build(
    fs.chain(fs.FedAvg(lr=rate, optimizer='sgd', batch_size=8), fs.FedMix(mixing=l)),
    linear(w),
    data,
  )
  state, _ = engine.run(0, engine.init(0), 1)
  x = (np.asarray(data.x, float).reshape(5, 4) / 255 - 0.5) / 0.3
  y = np.asarray(data.y)
  y_g = np.bincount(y, minlength=3) / 5
  gradient = np.zeros_like(w)
  for index in np.ndindex(*w.shape):
    h = np.zeros_like(w)
    h[index] = 1e-5
    up, down = (fedmix_loss(w + s * h, x, y, x.mean(0), y_g, l) for s in (1, -1))
    gradient[index] = (up - down) / 2e-5
  np.testing.assert_allclose(state.params['w'], w - rate * gradient, rtol=0, atol=1e-5)
  assert np.abs(gradient).max() > 0.05


def test_fedmix_draws_no_client_without_samples():
  """Client 1 has no samples: its zero image never comes up, and with lambda 0 FedMix is its base."""
  data = tiny.federated([4, 0, 3])
  base = lambda: fs.FedAvg(lr=0.1, optimizer='sgd', batch_size=2)
  mixed = tiny.build(fs.chain(base(), fs.FedMix(mixing=0.0)), tiny.net(4, 3), data)
  plain = tiny.build(base(), tiny.net(4, 3), data)
  a, _ = mixed.run(0, mixed.init(0), 2)
  b, _ = plain.run(0, plain.init(0), 2)
  for p, q in zip(jax.tree.leaves(a.params), jax.tree.leaves(b.params), strict=True):
    np.testing.assert_allclose(p, q, rtol=0, atol=1e-6)
  images, labels, present = mixed.init(0).server['fedmix']
  np.testing.assert_array_equal(present, [1, 0, 1])
  np.testing.assert_allclose(np.asarray(labels).sum(1), [1, 0, 1], rtol=1e-6)
  want = (np.asarray(data.x[:4], float) / 255 - 0.5).mean(0) / 0.3
  np.testing.assert_allclose(images[0], want, rtol=1e-4, atol=1e-6)


def test_every_method_is_known_with_a_line_and_by_its_name():
  names = algorithms.names()
  assert {'fedavg', 'scaffold', 'fedmix', 'fedopt', 'dynafed'} <= set(names)
  assert all(line and len(line) < 130 for line in names.values())
  assert algorithms.layer_class('scaffold') is fs.SCAFFOLD
  assert fs.chain(fs.FedAvg(), fs.SCAFFOLD()).name == 'scaffold'
  assert fs.chain(fs.SCAFFOLD(), fs.FedMix()).name == 'scaffold+fedmix'


def test_compositions_are_refused_in_one_line():
  with pytest.raises(ValueError, match=r"'scaffold\+fedmix\+scaffold': 'scaffold' is there twice"):
    fs.chain(fs.SCAFFOLD(), fs.FedMix(), fs.SCAFFOLD())

  class Keeps(fs.Layer):
    def aggregate(self, round):
      return round.params, {}

  class AlsoKeeps(Keeps):
    pass

  with pytest.raises(ValueError, match='both replace the aggregation'):
    fs.chain(Keeps(), AlsoKeeps())
