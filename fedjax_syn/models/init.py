"""Initial weights: PyTorch's defaults, which the papers' code relies on, and Flax's."""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedjax_syn.core.types import Array, PRNGKey

# Standard deviation of a standard normal law cut off at +-2.
TRUNCATED_STD = 0.87962566103423978


class Init(NamedTuple):
  """How a layer with weights draws its kernel and its bias, given (key, shape, fan in)."""

  kernel: Callable[[PRNGKey, tuple, int], Array]
  bias: Callable[[PRNGKey, tuple, int], Array]


# Numbers are drawn as one vector: the values are the same, and XLA's CPU backend compiles the draw
# of a kernel several times faster (init of a ResNet-18: 7 s of processor time instead of 37).
def _uniform(key: PRNGKey, shape: tuple, fan_in: int) -> Array:
  bound = fan_in**-0.5
  drawn = jax.random.uniform(key, (math.prod(shape),), minval=-bound, maxval=bound)
  return drawn.reshape(shape)


def _lecun_normal(key: PRNGKey, shape: tuple, fan_in: int) -> Array:
  drawn = jax.random.truncated_normal(key, -2.0, 2.0, (math.prod(shape),))
  return drawn.reshape(shape) * (fan_in**-0.5 / TRUNCATED_STD)


def _he_fan_out(key: PRNGKey, shape: tuple, fan_in: int) -> Array:
  if len(shape) < 4:
    return _uniform(key, shape, fan_in)
  height, width, _, out = shape
  drawn = jax.random.normal(key, (math.prod(shape),)).reshape(shape)
  return drawn * (2 / (height * width * out)) ** 0.5


# Trajectory distances and balls of a fixed radius around the weights depend on their scale: which
# initialisation is used is not a matter of taste.
INITS = {
  'torch': Init(_uniform, _uniform),  # +-1/sqrt(fan in), weights and biases
  'torchvision': Init(_he_fan_out, _uniform),  # as 'torch', convolutions with variance 2 / fan out
  'flax': Init(_lecun_normal, lambda key, shape, fan_in: jnp.zeros(shape)),
}
