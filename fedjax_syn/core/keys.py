"""Random keys: every draw of a run follows from (seed, purpose, round, client).

Hashing is what makes programs slow to compile on a CPU, so a purpose costs no hash, small tags
share one with the number that they tag, and a hash has no loop.
"""

import enum
import functools

import jax
import jax.extend.random
import jax.numpy as jnp
from jax.interpreters import mlir
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


_ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)


def threefry(key_0: Array, key_1: Array, x: Array, y: Array) -> tuple[Array, Array]:
  """Hashes pairs of numbers, without a loop.

  Args:
    key_0: first word of the key, uint32 [...].
    key_1: second word of the key, uint32 [...].
    x: first words of what is hashed, uint32 [...].
    y: second words of what is hashed, uint32 [...].

  Returns:
    Both words of the hashes, uint32 [...].

  Source: Salmon et al. (2011), Threefry-2x32 with 20 rounds.
  """
  keys = key_0, key_1, key_0 ^ key_1 ^ jnp.uint32(0x1BD11BDA)
  x, y = x + key_0, y + key_1
  for i in range(5):
    for rotation in _ROTATIONS[i % 2]:
      x += y
      y = x ^ (y << rotation | y >> 32 - rotation)
    x, y = x + keys[(i + 1) % 3], y + keys[(i + 2) % 3] + jnp.uint32(i + 1)
  return x, y


# On a CPU JAX hashes in a loop of several kernels; one kernel compiles several times faster and
# gives the same numbers (docs/speed.md).
mlir.register_lowering(
  jax.extend.random.threefry2x32_p,
  mlir.lower_fun(threefry, multiple_results=True),
  platform='cpu',
)
