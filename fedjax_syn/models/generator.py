"""Generators: features for a label (FedGen, Zhu et al., 2021), images (FedCOG, A.5.1)."""

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from fedjax_syn.core.types import Array

RUNNING = 0.1  # of a batch in the running moments
EPSILON = 1e-5
IMAGE_NOISE = 256  # random numbers of an image


class Moments(NamedTuple):
  """What batch norm divides by."""

  mean: Array  # [hidden]
  variance: Array  # [hidden]


def running(old: Moments, batch: Moments, rows: int) -> Moments:
  """Moves running moments on by a batch of training, as PyTorch does: variances over n - 1.

  Args:
    old: zeros and ones at first.
    batch: the batch's own moments, the variance over n.
    rows: n.
  """
  variance = batch.variance * (rows / max(rows - 1, 1))
  move = lambda a, b: (1 - RUNNING) * a + RUNNING * b
  return Moments(move(old.mean, batch.mean), move(old.variance, variance))


class FeatureGenerator(nn.Module):
  """[noise, one-hot label] - linear - batch norm - ReLU - linear: features of a label.

  Called with y [batch], uniform noise [batch, noise] and moments, it returns features [batch,
  features], the input of the classifier's head, and moments: in training on the server those of the
  batch, on clients the running ones that were given.
  """

  hidden: int
  features: int
  classes: int

  @nn.compact
  def __call__(
    self, y: Array, noise: Array, moments: Moments | None = None
  ) -> tuple[Array, Moments]:
    z = jnp.concatenate([noise, jax.nn.one_hot(y, self.classes, dtype=noise.dtype)], axis=-1)
    z = nn.Dense(self.hidden, use_bias=False, param_dtype=z.dtype)(z)  # batch norm has a shift
    # A batch's own moments take out what all its rows share: on a client of one class, the label.
    moments = Moments(z.mean(axis=0), z.var(axis=0)) if moments is None else moments
    scale = self.param('scale', nn.initializers.ones, (self.hidden,))
    bias = self.param('bias', nn.initializers.zeros, (self.hidden,))
    z = (z - moments.mean[None]) * jax.lax.rsqrt(moments.variance + EPSILON)[None]
    z = nn.relu(z * scale[None] + bias[None])
    return nn.Dense(self.features, param_dtype=z.dtype)(z), moments


class ImageGenerator(nn.Module):
  """Linear to 8 x 8 x 128, upsampling, three convolutions: noise [batch, noise] to images."""

  shape: tuple[int, int, int]

  @nn.compact
  def __call__(self, z: Array) -> Array:
    height, width, channels = self.shape
    z = nn.Dense(8192, param_dtype=z.dtype)(z).reshape(-1, 8, 8, 128)
    z = jax.image.resize(z, (z.shape[0], height, width, 128), 'nearest')
    for features in (128, 64):
      z = nn.leaky_relu(nn.Conv(features, (3, 3), param_dtype=z.dtype)(z), 0.2)
    return nn.Conv(channels, (3, 3), param_dtype=z.dtype)(z)
