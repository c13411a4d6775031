"""Random keys: every draw of a run follows from (seed, purpose, round, client).

Hashing is what makes programs slow to compile on a CPU, so a purpose costs no hash and small tags
share one with the number that they tag. Outside of programs numpy hashes, and nothing is compiled.
"""

import enum

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from fedjax_syn.core.types import PRNGKey


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
THREEFRY = 'threefry2x32'  # the kind of all keys
ROTATIONS = 13, 15, 26, 6, 17, 29, 16, 24


def stream(seed: ArrayLike, purpose: Purpose, round: ArrayLike = 0) -> PRNGKey:
  """Returns the key of one purpose in one round.

  Args:
    seed: the run's seed, [].
    purpose: what the key is for.
    round: the round, 0 for what happens before the first.

  Returns:
    A typed key. Fold further numbers (client, iteration, position) into it; never split it as well.
  """
  if not _is_traced((seed, purpose, round)):
    return _hashed((_word(purpose), _word(seed)), round)
  words = jnp.stack([jnp.uint32(purpose), jnp.asarray(seed).astype(jnp.uint32)])
  return jax.random.fold_in(jax.random.wrap_key_data(words, impl=THREEFRY), round)


def fold(key: PRNGKey, number: ArrayLike, tag: int = 0) -> PRNGKey:
  """Folds a number into a key, for one of `TAGS` uses that must not share their draws.

  Args:
    key: a key of `stream` or `fold`.
    number: a client, a step, an epoch, a position, [].
    tag: 0 .. TAGS - 1.

  Returns:
    A typed key.
  """
  if not _is_traced((key, number, tag)):
    with jax.ensure_compile_time_eval():  # a known key, in a function that is traced
      words = jax.device_get(jax.random.key_data(key))
    return _hashed(words, _word(number) * TAGS + _word(tag))
  return jax.random.fold_in(key, jnp.asarray(number) * TAGS + tag)


def _is_traced(values: tuple[ArrayLike, ...]) -> bool:
  return any(isinstance(value, jax.core.Tracer) for value in values)


def _word(value: ArrayLike) -> int:
  return int(jax.device_get(value)) % 2**32


def _hashed(words: tuple[int, int], number: ArrayLike) -> PRNGKey:
  """Returns the key that `jax.random.fold_in` returns, without a program."""
  hashed = threefry(words, (0, _word(number)))
  return jax.random.wrap_key_data(jax.device_put(np.array(hashed, np.uint32)), impl=THREEFRY)


def threefry(key: tuple[int, int], counter: tuple[int, int]) -> tuple[int, int]:
  """Hashes two words of 32 bits under a key of two words.

  Source: Threefry-2x32 with 20 rounds, Salmon et al. (2011), Section 4.2.
  """
  low = 2**32 - 1
  k = [int(word) for word in key]
  k.append(k[0] ^ k[1] ^ 0x1BD11BDA)
  x, y = (counter[0] + k[0]) & low, (counter[1] + k[1]) & low
  for i in range(20):
    turn = ROTATIONS[i % 8]
    x = (x + y) & low
    y = (y << turn | y >> 32 - turn) & low ^ x
    if i % 4 == 3:  # the key again, after every fourth round
      j = i // 4 + 1
      x, y = (x + k[j % 3]) & low, (y + k[(j + 1) % 3] + j) & low
  return x, y
