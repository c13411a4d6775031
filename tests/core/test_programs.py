"""Compiled programs: what a process keeps of models that are gone."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_syn as fs
from fedjax_syn.core import programs
from fedjax_syn.engine import rounds
from tests.tiny import build, half_square, quadratic, two_points


@pytest.fixture
def two_kinds(monkeypatch):
  monkeypatch.setattr(programs, 'KEPT', 2)
  monkeypatch.setattr(programs, '_kinds', set())
  rounds.many_rounds.clear_cache()


def engine_of(model, **local):
  base = fs.FedAvg(optimizer='sgd', **{'lr': 0.25, **local})
  return build(fs.chain(base), model, two_points(), loss=half_square)


def test_programs_of_models_that_are_new_every_time_are_not_kept(two_kinds):
  engines, states, sizes = [], [], []
  for start in range(5):
    engines.append(engine_of(quadratic(float(start))))
    states.append(engines[-1].run(0, engines[-1].init(0), 1)[0])
    sizes.append(rounds.many_rounds._cache_size())
  assert sizes == [1, 2, 1, 2, 1]
  again, _ = engines[0].run(0, engines[0].init(0), 1)
  chex.assert_trees_all_equal(again, states[0])


def test_equal_engines_and_other_values_are_one_kind(two_kinds):
  model = quadratic(1.0)
  for lr in (0.1, 0.2, 0.3):
    engine = engine_of(model, lr=lr)
    engine.run(0, engine.init(0), 1)
  assert len(programs._kinds) == 1 and rounds.many_rounds._cache_size() == 1
  engine_of(model, epochs=2)
  assert len(programs._kinds) == 2


def test_a_program_that_runs_once_has_the_numbers_of_jit_except_for_rounding():
  def draw(scale, rows):
    key, shape = jax.random.key(3), (rows, 7)
    truncated = jax.random.truncated_normal(key, -2, 2, shape)
    x = scale * jax.random.normal(key, shape)
    return x, truncated, jax.random.bits(key, shape), jnp.argsort(x, axis=0)

  once = programs.Once(draw, static_argnames='rows')
  plain = jax.jit(draw, static_argnames='rows')
  for ours, theirs in zip(once(0.3, rows=50), plain(0.3, rows=50), strict=True):
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
  assert once.jitted._cache_size() == 1
  once.clear_cache()
  assert once.jitted._cache_size() == 0
