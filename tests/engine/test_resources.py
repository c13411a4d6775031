"""Rounds compile once, and memory does not grow with the number of rounds."""

import gc
import pathlib
import resource

import chex
import jax
import jax.numpy as jnp
import pytest

from fedjax_syn.engine import Engine
from tests import tiny
from tests.engine.test_rounds import METHODS, SIZES


def test_rounds_compile_once():
  compiled = []
  listen = lambda event, duration, **_: (
    compiled.append(event) if 'backend_compile' in event else None
  )
  data = tiny.federated(SIZES)
  engine = Engine(METHODS['adam'](), tiny.net(4, 3), data, participation=0.5)
  state, _ = engine.run(0, engine.init(0), 1)
  jax.monitoring.register_event_duration_secs_listener(listen)
  try:
    with jax.transfer_guard(
      'disallow'
    ):  # on four devices; nothing reaches them but what was put there
      for rounds in (1, 2, 5, 1, 12):
        state, _ = engine.run(0, state, rounds)
    assert compiled == []
    jax.jit(lambda v: v * 3 + 1)(jnp.ones(7))
    assert compiled, 'the listener hears nothing: the test could not fail'
  finally:
    jax.monitoring.clear_event_listeners()


def test_a_warm_engine_does_what_a_cold_one_does_and_compiles_no_more():
  data = tiny.federated(SIZES)
  cold, warm = (
    tiny.build(METHODS['scaffold'](), tiny.net(4, 3), data, participation=0.5) for _ in '12'
  )
  state = warm.init(0)
  warm.warm_up()
  state, report = warm.run(0, state, 2)
  expected, expected_report = cold.run(0, cold.init(0), 2)
  chex.assert_trees_all_equal(state, expected)
  assert report == expected_report
  counted = []
  listen = lambda event, duration, **_: counted.append(event) if '/compile/' in event else None
  jax.monitoring.register_event_duration_secs_listener(listen)
  try:
    for rounds in (1, 3):
      state, _ = warm.run(0, state, rounds)
  finally:
    jax.monitoring.clear_event_listeners()
  assert not counted


def test_live_memory_is_flat_over_fifty_rounds():
  data = tiny.federated(SIZES)
  engine = tiny.build(METHODS['scaffold'](), tiny.net(4, 3), data, participation=0.5)
  state = engine.init(0)
  measured = []
  for _ in range(50):
    state, _ = engine.run(0, state, 1)
    measured.append(sum(a.nbytes for a in jax.live_arrays()))
  assert measured[2] == measured[-1]


@pytest.mark.skipif(
  not pathlib.Path('/proc/self/statm').exists(), reason='resident memory of Linux'
)
@pytest.mark.parametrize('clients', [80, 10_000])
def test_resident_memory_after_fifty_rounds_is_that_after_five(clients):
  """Rounds leave nothing in memory, however many clients are registered.

  Allocators may keep 1 % of the process.
  """

  def resident():
    gc.collect()
    return int(pathlib.Path('/proc/self/statm').read_text().split()[1]) * resource.getpagesize()

  data = tiny.federated([2] * clients)
  engine = tiny.build(METHODS['adam'](), tiny.net(4, 3), data, participation=32 / clients)
  state = engine.init(0)
  for _ in range(5):
    state, _ = engine.run(0, state, 1)
  after_five = resident()
  for _ in range(45):
    state, _ = engine.run(0, state, 1)
  assert resident() - after_five < 0.01 * after_five
