"""Which clients take part in a round, and which samples are in a batch."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

from fedjax_syn.core import own_code
from fedjax_syn.core.types import Array, PRNGKey

Sampler = Callable[[PRNGKey], Array]
"""key -> client numbers [cohort]; the number of all clients stands for nobody."""


def fixed(num_clients: int, participation: float) -> tuple[int, Sampler]:
  """Draws the same number of clients in every round, uniformly without replacement."""
  # Rounding first, so that 0.29 * 100 is 29 clients in spite of binary fractions.
  cohort_size = max(1, int(round(num_clients * participation, 9)))

  def sample(key):
    return jnp.argsort(jax.random.uniform(key, (num_clients,)))[:cohort_size].astype(jnp.int32)

  return cohort_size, sample


def poisson(num_clients: int, participation: float) -> tuple[int, Sampler]:
  """Draws every client independently; a cohort holds seven standard deviations above the mean."""
  deviation = math.sqrt(num_clients * participation * (1 - participation))
  cohort_size = min(num_clients, math.ceil(num_clients * participation + 7 * deviation + 7))

  def sample(key):
    chosen = jax.random.uniform(key, (num_clients,)) < participation
    return jnp.nonzero(chosen, size=cohort_size, fill_value=num_clients)[0].astype(jnp.int32)

  return cohort_size, sample


def drawer(
  name: str, num_clients: int, participation: float
) -> tuple[int, Callable[[PRNGKey, Array], Array]]:
  """Returns the largest cohort, and how it is drawn.

  Args:
    name: of `SAMPLERS`, or 'module:function', a function (key, round, clients, cohort) -> distinct
      client numbers [cohort]; other numbers, and a number that comes again, are nobody.
    num_clients: registered clients.
    participation: share of them in a round.

  Returns:
    The cohort, and a function (key, round) -> client numbers [cohort]; `num_clients` is nobody.
  """
  if ':' not in name:
    cohort, sample = SAMPLERS[name](num_clients, participation)
    return cohort, lambda key, round: sample(key)
  function, (cohort, _) = own_code.load(name, 'client.sampler'), fixed(num_clients, participation)

  def draw(key: PRNGKey, round: Array) -> Array:
    drawn = jnp.asarray(function(key, round, num_clients, cohort))
    if drawn.shape != (cohort,) or not jnp.issubdtype(drawn.dtype, jnp.integer):
      raise ValueError(
        f'client.sampler={name!r}: must return {cohort} client numbers, got'
        f' {drawn.dtype}{list(drawn.shape)}'
      )
    again = jnp.tril(drawn[:, None] == drawn[None], -1).any(axis=1)
    there = (drawn >= 0) & (drawn < num_clients) & ~again
    return jnp.where(there, drawn, num_clients).astype(jnp.int32)

  return cohort, draw


SAMPLERS = {'fixed': fixed, 'poisson': poisson}
FEWEST = {'fixed': lambda cohort_size: cohort_size, 'poisson': lambda cohort_size: 0}
"""By sampler, the fewest clients of a round."""


def chosen(num_clients: int, share: Array | float, seed: int) -> Array:
  """Draws a fixed share of all clients, as those that attack.

  Args:
    num_clients: of the run.
    share: of them, rounded to whole clients, [].
    seed: of the draw.

  Returns:
    Whether a client is among them, bool [num_clients].
  """
  order = jax.random.permutation(jax.random.key(seed, impl='threefry2x32'), num_clients)
  return order < jnp.round(share * num_clients)


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
