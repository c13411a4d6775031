"""Every (purpose, round, client, use, number) of a run has a key of its own, also across seeds."""

import itertools

import jax
import numpy as np

from fedjax_syn.core.keys import TAGS, Purpose, fold, stream, threefry
from tests.debug_checks import recorded_keys


def test_keys_are_distinct():
  """Counts the distinct key data over 3 seeds, 4 rounds, 5 clients, 6 steps and all tags."""
  draw = jax.jit(
    jax.vmap(
      lambda seed, purpose, round, client, number, tag: jax.random.key_data(
        fold(fold(stream(seed, purpose, round), client), number, tag)
      )
    )
  )
  asked = np.array(
    list(itertools.product(range(3), list(Purpose), range(4), range(5), range(6), range(TAGS)))
  )
  data = np.asarray(draw(*asked.T))
  assert len({tuple(row) for row in data}) == len(asked)


def test_threefry_has_its_published_values():
  """The known answers of the authors: zeros, ones, digits of pi (Salmon et al., 2011)."""
  ones = (2**32 - 1,) * 2
  assert threefry((0, 0), (0, 0)) == (0x6B200159, 0x99BA4EFE)
  assert threefry(ones, ones) == (0x1CB996FC, 0xBB002BE7)
  pi = threefry((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3))
  assert pi == (0xC4923A9C, 0x483DF7A0)


def test_keys_outside_of_programs_are_those_inside():
  key = lambda seed, round, number: fold(stream(seed, Purpose.SERVER_WORK, round), number, 3)
  inside = jax.jit(key)
  for numbers in np.array([[0, 0, 0], [7, 60, 5], [-1, 2**31 - 1, -4], [2**31 - 1, 1, 2**28]]):
    words = [jax.random.key_data(f(*numbers.astype(np.int32))) for f in (key, inside)]
    np.testing.assert_array_equal(*words)


def test_a_known_key_is_folded_in_a_traced_function():
  known = stream(3, Purpose.COMMON)
  inside = jax.jit(lambda: jax.random.key_data(fold(fold(known, 2), 1)))()
  np.testing.assert_array_equal(inside, jax.random.key_data(fold(fold(known, 2), 1)))


def test_keys_do_not_depend_on_how_many_are_drawn():
  alone = jax.random.uniform(fold(stream(0, Purpose.CLIENT, 2), 3), (4,))
  longer = jax.random.uniform(fold(stream(0, Purpose.CLIENT, 2), 3), (9,))
  np.testing.assert_array_equal(alone, longer[:4])


def test_a_key_that_is_drawn_from_twice_is_counted_twice():
  """`tests/algorithms/test_partitions.py` relies on this count.

  The key is drawn from in a scan, under vmap, and folded twice to the same key.
  """
  with recorded_keys() as drawn:
    key = jax.random.key(0)

    @jax.jit
    def draws(key):
      once = lambda i: jax.random.normal(fold(key, i))
      return jax.vmap(once)(np.arange(3)), jax.lax.map(once, np.arange(3, 5)), once(4)

    draws(key)
  assert sorted(count for what in drawn.values() for count in what.values()) == [1, 1, 1, 1, 2]

  with recorded_keys() as drawn:  # for two purposes
    jax.jit(lambda key: (jax.random.normal(key), jax.random.uniform(key)))(key)
  assert [sorted(what) for what in drawn.values()] == [['normal ()', 'uniform ()']]
