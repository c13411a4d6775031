"""Optimizers by their optax names, and training by them."""

from collections.abc import Callable
from typing import Any

import jax
import optax

from fedjax_syn.core.types import Array, Params, PyTree

OPTIMIZERS = ('sgd', 'adam', 'adamw', 'adagrad', 'rmsprop', 'yogi', 'lion', 'nadam')


def optimizer(
  name: str, *, momentum: float = 0.0, weight_decay: float = 0.0, clip_norm: float = 0.0
) -> Callable[[Any], optax.GradientTransformation]:
  """Returns a function from the learning rate, which may be traced, to an optax optimizer.

  Args:
    name: an optax optimizer, one of `OPTIMIZERS`.
    momentum: heavy-ball momentum; for sgd and rmsprop only.
    weight_decay: L2 added to the gradient before the optimizer (coupled, as PyTorch's SGD and Adam
      do), except for adamw and lion, whose own decoupled decay it becomes.
    clip_norm: bound on the norm of the whole gradient, which is scaled down before anything else;
      0: none.

  Raises:
    ValueError: if the optimizer has no momentum.
  """
  options: dict[str, Any] = {}
  if momentum:
    if name not in ('sgd', 'rmsprop'):
      raise ValueError(
        f'client.momentum={momentum} has no meaning for {name!r}; set it to 0 or use sgd'
      )
    options['momentum'] = momentum
  decoupled = name in ('adamw', 'lion')
  if decoupled:
    options['weight_decay'] = weight_decay

  def build(learning_rate):
    inner = getattr(optax, name)(learning_rate, **options)
    before = [optax.clip_by_global_norm(clip_norm)] if clip_norm else []
    if weight_decay and not decoupled:
      before.append(optax.add_decayed_weights(weight_decay))
    return optax.chain(*before, inner) if before else inner

  return build


def training_step(
  loss: Callable[..., Any], optimizer: optax.GradientTransformation, *, has_aux: bool = False
) -> Callable[..., tuple[tuple[Params, PyTree], Any]]:
  """Returns a function that takes one step of an optimizer.

  Args:
    loss: (params, *args) -> []; with `has_aux` it returns ([], anything).
    optimizer: an optax optimizer.
    has_aux: see `loss`.

  Returns:
    ((params, optimizer state), *args) -> ((params, optimizer state), what `loss` returned before
    the step).
  """
  slope = jax.value_and_grad(loss, has_aux=has_aux)

  def step(carry, *args):
    params, state = carry
    value, grads = slope(params, *args)
    updates, state = optimizer.update(grads, state, params)
    return (optax.apply_updates(params, updates), state), value

  return step


def optimize(
  loss: Callable[[Params, Any], Array],
  optimizer: optax.GradientTransformation,
  params: Params,
  batches: PyTree,
  record: Callable[[Params], PyTree] = lambda params: None,
) -> tuple[Params, PyTree]:
  """Takes one step of a fresh optimizer for each batch.

  Args:
    loss: (params, batch) -> [].
    optimizer: an optax optimizer.
    params: the start.
    batches: leaves [steps, ...]: the data, or rows, keys or numbers from which `loss` makes them.
    record: what to keep of the parameters after every step.

  Returns:
    The parameters after the last step, and the records, leaves [steps, ...].
  """
  step = training_step(loss, optimizer)

  def body(carry, batch):
    carry, _ = step(carry, batch)
    return carry, record(carry[0])

  (params, _), records = jax.lax.scan(body, (params, optimizer.init(params)), batches)
  return params, records
