"""A virtual data set of noise, one distribution per class, and the alignment of features with it (VHL)."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedjax_syn.core.keys import fold
from fedjax_syn.core.types import Array, PRNGKey

GRID = 8  # pixels of the coarse images, as in the authors' Gaussian noise
LATENT, CHANNELS = 64, 16  # of the generator; latent size as in the authors' scripts


class Virtual(NamedTuple):
  """Noise images, kept small: `render` makes pixels of those that are looked at."""

  z: Array  # [images, latent]
  y: Array  # [images], 0 .. classes - 1
  generator: Any  # the generator's fixed random weights; () for Gaussian noise


def noise_set(
  key: PRNGKey,
  source: str,
  shape: tuple[int, int, int],
  classes: int,
  per_class: int,
  spread: Array | float,
) -> Virtual:
  """Draws the set: z = m_y + spread * e, with a mean m_c ~ N(0, 1) for every class and e ~ N(0, 1).

  Args:
    key: of the set; the same key gives the same set.
    source: 'gaussian': z is an image of 8 x 8 pixels; 'generator': z enters an untrained network.
    shape: (height, width, channels) of an image.
    classes: C.
    per_class: images of a class.
    spread: standard deviation around a class's mean, [].

  Returns:
    The set, C * per_class images in the order of their labels.

  Raises:
    ValueError: if the source is unknown.
  """
  height, width, channels = shape
  if source == 'gaussian':
    size, generator = min(GRID, height) * min(GRID, width) * channels, ()
  elif source == 'generator':
    size = LATENT
    first = jax.random.normal(fold(key, 0, 2), (LATENT, GRID * GRID * CHANNELS)) / LATENT**0.5
    second = jax.random.normal(fold(key, 0, 3), (3, 3, CHANNELS, channels))
    generator = first, second * (2 / (9 * CHANNELS)) ** 0.5
  else:
    raise ValueError(f"source={source!r} is unknown; known: 'gaussian', 'generator'")
  y = jnp.repeat(jnp.arange(classes, dtype=jnp.int32), per_class)
  means = jax.random.normal(fold(key, 0), (classes, size))
  z = means[y] + spread * jax.random.normal(fold(key, 0, 1), (y.shape[0], size))
  return Virtual(z, y, generator)


def render(virtual: Virtual, rows: Array, shape: tuple[int, int, int]) -> Array:
  """Returns some of the images in normalised pixels: rows [batch] -> [batch, height, width, channels]."""
  height, width, channels = shape
  z = virtual.z[rows]
  if virtual.generator:
    first, second = virtual.generator
    z = jax.nn.leaky_relu(z @ first, 0.2).reshape(-1, GRID, GRID, CHANNELS)
  else:
    z = z.reshape(-1, min(GRID, height), min(GRID, width), channels)
  x = jax.image.resize(z, (z.shape[0], height, width, z.shape[-1]), 'bilinear')
  if virtual.generator:
    x = jax.lax.conv_general_dilated(
      x, second, (1, 1), 'SAME', dimension_numbers=('NHWC', 'HWIO', 'NHWC')
    )
  return x


def contrastive_loss(features: Array, y: Array, mask: Array, temperature: Array | float) -> Array:
  """Supervised contrastive loss: features of a class are drawn together, and away from all others.

  Args:
    features: [batch, features]; only their directions count.
    y: labels, [batch].
    mask: [batch], 1 for a sample and 0 for padding.
    temperature: tau.

  Returns:
    The mean over all samples i of -1/|P(i)| sum_{p in P(i)} log(exp(s_ip / tau) / sum_{j != i} exp(s_ij / tau)),
    [], s the cosines and P(i) the other samples of i's class; a sample without one adds 0. Source: Khosla
    et al. (2020), Eq. 2, with the scale of VHL's code: tau over tau is 1.
  """
  square = jnp.sum(features**2, axis=-1, keepdims=True)
  # A feature vector of zeros (dead ReLUs) has no direction, and must have no gradient either.
  z = features * jnp.where(square > 0, jax.lax.rsqrt(jnp.where(square > 0, square, 1)), 0)
  others = (mask > 0)[None] & ~jnp.eye(y.shape[0], dtype=bool)
  scores = jnp.where(others, z @ z.T / temperature, -1e30)
  log_p = jnp.where(others, jax.nn.log_softmax(scores, axis=1), 0)
  positive = others & (y[:, None] == y[None])
  losses = -jnp.sum(log_p * positive, axis=1) / jnp.maximum(positive.sum(axis=1), 1)
  return jnp.sum(losses * mask) / jnp.maximum(mask.sum(), 1)
