"""FedReg against hand values and an independent numpy version, and at its neutral setting."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_syn as fs
from fedjax_syn.algorithms.fedreg import ascend, coefficients
from fedjax_syn.core.types import Model, Output, Step, Variables
from fedjax_syn.engine import Layout
from tests import tiny


def linear() -> Model:
  """logits = x W."""

  def apply(variables, x, train=False, mask=None):
    flat = x.reshape(x.shape[0], -1)
    return Output(flat @ variables.params['w'], flat, variables.stats)

  init = lambda key: Variables({'w': jax.random.normal(key, (4, 3))}, {})
  return Model('linear', init, apply, lambda p, z: z @ p['w'], lambda path: True)


def softmax(z):
  p = np.exp(z - z.max(-1, keepdims=True))
  return p / p.sum(-1, keepdims=True)


def ascend_by_numpy(x, y, w, eta, k):
  """dCE/dx = W (p - onehot), up by its sign."""
  for _ in range(k):
    x = x + eta * np.sign((softmax(x @ w) - np.eye(3)[y]) @ w.T)
  return x


def setup(**fields):
  """The layer, a client, global and local weights, and a batch whose last sample is padding."""
  method = fs.FedReg(**fields)
  engine = tiny.build(method, linear(), tiny.federated([3, 2]))
  rng = np.random.default_rng(1)
  w_global, w = rng.normal(size=(2, 4, 3)).astype(np.float32)
  x, y = rng.normal(size=(4, 4)).astype(np.float32), np.array([0, 2, 1, 1])
  mask = jnp.array([1.0, 1.0, 1.0, 0.0])
  step = Step(jax.random.key(0), 0, jnp.asarray(x.reshape(4, 2, 2, 1)), jnp.asarray(y), mask, {})
  client = tiny.client_of(engine, fs.FedReg, params={'w': jnp.asarray(w_global)})
  return method, client, w_global, w, x, y, step


@pytest.mark.parametrize('eta', [0.1, 1e-3])
def test_ascent_against_numpy(eta):
  _, client, w_global, _, x, y, step = setup()
  got = ascend(client.task, Variables(client.params, {}), step, eta, 7).reshape(4, 4)
  np.testing.assert_allclose(got[:3], ascend_by_numpy(x, y, w_global, eta, 7)[:3], atol=1e-5)
  np.testing.assert_allclose(
    np.abs(got[:3] - x[:3]).max(), 7 * eta, rtol=1e-2
  )  # somewhere, always up
  np.testing.assert_array_equal(got[3], x[3])
  wrong = lambda x: -np.log(softmax(x @ w_global)[np.arange(3), y[:3]])
  assert (wrong(np.asarray(got[:3])) > wrong(x[:3])).all()


def test_coefficients_by_hand():
  """d = (3, 1), g2 = (1, 1): a = 4 / 2 = 2. d - 2 g2 = (1, -1), g3 = (2, -1): b = 3 / 5.

  With the opposite g2 the step does not climb it: a = 0, and b = <(3, 1), (2, -1)> / 5 = 1.
  Without g2 the result is the same.
  """
  tree = lambda a, b: {'a': jnp.array([a]), 'b': jnp.array([[b]])}
  d, g3 = tree(3.0, 1.0), tree(2.0, -1.0)
  np.testing.assert_allclose(coefficients(d, tree(1.0, 1.0), g3), (2, 0.6), rtol=1e-6)
  np.testing.assert_allclose(coefficients(d, tree(-1.0, -1.0), g3), (0, 1), rtol=1e-6)
  np.testing.assert_allclose(coefficients(d, tree(0.0, 0.0), g3), (0, 1), rtol=1e-6)
  np.testing.assert_allclose(coefficients(d, tree(0.0, 0.0), tree(-2.0, 1.0)), (0, 0), rtol=1e-6)


def test_projection_of_a_step_by_hand():
  """Rate 3 overshoots from 1. In one dimension the projection undoes a step that forgets.

  A ({0}) goes to -2. Two perturbations by 0.1 away from 1 move its sample to -0.2. The gradient
  at (-2 + 1) / 2 is -0.3, b = (-3)(-0.3) / 0.09 = 10 and -2 + 10 * 0.3 = 1. B goes to 10, three
  times: b = 9 / (5.5 - 4.2) and 10 - b * 1.3 = 1.

  With the rate 1/2 both losses fall, b = 0, and the round is FedAvg's, 2.0625. The only output
  always has the probability 1, so a = 0.
  """

  def after(lr, *layers):
    method = fs.chain(fs.FedAvg(lr=lr, optimizer='sgd', batch_size=1), *layers)
    engine = tiny.build(method, tiny.quadratic(1.0), tiny.two_points(), loss=tiny.half_square)
    return engine.run(0, engine.init(0), 1)[0].params['w']

  fedreg = fs.FedReg(gamma=1.0, eta_p=0.1, iterations=2)
  np.testing.assert_allclose(after(3.0, fedreg), 1, rtol=1e-5)
  assert abs(after(3.0) - 1) > 1
  np.testing.assert_allclose(after(0.5, fedreg), 2.0625, rtol=1e-6)


def test_a_batch_of_padding_changes_nothing():
  method, client, _, w, _, _, step = setup()
  new = {'w': jnp.asarray(w)}
  empty = step._replace(mask=jnp.zeros(4))
  got = method.step(client, None, new, None, empty)
  np.testing.assert_array_equal(got['w'], w)


def params_after(*layers, optimizer='sgd', **kwargs):
  base = fs.FedAvg(lr=0.1, optimizer=optimizer, batch_size=2)
  engine = tiny.build(fs.chain(base, *layers), tiny.net(4, 3), **kwargs)
  return jax.tree.leaves(engine.run(0, engine.init(0), 3)[0].params)


def test_the_gradient_s_point_and_the_projection_change_the_result():
  run = lambda *layers: params_after(*layers, data=tiny.federated([4, 0, 3]))
  distance = lambda one, other: max(np.abs(a - b).max() for a, b in zip(one, other, strict=True))
  at_w = run(fs.FedReg(gamma=1.0))
  assert distance(at_w, run()) > 1e-4 and distance(at_w, run(fs.FedReg(gamma=0.5))) > 1e-4


@pytest.mark.slow
def test_layouts_agree_in_float64():
  with jax.enable_x64(True):
    data = tiny.federated([5, 0, 1, 3])
    data = data._replace(mean=data.mean.astype(jnp.float64), std=data.std.astype(jnp.float64))
    one, blocks = (
      params_after(fs.FedReg(), data=data, layout=layout)
      for layout in (Layout(1, 'loop', 1), Layout(3, 'blocks', 2))
    )
    for a, b in zip(one, blocks, strict=True):
      assert a.dtype == jnp.float64
      np.testing.assert_allclose(a, b, rtol=0, atol=1e-10)
