"""Assumption 3: gradients against numbers worked by hand, the line against a linear program."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from fedjax_syn.algorithms.dynafed.dynamics import labelled
from fedjax_syn.algorithms.dynafed.gradient_error import (
  GradientErrors,
  epsilon_of,
  fit,
  gradient_errors,
)
from fedjax_syn.algorithms.dynafed.synthetic_set import SyntheticSet
from fedjax_syn.core.objectives import cross_entropy
from fedjax_syn.core.types import Model, Output, Variables
from fedjax_syn.data import federated
from tests import tiny


@pytest.fixture(autouse=True)
def x64():
  with jax.enable_x64(True):
    yield


def softmax_regression() -> Model:
  """Two classes, one pixel x: logits x (w_0, w_1)."""

  def apply(variables, x, train=False, mask=None):
    features = x.reshape(x.shape[0], 1)
    return Output(features * variables.params, features, variables.stats)

  init = lambda key: Variables(jnp.zeros(2), {})
  return Model('softmax', init, apply, lambda params, z: z * params, lambda path: False)


def one_pixel(values):
  return jnp.asarray(values, float).reshape(-1, 1, 1, 1)


@pytest.mark.parametrize('batch_size', [1, 2, 500])
def test_softmax_regression_by_hand(batch_size):
  """Real: two clients hold x = 1 of class 0 and x = 3 of class 1.

  Synthetic: x = 2 with label (3/4, 1/4).

  The gradient is the mean of x (p_0 - y_0) times (1, -1). At w = (0, 0) all p_0 = 1/2: real
  (1 (1/2 - 1) + 3 (1/2 - 0)) / 2 = 1/2, synthetic 2 (1/2 - 3/4) = -1/2.
  At w = (ln 3, 0), p_0 = 3^x / (3^x + 1): 3/4, 27/28 and, at x = 2, 9/10; real
  (1 (3/4 - 1) + 3 27/28) / 2 = 37/28, synthetic 2 (9/10 - 3/4) = 3/10.
  The norm of (1, -1) is sqrt(2).
  """
  pixels = np.array([1, 3], np.uint8).reshape(2, 1, 1, 1)
  data = tiny.clients_of(pixels, np.array([0, 1]), [1, 1], 2)
  syn = SyntheticSet(one_pixel([2]), jnp.log(jnp.array([[3.0, 1.0]])), jnp.zeros(()))
  points = jnp.array([[0.0, 0.0], [np.log(3), 0.0]])
  errors = gradient_errors(
    softmax_regression(), cross_entropy, data, points, {}, {'synthetic': syn}, batch_size
  )['synthetic']
  root = np.sqrt(2)
  np.testing.assert_allclose(errors.real_norm, [root / 2, root * 37 / 28], rtol=1e-12)
  np.testing.assert_allclose(errors.error_norm, [root, root * (37 / 28 - 3 / 10)], rtol=1e-12)
  np.testing.assert_allclose(errors.cosine, [-1, 1], rtol=1e-12)


def test_the_clients_own_rows_as_synthetic_set_have_no_error():
  """Padding (17 rows in batches of 5) and an empty client must count for nothing."""
  data = tiny.federated([6, 3, 0, 8])
  model = tiny.net(4, 3)
  points = jax.vmap(lambda key: model.init(key).params)(jax.random.split(jax.random.key(0), 3))
  x = federated.normalise(data, data.x)
  same = labelled(x, data.y, 3, jnp.zeros(()))
  other = labelled(-x, data.y, 3, jnp.zeros(()))
  errors = gradient_errors(
    model, cross_entropy, data, points, {}, {'same': same, 'other': other}, batch_size=5
  )
  assert (errors['same'].real_norm > 0.01).all()
  np.testing.assert_allclose(errors['same'].error_norm, 0, atol=1e-12)
  np.testing.assert_allclose(errors['same'].cosine, 1, rtol=1e-12)
  assert (errors['other'].error_norm > 0.01).all()


def points_of(r, e):
  return GradientErrors(np.array(r, float), np.array(e, float), np.zeros(len(r)))


def test_line_by_hand():
  """The points are (1, 1), (2, 1) and (4, 3).

  epsilon = 0 needs delta = max(1, 1/2, 3/4) = 1, and delta = 0 needs epsilon = 3.

  The line through the first and the last point has delta = 2/3 and epsilon = 1/3. It lies above
  the second (5/3 > 1). The mean of delta r + epsilon is 17/9 there. It is 7/3 with delta = 1 and
  3 with delta = 0.
  """
  errors = points_of([1, 2, 4], [1, 1, 3])
  np.testing.assert_allclose(fit(errors), [1, 3, 2 / 3, 1 / 3], rtol=1e-12)
  assert epsilon_of(0.5, errors) == 1.0  # max(1 - 1/2, 1 - 1, 3 - 2)
  assert epsilon_of(2.0, errors) == 0.0


def test_an_error_that_falls_as_the_gradient_grows_has_no_delta():
  assert fit(points_of([1, 2], [3, 1])) == (3.0, 3.0, 0.0, 3.0)


def test_an_error_where_the_gradient_vanishes_needs_an_epsilon():
  """Points (0, 1) and (2, 1): no delta alone will do; epsilon = 1 does."""
  assert fit(points_of([0, 2], [1, 1])) == (np.inf, 1.0, 0.0, 1.0)


def test_equal_gradients_need_nothing():
  assert fit(points_of([0, 2], [0, 0])) == (0.0, 0.0, 0.0, 0.0)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=8))
def test_the_pair_is_the_solution_of_the_linear_program(points):
  """min mean(delta r + epsilon): delta, epsilon >= 0, delta r + epsilon >= e at every point."""
  r, e = np.array(points, float).T
  line = fit(points_of(r, e))
  assert (line.delta * r + line.epsilon >= e - 1e-9).all()
  best = linprog([r.mean(), 1], A_ub=-np.stack([r, np.ones(len(r))], axis=1), b_ub=-e)
  assert line.delta * r.mean() + line.epsilon == pytest.approx(best.fun, abs=1e-7)
