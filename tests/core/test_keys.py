"""Every (purpose, round, client, use, number) of a run has a key of its own, also across seeds."""

import itertools

import jax
import numpy as np

from fedjax_syn.core.keys import TAGS, Purpose, fold, stream
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
