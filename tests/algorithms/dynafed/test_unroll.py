"""Trajectory matching: meta-gradients, adjoints, segments and the synthetic set."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedjax_syn.algorithms.dynafed import dynamics, synthetic_set
from fedjax_syn.algorithms.dynafed import unroll as trajectory
from fedjax_syn.algorithms.dynafed.synthetic_set import SyntheticSet
from fedjax_syn.core.keys import fold
from fedjax_syn.data.augment import dsa
from tests import tiny


@pytest.fixture
def x64():
  with jax.enable_x64(True):
    yield


def plain_unroll(loss, w, syn, key, steps, *, batch_size=0):
  """The steps one by one, which JAX differentiates in reverse over reverse."""
  for i in range(steps):
    x, y = synthetic_set.batch(syn, key, batch_size, i)
    g = jax.grad(loss)(w, x, y, fold(key, i))
    w = jax.tree.map(lambda w, g: w - jnp.exp(syn.log_step) * g, w, g)
  return w


def problem(unroll, augment=None, **options):
  """A matching loss on six 3x3 images with three classes, and the set to differentiate it in."""
  model = tiny.net(9, 3)
  start, target = (model.init(jax.random.key(seed)).params for seed in (0, 1))
  keys = jax.random.split(jax.random.key(2), 2)
  syn = SyntheticSet(
    jax.random.normal(keys[0], (6, 3, 3, 1), jnp.result_type(float)),
    jax.random.normal(keys[1], (6, 3), jnp.result_type(float)),
    jnp.log(jnp.asarray(0.3)),
  )
  loss = trajectory.inner_loss(model, {}, augment)

  def matching(syn):
    end = unroll(loss, start, syn, jax.random.key(3), 4, **options)
    return trajectory.squared_distance(end, target, start)

  return jax.jit(matching), syn


def central_difference(f, syn, field, index, h=1e-5):
  at = lambda delta: float(f(syn._replace(**{field: getattr(syn, field).at[index].add(delta)})))
  return (at(h) - at(-h)) / (2 * h)


@pytest.mark.parametrize('adjoint', trajectory.ADJOINTS)
def test_meta_gradients_equal_finite_differences(x64, adjoint):
  f, syn = problem(trajectory.unroll, adjoint=adjoint)
  gradient = jax.jit(jax.grad(f))(syn)
  for index in [(0, 0, 0, 0), (3, 1, 2, 0), (5, 2, 2, 0)]:
    assert float(gradient.x[index]) == pytest.approx(
      central_difference(f, syn, 'x', index), rel=1e-5, abs=1e-9
    )
  for index in [(0, 0), (4, 2)]:
    assert float(gradient.y[index]) == pytest.approx(
      central_difference(f, syn, 'y', index), rel=1e-5, abs=1e-9
    )
  assert float(gradient.log_step) == pytest.approx(
    central_difference(f, syn, 'log_step', ()), rel=1e-5
  )
  assert abs(float(gradient.log_step)) > 1e-4


@pytest.mark.parametrize(
  ('batch_size', 'scan_unroll'),
  [
    (4, 1),
    *(pytest.param(*pair, marks=pytest.mark.slow) for pair in ((4, 9), (0, 1), (0, 9))),
  ],  # 9 is more than there are steps
)
def test_adjoints_are_reverse_over_reverse(x64, batch_size, scan_unroll):
  """The adjoints must replay the DSA draws of every step (cutout, scale, colour in turn)."""
  augment = functools.partial(dsa, operations=('colour', 'cutout', 'scale'))
  plain, syn = problem(plain_unroll, augment=augment, batch_size=batch_size)
  reference = jax.tree.leaves(jax.jit(jax.value_and_grad(plain))(syn))
  assert max(float(jnp.abs(leaf).max()) for leaf in reference[1:]) > 1e-3
  for adjoint in trajectory.ADJOINTS:
    options = {'batch_size': batch_size, 'scan_unroll': scan_unroll, 'adjoint': adjoint}
    f, syn = problem(trajectory.unroll, augment=augment, **options)
    found = jax.jit(jax.value_and_grad(f))(syn)
    for a, b in zip(reference, jax.tree.leaves(found), strict=True):
      np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


def test_unroll_by_hand(x64):
  """One parameter w, loss (w - x)^2 / 2 on the mean image 3, step size 1/2: 1, 2, 2.5, 2.75."""
  loss = lambda w, x, y, key: 0.5 * (w['w'] - x.mean()) ** 2
  syn = SyntheticSet(jnp.full((2, 1, 1, 1), 3.0), jnp.zeros((2, 1)), jnp.log(jnp.asarray(0.5)))
  start = {'w': jnp.asarray(1.0)}
  for adjoint in trajectory.ADJOINTS:
    unroll = lambda syn, adjoint=adjoint: trajectory.unroll(
      loss, start, syn, jax.random.key(0), 3, adjoint=adjoint
    )['w']
    assert float(unroll(syn)) == pytest.approx(2.75)
    # w_3 = x + (w_0 - x)(1 - a)^3: dw_3/dx = 1 - 1/8 in all, half of it for each image;
    # dw_3/dlog a = a * 3 (1 - a)^2 (x - w_0) = 0.5 * 0.75 * 2
    gradient = jax.jit(jax.grad(unroll))(syn)
    np.testing.assert_allclose(gradient.x.ravel(), [0.4375, 0.4375])
    assert float(gradient.log_step) == pytest.approx(0.75)


@pytest.mark.parametrize('adjoint', trajectory.ADJOINTS)
def test_the_derivative_of_the_last_steps_by_hand(x64, adjoint):
  """As above, with the derivative of the last one or two of three steps.

  The value is that of three steps. Of step i, dx adds a (1 - a)^(2-i) to dw_3/dx, and dlog a adds
  a (1 - a)^(2-i) (x - w_i): 0.5 (3 - 2.5) from the last step, and 0.5 0.5 (3 - 2) from the second.
  """
  loss = lambda w, x, y, key: 0.5 * (w['w'] - x.mean()) ** 2
  syn = SyntheticSet(jnp.full((2, 1, 1, 1), 3.0), jnp.zeros((2, 1)), jnp.log(jnp.asarray(0.5)))
  expected = {1: (0.5, 0.25), 2: (0.75, 0.5), 3: (0.875, 0.75), 9: (0.875, 0.75)}
  for n, (by_x, by_step) in expected.items():
    unroll = lambda syn, n=n: trajectory.unroll(
      loss,
      {'w': jnp.asarray(1.0)},
      syn,
      jax.random.key(0),
      3,
      adjoint=adjoint,
      backward_steps=n,
    )['w']
    value, gradient = jax.jit(jax.value_and_grad(unroll))(syn)
    assert float(value) == pytest.approx(2.75)
    assert float(gradient.x.sum()) == pytest.approx(by_x)
    assert float(gradient.log_step) == pytest.approx(by_step)


def test_distances_by_hand():
  """w* = (1, 0), start (0, 0), end (1, 1): squared 1 / 1, cosine 1 - 1 / sqrt(2)."""
  end, target, start = (jnp.array(v) for v in ([1.0, 1.0], [1.0, 0.0], [0.0, 0.0]))
  assert float(trajectory.squared_distance(end, target, start)) == pytest.approx(1.0)
  assert float(trajectory.squared_distance(start, target, start)) == pytest.approx(1.0)
  assert float(trajectory.squared_distance(target, target, start)) == 0
  assert float(dynamics.cosine_distance(end, target)) == pytest.approx(1 - 2**-0.5, rel=1e-6)


@settings(max_examples=30, deadline=None)
@given(
  length=st.integers(1, 12),
  segment=st.integers(1, 5),
  first=st.integers(0, 1),
  targets=st.integers(0, 3),
  seed=st.integers(0, 99),
)
def test_segments_stay_on_the_trajectory(length, segment, first, targets, seed):
  """With w^c = c the start is t and t + s <= L.

  The target lies in t+1 .. t+s. Without averaging it is t + s.
  """
  if length - segment < first:
    return
  path = jnp.arange(length + 1.0)
  drawn = trajectory.draw_segment(jax.random.key(seed), path, first, length, segment, targets)
  t, target = float(drawn.start), float(drawn.target)
  assert first <= t <= length - segment and t == int(t)
  assert t + 1 <= target <= t + segment
  if targets == 0:
    assert target == t + segment


def test_every_start_and_every_checkpoint_is_drawn():
  path = jnp.arange(11.0)
  draw = jax.vmap(lambda key: trajectory.draw_segment(key, path, 0, 10, 3, 1))
  drawn = draw(jax.random.split(jax.random.key(0), 2000))
  assert set(np.asarray(drawn.start)) == set(range(8))
  assert set(np.asarray(drawn.target - drawn.start)) == {1, 2, 3}


def test_the_end_of_the_segment_joins_the_drawn_checkpoints():
  """With w^c = c, two drawn checkpoints a and b: (a + b) / 2, and (a + b + t + s) / 3."""
  path, rule = jnp.arange(11.0), (0, 10, 3, 2)
  for seed in range(20):
    draw = functools.partial(trajectory.draw_segment, jax.random.key(seed), path, *rule)
    two, three = draw(), draw(include_end=True)
    assert float(three.start) == float(two.start)
    expected = (2 * float(two.target) + float(two.start) + 3) / 3
    assert float(three.target) == pytest.approx(expected)


def test_smallest_move_finds_a_trajectory_that_stands_still():
  moving = {'w': jnp.array([0.0, 1.0, 3.0, 6.0, 10.0])}
  assert float(trajectory.smallest_move(moving, 0, 4, 2)) == 1.0
  assert float(trajectory.smallest_move(moving, 1, 4, 2)) == 4.0
  standing = {'w': jnp.array([0.0, 1.0, 3.0, 3.0, 10.0])}
  assert float(trajectory.smallest_move(standing, 0, 4, 2)) == 0.0


def test_soft_cross_entropy_against_numpy():
  rng = np.random.default_rng(0)
  logits, labels = rng.normal(size=(5, 4)), rng.normal(size=(5, 4))
  softmax = lambda v: np.exp(v) / np.exp(v).sum(1, keepdims=True)
  expected = -(softmax(labels) * np.log(softmax(logits))).sum(1).mean()
  assert float(
    synthetic_set.soft_cross_entropy(jnp.asarray(logits), jnp.asarray(labels))
  ) == pytest.approx(expected, rel=1e-5)


def test_batches_are_rows_of_images_and_labels():
  x = jnp.arange(4.0).reshape(4, 1, 1, 1)
  syn, key = SyntheticSet(x, x.reshape(4, 1), jnp.zeros(())), jax.random.key(0)
  batches = [synthetic_set.batch(syn, key, 2, i) for i in range(2)]
  for images, labels in batches:
    np.testing.assert_array_equal(images.ravel(), labels.ravel())
  seen = np.concatenate([labels.ravel() for _, labels in batches])
  assert sorted(seen) == [0, 1, 2, 3]
  for size in (0, 4, 9):  # all
    np.testing.assert_array_equal(synthetic_set.batch(syn, key, size, 0)[0], x)


def test_a_new_set_has_equal_labels_and_unit_noise():
  syn = synthetic_set.noise(jax.random.key(0), 50, (8, 8, 3), 10, 0.04)
  as_arrays = synthetic_set.to_numpy(syn)
  np.testing.assert_allclose(as_arrays['y'], 0.1, rtol=1e-6)
  assert as_arrays['x'].shape == (50, 8, 8, 3)
  assert abs(as_arrays['x'].std() - 1) < 0.05 and abs(as_arrays['x'].mean()) < 0.05
  assert as_arrays['step_size'] == pytest.approx(0.04)
  fainter = synthetic_set.noise(jax.random.key(0), 50, (8, 8, 3), 10, 0.04, 0.25)
  np.testing.assert_array_equal(fainter.x, 0.25 * syn.x)
  np.testing.assert_array_equal(fainter.y, syn.y)
