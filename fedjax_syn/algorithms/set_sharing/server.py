"""How sets of images travel, and what a server does with them: it trains on their union."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from fedjax_syn.algorithms.set_sharing.class_sets import ClassSet, gather
from fedjax_syn.core import microbatches
from fedjax_syn.core.contexts import Task
from fedjax_syn.core.keys import fold
from fedjax_syn.core.types import Params, PRNGKey, Stats, Variables


def received(body: dict[str, Any]) -> ClassSet:
  """Reads the sets out of a round's messages, leaves [clients, ...]; see `sent`."""
  return ClassSet(body['x'], body['present'] > 0)


def sent(own: ClassSet) -> dict[str, Any]:
  """Writes a set into a message; sums of messages stay defined."""
  return {'x': own.x, 'present': own.present.astype(own.x.dtype)}


def train(
  key: PRNGKey,
  task: Task,
  w: Params,
  stats: Stats,
  sets: list[ClassSet],
  optimizer: optax.GradientTransformation,
  *,
  steps: int,
  batch_size: int,
) -> Params:
  """Trains on the union of sets.

  Args:
    key: for the batches.
    task: gives the network.
    w: where to begin.
    stats: running statistics, held fixed.
    sets: each with leaves [clients, ...].
    optimizer: fresh.
    steps: steps.
    batch_size: images in a step, drawn with replacement from all that are present.

  Returns:
    The trained parameters; w itself where no image is present.
  """
  union = ClassSet(*(jnp.concatenate(leaves) for leaves in zip(*sets, strict=True)))
  x, y, order, count = gather(union)

  def mean(w, x, y):
    logits = task.model.apply(Variables(w, stats), x, train=False).logits
    return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

  number = microbatches.num_microbatches(task.model, x.shape[-3:], x.dtype, batch_size)
  loss = microbatches.microbatched(mean, number)

  def step(carry, i):
    w, opt_state = carry
    drawn = jax.random.randint(fold(key, i), (batch_size,), 0, jnp.maximum(count, 1))
    rows = order[drawn]
    grads = jax.grad(loss)(w, x[rows], y[rows])
    updates, opt_state = optimizer.update(grads, opt_state, w)
    return (optax.apply_updates(w, updates), opt_state), None

  trained = jax.lax.scan(step, (w, optimizer.init(w)), jnp.arange(steps))[0][0]
  return jax.tree.map(lambda t, w: jnp.where(count > 0, t, w), trained, w)
