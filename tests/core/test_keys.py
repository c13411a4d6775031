"""Every (purpose, round, client, use, number) of a run has a key of its own, also across seeds."""

import itertools

import jax
import jax.extend.random
import numpy as np
import pytest

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


def test_keys_do_not_depend_on_how_many_are_drawn():
  alone = jax.random.uniform(fold(stream(0, Purpose.CLIENT, 2), 3), (4,))
  longer = jax.random.uniform(fold(stream(0, Purpose.CLIENT, 2), 3), (9,))
  np.testing.assert_array_equal(alone, longer[:4])


@pytest.mark.parametrize(
  'key, hashed, expected',
  [
    ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
    ((2**32 - 1,) * 2, (2**32 - 1,) * 2, (0x1CB996FC, 0xBB002BE7)),
    ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
  ],
)
def test_the_hash_gives_the_published_numbers(key, hashed, expected):
  """The vectors of Threefry-2x32 with 20 rounds that its authors publish (Random123)."""
  given = tuple(np.uint32([word]) for word in (*key, *hashed))
  assert [int(word[0]) for word in threefry(*given)] == list(expected)
  through_jax = jax.extend.random.threefry2x32_p.bind(*given)
  assert [int(word[0]) for word in through_jax] == list(expected)


def test_draws_have_no_loop():
  """A loop of the hash is several kernels, which a CPU program would compile for every draw."""
  draw = lambda seed: jax.random.normal(fold(stream(seed, Purpose.CLIENT, 3), 2), (5,))
  assert 'while' not in jax.jit(draw).lower(np.int32(0)).as_text()


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
