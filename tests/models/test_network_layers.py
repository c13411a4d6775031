"""Layers against loops over pixels, numpy and hand-worked numbers; BatchNorm against padding."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.test_util import check_grads

from fedjax_syn.models.init import INITS
from fedjax_syn.models.network_layers import (
  COPIES,
  FORMS,
  BatchNorm,
  Conv,
  Dense,
  GroupNorm,
  avg_pool,
  max_pool,
)

TORCH = INITS['torch']
forms = pytest.mark.parametrize('form', FORMS.values(), ids=FORMS)


@pytest.fixture(autouse=True)
def float64():
  with jax.enable_x64(True):
    yield


def images(*shape, seed=0, mean=0.0):
  return np.random.default_rng(seed).normal(mean, 1.0, size=shape)


def through(form, layer, x):
  """Applies a layer to NHWC images in a form, and returns NHWC."""
  return np.asarray(jax.jit(lambda x: form.swap(layer(form.swap(x))))(x))


def slow_conv(x, kernel, bias, stride, padding):
  """Cross-correlation by its definition, one output pixel at a time."""
  x = np.pad(x, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
  size = kernel.shape[0]
  rows, columns = ((n - size) // stride + 1 for n in x.shape[1:3])
  y = np.zeros((x.shape[0], rows, columns, kernel.shape[3]))
  for n, r, c, o in np.ndindex(*y.shape):
    seen = x[n, r * stride : r * stride + size, c * stride : c * stride + size]
    y[n, r, c, o] = (seen * kernel[..., o]).sum() + bias[o]
  return y


@forms
@pytest.mark.parametrize(
  ('size', 'stride', 'padding'), [(3, 1, 1), (3, 2, 1), (1, 2, 0), (5, 1, 0), (3, 1, 3)]
)
def test_conv_is_its_definition(form, size, stride, padding):
  x = images(2, 7, 6, 3)  # height, width and channels differ, so that no axis can be mistaken
  layer = Conv(4, size, form, TORCH, stride=stride, padding=padding)
  kernel, bias = images(size, size, 3, 4, seed=1), images(4, seed=2)
  want = slow_conv(x, kernel, bias, stride, padding)
  got = through(form, lambda z: layer.apply({'params': {'kernel': kernel, 'bias': bias}}, z), x)
  np.testing.assert_allclose(got, want, atol=1e-12)


@forms
@pytest.mark.parametrize('of', ['images', 'kernel', 'both'])
def test_conv_has_the_derivatives_of_finite_differences(form, of):
  """First and second ones, forward and backward, of the whole or with one side held."""
  x, kernel = images(1, 4, 5, 2), images(3, 3, 2, 2, seed=1)
  convolve = lambda x, kernel: jnp.sin(form.convolve(form.swap(x), kernel, 1))
  function, args = {
    'images': (lambda x: convolve(x, kernel), (x,)),
    'kernel': (lambda kernel: convolve(x, kernel), (kernel,)),
    'both': (convolve, (x, kernel)),
  }[of]
  check_grads(function, args, order=2, modes=('fwd', 'rev'), atol=1e-4, rtol=1e-4)
  batched = jax.jit(jax.vmap(jax.grad(lambda *args: function(*args).sum(), range(len(args)))))
  twice = [np.stack([a, 2 * a]) for a in args]
  for got, a, i in zip(batched(*twice), args, range(len(args)), strict=True):
    alone = jax.grad(lambda *args: function(*args).sum(), i)(*(2 * a for a in args))
    assert got.shape == (2, *a.shape)
    np.testing.assert_allclose(got[1], alone, atol=1e-12)


def test_only_a_frozen_kernels_cotangent_is_copied():
  """The program has the loop that copies it only where images alone are differentiated.

  The loop does not help training.
  """
  x, kernel = images(3, 6, 6, 2), images(3, 3, 3, 4, seed=1)
  loss = lambda x, kernel: jnp.sin(FORMS['chwn'].convolve(x, kernel, 1)).sum()
  loops = lambda argnums: str(jax.make_jaxpr(jax.grad(loss, argnums))(x, kernel)).count('scan[')
  assert (loops(0), loops(1), loops((0, 1))) == (int(COPIES), 0, 0)


def test_conv_without_bias_has_none():
  layer = Conv(4, 3, FORMS['xla'], TORCH, bias=False)
  assert set(layer.init(jax.random.key(0), jnp.ones((1, 4, 4, 2)))['params']) == {'kernel'}


def test_form_promotes_single_precision_images():
  """Float32 images meet float64 weights in every form alike."""
  x, params = images(2, 5, 5, 2).astype(np.float32), {'kernel': images(3, 3, 2, 3)}
  for form in FORMS.values():
    layer = Conv(3, 3, form, TORCH, bias=False)
    assert through(form, lambda z, f=layer: f.apply({'params': params}, z), x).dtype == np.float64


@forms
@pytest.mark.parametrize(('height', 'width'), [(4, 6), (5, 7), (3, 2)])
def test_pools_are_their_definition(form, height, width):
  """Every 2 x 2 block that fits; an odd last row or column is dropped."""
  x = images(2, height, width, 3)
  for layer, combine in ((avg_pool, np.mean), (max_pool, np.max)):
    want = np.zeros((2, height // 2, width // 2, 3))
    for n, r, c, o in np.ndindex(*want.shape):
      want[n, r, c, o] = combine(x[n, 2 * r : 2 * r + 2, 2 * c : 2 * c + 2, o])
    np.testing.assert_allclose(through(form, layer, x), want, atol=1e-14)


@forms
def test_padded_max_pool_never_takes_the_padding(form):
  x = images(1, 6, 6, 2, mean=-50)  # zeros would win
  padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=-np.inf)
  want = np.zeros((1, 3, 3, 2))
  for _, r, c, o in np.ndindex(*want.shape):
    want[0, r, c, o] = padded[0, 2 * r : 2 * r + 3, 2 * c : 2 * c + 3, o].max()
  np.testing.assert_allclose(
    through(form, functools.partial(max_pool, size=3, padding=1), x), want, atol=1e-14
  )


@forms
@pytest.mark.parametrize('groups', [0, 1, 2, 6])
def test_group_norm_is_its_definition(form, groups):
  x = images(3, 4, 5, 6, mean=2.0) * np.arange(1, 7)
  scale, bias = images(6, seed=1), images(6, seed=2)
  split = x.reshape(3, 4, 5, groups or 6, -1)
  centred = split - split.mean((1, 2, 4), keepdims=True)
  want = centred / np.sqrt((centred**2).mean((1, 2, 4), keepdims=True) + 1e-5)
  want = want.reshape(x.shape) * scale + bias
  variables = {'params': {'scale': jnp.asarray(scale), 'bias': jnp.asarray(bias)}}
  layer = GroupNorm(form, groups)
  got = through(form, lambda z: layer.apply(variables, z, True, None), x)
  np.testing.assert_allclose(got, want, atol=1e-12)


@forms
def test_group_norm_has_pytorchs_epsilon(form):
  """Pixels a and -a with a^2 = 1e-5 have variance 1e-5: they become +-1/sqrt(2) (Flax: 0.95)."""
  x = np.sqrt(1e-5) * np.array([1.0, -1.0]).reshape(1, 1, 2, 1)
  layer = GroupNorm(form)
  got = through(form, lambda z: layer.init_with_output(jax.random.key(0), z, True, None)[0], x)
  np.testing.assert_allclose(got.ravel(), [0.5**0.5, -(0.5**0.5)], rtol=1e-12)


def test_group_norm_keeps_its_digits_far_from_zero():
  """In float32, pixels 1000 +- 1 have variance 1; E[x^2] - E[x]^2 would be off by parts of it."""
  x = jnp.asarray(np.float32([999, 1001] * 8).reshape(1, 4, 4, 1))
  y, _ = GroupNorm(FORMS['xla']).init_with_output(jax.random.key(0), x, True, None)
  np.testing.assert_allclose(np.abs(y), 1.0, atol=1e-4)


@functools.partial(jax.jit, static_argnames=('form', 'train'))
def batch_norm(form, x, mask=None, train=True, stats=None):
  """Returns NHWC output and running statistics of a BatchNorm with scale 1 and shift 0."""
  one, zero = jnp.ones(x.shape[3]), jnp.zeros(x.shape[3])
  variables = {
    'params': {'scale': one, 'bias': zero},
    'batch_stats': stats or {'mean': zero, 'var': one},
  }
  layer = BatchNorm(form)
  y, changed = layer.apply(variables, form.swap(x), train, mask, mutable=['batch_stats'])
  return form.swap(y), changed['batch_stats']


def test_batch_norm_starts_at_mean_0_and_variance_1():
  made = BatchNorm(FORMS['xla']).init(jax.random.key(0), jnp.ones((2, 3, 3, 2)), False, None)
  want = {
    'params': {'scale': [1, 1], 'bias': [0, 0]},
    'batch_stats': {'mean': [0, 0], 'var': [1, 1]},
  }
  assert jax.tree.map(np.ndarray.tolist, jax.tree.map(np.asarray, made)) == want


@forms
def test_batch_norm_moves_its_statistics_by_a_tenth(form):
  """Pixels 0 and 4: mean 2, variance 4. Running: 0.9 * 0 + 0.1 * 2 = 0.2; 0.9 + 0.1 * 4 = 1.3."""
  x = np.array([0.0, 4.0]).reshape(2, 1, 1, 1)
  y, stats = batch_norm(form, x)
  np.testing.assert_allclose(y.ravel(), np.array([-2, 2]) / np.sqrt(4 + 1e-5), rtol=1e-12)
  np.testing.assert_allclose([stats['mean'][0], stats['var'][0]], [0.2, 1.3], rtol=1e-12)


@forms
def test_batch_norm_evaluates_with_running_statistics(form):
  """Running mean 1, variance 4: a pixel of 5 becomes 4 / sqrt(4 + 1e-5), whatever is beside it."""
  stats = {'mean': jnp.array([1.0]), 'var': jnp.array([4.0])}
  x = np.array([5.0, 100.0]).reshape(2, 1, 1, 1)
  y, after = batch_norm(form, x, train=False, stats=stats)
  np.testing.assert_allclose(y[0, 0, 0, 0], 4 / np.sqrt(4 + 1e-5), rtol=1e-12)
  jax.tree.map(np.testing.assert_array_equal, after, stats)


@functools.partial(jax.jit, static_argnums=0)
def masked_norm(form, x, mask, weights):
  """Output, running statistics and the slope in x of a loss over the samples that count."""

  def loss(x):
    y, stats = batch_norm(form, x, mask)
    return (y * weights * mask[:, None, None, None]).sum(), (y, stats)

  (_, (y, stats)), slope = jax.value_and_grad(loss, has_aux=True)(x)
  return y, stats, slope


@forms
@settings(max_examples=20, deadline=None)
@given(
  mask=st.lists(st.booleans(), min_size=6, max_size=6).filter(any),
  junk=st.sampled_from([0.0, 7.0, -1e9]),
)
def test_batch_norm_does_not_see_padding(form, mask, junk):
  """Anywhere in the batch: values, running statistics and slopes are those of the real samples."""
  mask = np.array(mask)
  x, weights = images(6, 3, 2, 2), images(6, 3, 2, 2, seed=9)
  padded = np.where(mask[:, None, None, None], x, junk)
  real = x[mask]
  mean, var = real.mean((0, 1, 2)), real.var((0, 1, 2))
  y, stats, slope = masked_norm(form, padded, mask.astype(float), weights)
  np.testing.assert_allclose(y[mask], (real - mean) / np.sqrt(var + 1e-5), atol=1e-10)
  np.testing.assert_allclose(stats['mean'], 0.1 * mean, atol=1e-12)
  np.testing.assert_allclose(stats['var'], 0.9 + 0.1 * var, atol=1e-12)
  other = masked_norm(form, x, mask.astype(float), weights)[2]
  np.testing.assert_allclose(slope[mask], other[mask], atol=1e-10)
  assert not np.asarray(slope)[~mask].any()


@forms
def test_batch_norm_of_padding_only_changes_nothing(form):
  stats = {'mean': jnp.array([1.0, -1.0]), 'var': jnp.array([4.0, 0.5])}
  x, mask = images(4, 2, 2, 2), jnp.zeros(4)

  def loss(z):
    y, after = batch_norm(form, z, mask, stats=stats)
    return (y * mask[:, None, None, None]).sum(), after

  (_, after), slope = jax.jit(jax.value_and_grad(loss, has_aux=True))(x)
  jax.tree.map(np.testing.assert_array_equal, after, stats)
  assert np.isfinite(slope).all()


@pytest.mark.parametrize('layer', [Dense(600, TORCH), Conv(600, 3, FORMS['xla'], TORCH)])
def test_torch_initialisation_is_uniform_within_one_over_root_fan_in(layer):
  """64 inputs, or 9 * 64: variance bound^2 / 3, mean 0, values up to the bound but not beyond."""
  p = layer.init(jax.random.key(1), jnp.ones((1, 3, 3, 64)))['params']
  bound = np.prod(p['kernel'].shape[:-1]) ** -0.5
  for w in p.values():
    assert 0.98 * bound < np.abs(w).max() <= bound
    np.testing.assert_allclose(w.std(), bound / np.sqrt(3), rtol=0.05)
    assert abs(w.mean()) < 4 * bound / np.sqrt(3 * w.size)


def test_torchvision_initialisation_has_variance_two_over_fan_out():
  """9 * 128 values go out of each input: variance 2 / 1152. Dense layers are as in 'torch'."""
  layer = Conv(128, 3, FORMS['xla'], INITS['torchvision'], bias=False)
  w = layer.init(jax.random.key(1), jnp.ones((1, 3, 3, 64)))['params']['kernel']
  np.testing.assert_allclose(w.std(), (2 / 1152) ** 0.5, rtol=0.02)
  assert np.abs(w).max() > 3 * (2 / 1152) ** 0.5  # normal
  draw = lambda name: INITS[name].kernel(jax.random.key(2), (64, 10), 64)
  np.testing.assert_array_equal(draw('torchvision'), draw('torch'))


def test_flax_initialisation_is_lecun_normal_with_zero_biases():
  layer = Conv(600, 3, FORMS['xla'], INITS['flax'])
  p = layer.init(jax.random.key(1), jnp.ones((1, 3, 3, 64)))['params']
  np.testing.assert_allclose(p['kernel'].std(), (9 * 64) ** -0.5, rtol=0.01)
  assert (
    np.abs(p['kernel']).max() > 1.9 * (9 * 64) ** -0.5
  )  # wider than the uniform law of that std
  assert not p['bias'].any()
