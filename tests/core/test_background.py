"""Background work: waiting for it counts as compilation; work beside the run does not count."""

import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_syn.core.background import Background
from fedjax_syn.runs.clock import Clock


def compile_something(shift: float):
  return jax.jit(lambda v: v * 3 + shift).lower(jnp.ones(5)).compile()


def test_what_happens_beside_the_run_is_not_counted_and_what_is_waited_for_is():
  ones = jnp.ones(5)  # itself a program
  with Clock() as clock:
    beside = Background(lambda: compile_something(1.0))
    while not beside.future.done():
      time.sleep(0.01)
    before = clock.seconds()['compile']
    assert np.asarray(beside.result()(ones))[0] == 4
    assert before == 0 and clock.seconds()['compile'] < 0.1
    Background(lambda: time.sleep(0.3)).result()
    assert 0.25 < clock.seconds()['compile'] < 5
    here = clock.seconds()['compile']
    compile_something(2.0)
    assert clock.seconds()['compile'] > here  # in this thread it counts as ever


def test_errors_and_precision_cross_over():
  def fails():
    raise ValueError('no such program')

  with pytest.raises(ValueError, match='no such program'):
    Background(fails).result()
  with jax.default_matmul_precision('bfloat16'):
    work = Background(lambda: jax.config.jax_default_matmul_precision)
  assert work.result() == 'bfloat16'
