"""FedGen's generator: features for a label, without images (Zhu et al., 2021)."""

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
    z = nn.Dense(self.hidden)(z)
    # By the batch at hand, here and on the clients, so that no running statistics travel.
    total = jnp.maximum(mask.sum(), 1)
    mean = jnp.tensordot(mask, z, 1) / total
    variance = jnp.tensordot(mask, (z - mean) ** 2, 1) / total
    scale = self.param('scale', nn.initializers.ones, (self.hidden,))
    bias = self.param('bias', nn.initializers.zeros, (self.hidden,))
    z = nn.relu((z - mean) * jax.lax.rsqrt(variance + 1e-5) * scale + bias)
    return nn.Dense(self.features)(z)


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
