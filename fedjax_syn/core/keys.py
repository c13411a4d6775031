"""Random keys: every draw of a run follows from (seed, purpose, round, client).

Hashing is what makes programs slow to compile on a CPU, so a purpose costs no hash and small tags
share one with the number that they tag.
"""

import enum
import functools

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from fedjax_syn.core.types import Array, PRNGKey


class Purpose(enum.IntEnum):
  """What a key is for; the values never change, so that runs stay reproducible."""

  INIT = 0
  SAMPLE = 1
  CLIENT = 2
  AGGREGATE = 3
  SERVER = 4
  SETUP = 5
  SERVER_WORK = 6
  EVALUATE = 7
  COMMON = 8
  PERSONAL = 9


TAGS = 8  # how many streams one key can be tagged for


@functools.partial(jax.jit, inline=True)  # one program where it is not traced
def stream(seed: ArrayLike, purpose: Purpose, round: ArrayLike = 0) -> PRNGKey:
  """Returns the key of one purpose in one round.

  Args:
    seed: the run's seed, [].
    purpose: what the key is for.
    round: the round, 0 for what happens before the first.

  Returns:
    A typed key. Fold further numbers (client, iteration, position) into it; never split it as well.
  """
  words = jnp.stack([jnp.uint32(purpose), jnp.asarray(seed).astype(jnp.uint32)])
  return jax.random.fold_in(jax.random.wrap_key_data(words, impl='threefry2x32'), round)


@functools.partial(jax.jit, inline=True)
def fold(key: PRNGKey, number: Array | int, tag: int = 0) -> PRNGKey:
  """Folds a number into a key, for one of `TAGS` uses that must not share their draws.

  Args:
    key: a key of `stream` or `fold`.
    number: a client, a step, an epoch, a position, [].
    tag: 0 .. TAGS - 1.

  Returns:
    A typed key.
  """
  return jax.random.fold_in(key, jnp.asarray(number) * TAGS + tag)
