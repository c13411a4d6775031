"""Initial weights: PyTorch's defaults, which the papers' code relies on, and Flax's."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedjax_syn.typing import Array, PRNGKey


class Init(NamedTuple):
  """How a layer with weights draws its kernel and its bias."""

  kernel: Callable[[PRNGKey, tuple], Array]  # (key, shape [..., fan in, out]) -> kernel
  bias: Callable[[PRNGKey, tuple, int], Array]  # (key, shape [out], fan in) -> bias


def _uniform_bias(key: PRNGKey, shape: tuple, fan_in: int) -> Array:
  bound = fan_in**-0.5
  return jax.random.uniform(key, shape, minval=-bound, maxval=bound)


def _zero_bias(key: PRNGKey, shape: tuple, fan_in: int) -> Array:
  del key, fan_in
  return jnp.zeros(shape)


# Variance 1 / (3 fan_in) is that of a uniform law on +-1/sqrt(fan_in). Trajectory distances and
# balls of a fixed radius around the weights depend on this scale: it is not a matter of taste.
INITS = {
  'torch': Init(jax.nn.initializers.variance_scaling(1 / 3, 'fan_in', 'uniform'), _uniform_bias),
  'flax': Init(jax.nn.initializers.lecun_normal(), _zero_bias),
}
