"""The memory of one synthesis iteration at the paper's CIFAR-10 size, as the compiler states it."""

import jax
import pytest

from fedjax_syn import models
from fedjax_syn.algorithms.dynafed import synthetic_set, unroll
from fedjax_syn.data.augment import dsa


def temporary_bytes(adjoint: str, width: int, steps: int) -> int:
  model = models.create('convnet', shape=(32, 32, 3), num_classes=10, width=width, depth=3)
  params = jax.eval_shape(model.init, jax.random.key(0)).params
  syn = jax.eval_shape(lambda: synthetic_set.noise(jax.random.key(0), 150, (32, 32, 3), 10, 0.04))

  def iteration(syn, start, target):
    loss = unroll.inner_loss(model, {}, dsa)

    def f(syn):
      end = unroll.unroll(loss, start, syn, jax.random.key(0), steps, adjoint=adjoint)
      return unroll.squared_distance(end, target, start)

    return jax.value_and_grad(f)(syn)

  compiled = jax.jit(iteration).lower(syn, params, params).compile()
  return compiled.memory_analysis().temp_size_in_bytes


def test_steps_cost_parameters_and_not_activations():
  """Ten more steps of width 8 add little memory.

  The parameters are 1,928 (7.7 kB); the activations of one step take megabytes.
  """
  few, many = (temporary_bytes('jvp', 8, steps) for steps in (2, 12))
  assert few > 1e6
  assert many - few < 10 * 150 * 32 * 32 * 8 * 4 / 10


@pytest.mark.slow
def test_the_papers_size_stays_under_two_gibibytes():
  assert temporary_bytes('jvp', 128, 20) < 2 * 2**30
