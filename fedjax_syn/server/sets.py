"""What a server does with the clients' sets: keep the model where it is, and train it on their union."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from fedjax_syn.keys import fold
from fedjax_syn.method import Method, Task
from fedjax_syn.synthesis.class_sets import ClassSet, gather
from fedjax_syn.typing import Params, PRNGKey, Stats, Variables


def refuse_base(base: Method | None, name: str) -> None:
  """Refuses to put a method whose clients send data around anything but nothing.

  Raises:
    ValueError: in one line.
  """
  if base is not None and base.name != 'fedavg':
    raise ValueError(
      f'{name!r} cannot be put around {base.name!r}: its clients send data and train no model'
    )


def keep(task: Task) -> Callable:
  """An aggregation that keeps the model: clients that send data send no models."""
  return lambda key, old, messages: (old, {})


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

  def loss(w, rows):
    logits = task.model.apply(Variables(w, stats), x[rows], train=False).logits
    return optax.softmax_cross_entropy_with_integer_labels(logits, y[rows]).mean()

  def step(carry, i):
    w, opt_state = carry
    drawn = jax.random.randint(fold(key, i), (batch_size,), 0, jnp.maximum(count, 1))
    grads = jax.grad(loss)(w, order[drawn])
    updates, opt_state = optimizer.update(grads, opt_state, w)
    return (optax.apply_updates(w, updates), opt_state), None

  trained = jax.lax.scan(step, (w, optimizer.init(w)), jnp.arange(steps))[0][0]
  return jax.tree.map(lambda t, w: jnp.where(count > 0, t, w), trained, w)
