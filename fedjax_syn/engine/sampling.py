"""Which clients take part in a round."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_syn.typing import Array, PRNGKey

Sampler = Callable[
  [PRNGKey], Array
]  # -> client of each slot [slots]; num_clients means an empty slot


def fixed(num_clients: int, participation: float) -> tuple[int, Sampler]:
  """Draws the same number of clients in every round, uniformly without replacement."""
  # Rounding first, so that 0.29 * 100 is 29 clients in spite of binary fractions.
  slots = max(1, int(round(num_clients * participation, 9)))

  def sample(key):
    return jnp.argsort(jax.random.uniform(key, (num_clients,)))[:slots].astype(jnp.int32)

  return slots, sample


def poisson(num_clients: int, participation: float) -> tuple[int, Sampler]:
  """Draws every client independently; the slots hold seven standard deviations above the mean."""
  spread = math.sqrt(num_clients * participation * (1 - participation))
  slots = min(num_clients, math.ceil(num_clients * participation + 7 * spread + 7))

  def sample(key):
    chosen = jax.random.uniform(key, (num_clients,)) < participation
    return jnp.nonzero(chosen, size=slots, fill_value=num_clients)[0].astype(jnp.int32)

  return slots, sample


def count_empty(
  sampled: Callable[[Array, Array], Array],
  fewest: int,
  size: np.ndarray,
  seed: int,
  first: int,
  last: int,
) -> int:
  """Counts the rounds in which nobody with a sample is drawn, by drawing again: nothing has to be kept for it.

  Args:
    sampled: (seed, round) -> who is drawn, as inside the round.
    fewest: clients that are drawn at least.
    size: [clients], samples of each.
    seed: the run's.
    first: the round before the first that counts.
    last: the last one.

  Returns:
    How many of the rounds first + 1 .. last.
  """

  @jax.jit
  def count(size, seed, first, last):
    def add(number, empty):
      drawn = sampled(seed, number)
      there = (drawn < len(size)) & (size[jnp.minimum(drawn, len(size) - 1)] > 0)
      return empty + jnp.where(there.any(), 0, 1)

    return jax.lax.fori_loop(first + 1, last + 1, add, jnp.int32(0))

  if (size == 0).sum() < fewest:  # somebody with a sample is always among them
    return 0
  return int(count(*jax.device_put((size, *map(np.int32, (seed, first, last))))))


SAMPLERS = {'fixed': fixed, 'poisson': poisson}
# By sampler, the fewest clients that a round may have, of its slots.
FEWEST = {'fixed': lambda slots: slots, 'poisson': lambda slots: 0}
