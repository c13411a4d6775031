"""Which clients take part in a round, and which samples are in a batch."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

from fedjax_syn.core.types import Array, PRNGKey

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


SAMPLERS = {'fixed': fixed, 'poisson': poisson}
# By sampler, the fewest clients that a round may have, of its slots.
FEWEST = {'fixed': lambda slots: slots, 'poisson': lambda slots: 0}


def minibatch(key: PRNGKey, samples: int, batch_size: int, step: Array) -> Array:
  """Returns the rows of one batch of shuffled passes through a set.

  Args:
    key: of all passes; each is shuffled anew.
    samples: size of the set.
    batch_size: at most `samples`; the last batch of a pass is filled up from the pass's beginning.
    step: [], 0, 1, ...

  Returns:
    int32 [batch_size].
  """
  per_pass = -(-samples // batch_size)
  order = jax.random.permutation(jax.random.fold_in(key, step // per_pass), samples)
  return order[(step % per_pass * batch_size + jnp.arange(batch_size)) % samples]
