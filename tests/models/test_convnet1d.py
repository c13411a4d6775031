"""The ConvNet for sequences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_syn import models

STEPS, CHANNELS, WIDTH = 9, 2, 12


def by_hand(params, x, pooling):
  """Convolution over five steps, norm over time and groups of 3 channels, ReLU, pooling by two."""
  z = np.asarray(x, np.float64)
  for i in range(2):
    conv, norm = params['body'][f'conv_{i}'], params['body'][f'norm_{i}']
    kernel = np.asarray(conv['kernel'], np.float64).reshape(5, z.shape[-1], WIDTH)
    padded = np.pad(z, ((0, 0), (2, 2), (0, 0)))
    out = np.zeros((*z.shape[:2], WIDTH)) + np.asarray(conv['bias'])
    for t in range(z.shape[1]):
      for j in range(5):
        out[:, t] += padded[:, t + j] @ kernel[j]
    grouped = out.reshape(*out.shape[:2], 4, 3)
    mean, var = (f(grouped, axis=(1, 3), keepdims=True) for f in (np.mean, np.var))
    out = ((grouped - mean) / np.sqrt(var + 1e-5)).reshape(out.shape)
    out = np.maximum(out * norm['scale'] + norm['bias'], 0)
    pairs = out[:, : out.shape[1] // 2 * 2].reshape(len(out), -1, 2, WIDTH)
    z = pairs.mean(2) if pooling == 'avg' else pairs.max(2)
  return z.mean(1)


@pytest.mark.parametrize('pooling', ['avg', 'max'])
def test_by_hand(pooling):
  of = {'shape': (STEPS, CHANNELS), 'num_classes': 3, 'width': WIDTH, 'depth': 2}
  model = models.create('convnet1d', pooling=pooling, **of)
  w = model.init(jax.random.key(0))
  x = np.random.default_rng(0).normal(size=(4, STEPS, CHANNELS))
  out, stages = model.apply(w, jnp.asarray(x, jnp.float32), stages=True)
  want = by_hand(w.params, x, pooling)
  np.testing.assert_allclose(out.features, want, rtol=0, atol=2e-5)
  head = w.params['head']
  np.testing.assert_allclose(out.logits, want @ head['kernel'] + head['bias'], rtol=0, atol=2e-5)
  assert [z.shape for z in stages] == [(4, 4, WIDTH), (4, 2, WIDTH)]


def test_running_statistics_leave_padding_out():
  """With BatchNorm a masked row changes nothing."""
  of = {'shape': (8, CHANNELS), 'num_classes': 3, 'width': 4, 'depth': 1, 'norm': 'batch'}
  model = models.create('convnet1d', **of)
  w = model.init(jax.random.key(0))
  x = jax.random.normal(jax.random.key(1), (3, 8, CHANNELS))
  mask = jnp.array([1.0, 1, 0])
  padded = model.apply(w, x, train=True, mask=mask).stats
  alone = model.apply(w, x[:2], train=True, mask=mask[:2]).stats
  for a, b in zip(jax.tree.leaves(padded), jax.tree.leaves(alone), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
