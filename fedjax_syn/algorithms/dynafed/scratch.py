"""Training of a fresh network on the synthetic set alone (DynaFed, Figure 6, right)."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedjax_syn.algorithms.dynafed.synthetic_set import SyntheticSet, batch, soft_cross_entropy
from fedjax_syn.core.optimizers import training_step
from fedjax_syn.core.types import Model, Params, PRNGKey, Stats, Variables


class Scratch(NamedTuple):
  """A training run on a small set."""

  steps: np.ndarray  # [points], 0, every, 2 every, ...
  accuracy: np.ndarray  # [points]
  variables: Variables  # after the last step


def train_from_scratch(
  key: PRNGKey,
  model: Model,
  syn: SyntheticSet,
  evaluate: Callable[[Params, Stats], dict[str, float]],
  *,
  optimizer: optax.GradientTransformation,
  steps: int,
  every: int,
  batch_size: int = 0,
) -> Scratch:
  """Trains a network from new initial weights on a synthetic set only.

  Args:
    key: for the initial weights, and for batches.
    model: the network; its running statistics are those of this training.
    syn: images [n, ...] and label logits [n, classes]; the set's own step size is not used.
    evaluate: (params, stats) -> {'accuracy', ...}, see `fedjax_syn.engine.evaluate`.
    optimizer: an optax optimizer.
    steps: how many.
    every: steps between evaluations; the last step is always evaluated.
    batch_size: images per step; 0 is all of them.

  Returns:
    Steps, accuracies and the trained network. The paper gives neither optimizer nor steps of its
    figure.
  """

  def loss(w, stats, x, y):
    out = model.apply(Variables(w, stats), x, train=True)
    return soft_cross_entropy(out.logits, y), out.stats

  take = training_step(loss, optimizer, has_aux=True)

  def step(syn, carry, i):
    (w, stats), opt_state = carry
    (w, opt_state), (_, stats) = take((w, opt_state), stats, *batch(syn, key, batch_size, i))
    return Variables(w, stats), opt_state

  @jax.jit
  def advance(carry, syn, first, last):
    return jax.lax.fori_loop(first, last, lambda i, carry: step(syn, carry, i), carry)

  variables = model.init(key)
  carry = variables, optimizer.init(variables.params)
  points = [*range(0, steps, every), steps]
  accuracies = [evaluate(*variables)['accuracy']]
  for first, last in zip(points, points[1:], strict=False):
    carry = advance(carry, syn, jnp.int32(first), jnp.int32(last))
    accuracies.append(evaluate(*carry[0])['accuracy'])
  return Scratch(np.array(points), np.array(accuracies), carry[0])
