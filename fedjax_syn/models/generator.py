"""Generators: features for a label (FedGen, Zhu et al., 2021) and images from noise (FedCOG, Appendix A.5.1)."""

from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from fedjax_syn.typing import Array, Params, PRNGKey


class Generator(NamedTuple):
  """A generator as pure functions."""

  init: Callable[[PRNGKey], Params]
  apply: Callable[[Params, Array, Array, Array], Array]  # (params, y, noise, mask) -> features
  noise: int  # uniform numbers per sample


class Body(nn.Module):
  """[noise, one-hot label] - linear - batch norm - ReLU - linear."""

  hidden: int
  features: int
  classes: int

  @nn.compact
  def __call__(self, y: Array, noise: Array, mask: Array) -> Array:
    z = jnp.concatenate([noise, jax.nn.one_hot(y, self.classes, dtype=noise.dtype)], axis=-1)
    z = nn.Dense(self.hidden, param_dtype=z.dtype)(z)
    # By the batch at hand, here and on the clients, so that no running statistics travel.
    total = jnp.maximum(mask.sum(), 1)
    mean = jnp.tensordot(mask, z, 1) / total
    centred = z - mean[None]
    variance = jnp.tensordot(mask, centred**2, 1) / total
    scale = self.param('scale', nn.initializers.ones, (self.hidden,))
    bias = self.param('bias', nn.initializers.zeros, (self.hidden,))
    z = nn.relu(centred * jax.lax.rsqrt(variance + 1e-5)[None] * scale[None] + bias[None])
    return nn.Dense(self.features, param_dtype=z.dtype)(z)


def generator(*, noise: int, hidden: int, features: int, num_classes: int) -> Generator:
  """Builds a generator.

  Args:
    noise: uniform numbers per sample.
    hidden: hidden units.
    features: size of the features, the input of the classifier's head.
    num_classes: labels.

  Returns:
    The generator; `apply(params, y [batch], noise [batch, noise], mask [batch]) -> [batch, features]`.
  """
  body = Body(hidden, features, num_classes)

  def init(key):
    return body.init(key, jnp.zeros(1, jnp.int32), jnp.zeros((1, noise)), jnp.ones(1))['params']

  def apply(params, y, eps, mask):
    return body.apply({'params': params}, y, eps, mask)

  return Generator(init, apply, noise)


class ImageBody(nn.Module):
  """Linear to 8 x 8 x 128, upsampling, three convolutions."""

  shape: tuple[int, int, int]

  @nn.compact
  def __call__(self, z: Array) -> Array:
    height, width, channels = self.shape
    z = nn.Dense(8192, param_dtype=z.dtype)(z).reshape(-1, 8, 8, 128)
    z = jax.image.resize(z, (z.shape[0], height, width, 128), 'nearest')
    for features in (128, 64):
      z = nn.leaky_relu(nn.Conv(features, (3, 3), param_dtype=z.dtype)(z), 0.2)
    return nn.Conv(channels, (3, 3), param_dtype=z.dtype)(z)


class ImageGenerator(NamedTuple):
  """A generator of images as pure functions."""

  init: Callable[[PRNGKey], Params]
  apply: Callable[[Params, Array], Array]  # (params, noise [batch, noise]) -> [batch, *shape]
  noise: int


def image_generator(shape: tuple[int, int, int], noise: int = 256) -> ImageGenerator:
  """Builds FedCOG's optional generator for images of a shape (height, width, channels)."""
  body = ImageBody(shape)
  return ImageGenerator(
    lambda key: body.init(key, jnp.zeros((1, noise)))['params'],
    lambda params, z: body.apply({'params': params}, z),
    noise,
  )
