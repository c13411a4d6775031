"""Compiled programs: what a process keeps of models that are gone."""

import types

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_syn as fs
from fedjax_syn import models
from fedjax_syn.core import programs
from fedjax_syn.engine import rounds
from fedjax_syn.models import blocks
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


@pytest.mark.parametrize('in_blocks', [False, True])
def test_networks_in_blocks_have_options_of_their_own(in_blocks):
  """On a CPU only: lowered for other devices, the function has no options of a CPU."""
  model = models.create('convnet', shape=(8, 8, 1), num_classes=2, width=4, depth=1, conv='chwn')
  assert model.in_blocks == blocks.FAST
  model = model._replace(in_blocks=in_blocks)
  double = programs.ByModel(
    lambda model, x: 2 * x, lambda model, x: (model, None), static_argnums=0
  )
  assert double(model, 3.0) == 6.0 and double(model, 4.0) == 8.0 and double._cache_size() == 1
  chosen = double._of_blocks if in_blocks else double._usual
  assert chosen._cache_size() == 1
  assert double.lower(model, 3.0).compile()(3.0) == 6.0
  tpu = types.SimpleNamespace(devices=np.array([types.SimpleNamespace(platform='tpu')]))
  double._of = lambda model, x: (model, tpu)
  assert double._chosen((model, 3.0)) is double._usual
  double.clear_cache()
  assert double._cache_size() == 0


@pytest.mark.parametrize(
  'changes',
  [{'conv': 'xla'}, {'norm': 'batch'}, {'shape': (12, 12, 1)}, {'activations': 'bfloat16'}],
)
def test_which_networks_are_in_blocks(changes):
  """Eight pixels are halved three times; 12 leave a rest."""
  given = {'shape': (8, 8, 1), 'num_classes': 2, 'width': 4, 'depth': 3, 'conv': 'chwn'}
  assert models.create('convnet', **given).in_blocks == blocks.FAST
  assert not models.create('convnet', **given | changes).in_blocks


@pytest.mark.parametrize('on_cpu', [programs.FAST, programs.OF_DRAWS])
def test_a_program_that_runs_once_has_the_numbers_of_jit_except_for_rounding(on_cpu):
  def draw(scale, rows):
    key, shape = jax.random.key(3), (rows, 7)
    truncated = jax.random.truncated_normal(key, -2, 2, shape)
    x = scale * jax.random.normal(key, shape)
    return x, truncated, jax.random.bits(key, shape), jnp.argsort(x, axis=0)

  once = programs.Once(draw, on_cpu, static_argnames='rows')
  plain = jax.jit(draw, static_argnames='rows')
  for ours, theirs in zip(once(0.3, rows=50), plain(0.3, rows=50), strict=True):
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
  assert once.jitted._cache_size() == 1
  once.clear_cache()
  assert once.jitted._cache_size() == 0
