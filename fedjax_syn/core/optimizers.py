"""Optimizers by their optax names, training by them, and schedules over rounds."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from fedjax_syn.core.types import Array, Params, PyTree

OPTIMIZERS = ('sgd', 'adam', 'adamw', 'adagrad', 'rmsprop', 'yogi', 'lion', 'nadam')


def optimizer(
  name: str, *, momentum: float = 0.0, weight_decay: float = 0.0
) -> Callable[[Any], optax.GradientTransformation]:
  """Returns a function from the learning rate, which may be traced, to an optax optimizer.

  Args:
    name: an optax optimizer, one of `OPTIMIZERS`.
    momentum: heavy-ball momentum; for sgd and rmsprop only.
    weight_decay: L2 added to the gradient before the optimizer (coupled, as PyTorch's SGD and Adam
      do), except for adamw and lion, whose own decoupled decay it becomes.

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
    coupled = weight_decay and not decoupled
    return optax.chain(optax.add_decayed_weights(weight_decay), inner) if coupled else inner

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


ENDING = ('cosine',)  # schedules that end with the run


def schedule(name: str, rounds: int) -> Callable[[Array | int], Array]:
  """Returns a factor on the learning rate as a function of the round 1, 2, ...

  Args:
    name: '' (constant 1), 'cosine' (to zero over all rounds) or 'exponential(r)' (r per round).
    rounds: rounds of the run; 0: not known yet, so that those of `ENDING` cannot be used.

  Raises:
    ValueError: if the name is unknown.
  """
  kind, _, argument = name.rstrip(')').partition('(')
  if kind == '' and not argument:
    return lambda round: jnp.ones(())
  if kind == 'cosine' and not argument:
    if not rounds:
      return _needs_rounds
    decay = optax.cosine_decay_schedule(1.0, rounds)
    return lambda round: decay(round - 1)
  try:
    rate = float(argument) if kind == 'exponential' else None
  except ValueError:
    rate = None
  if rate is None or not 0 < rate <= 1:
    raise ValueError(
      f"client.schedule={name!r} is unknown; known: '', 'cosine', 'exponential(0.998)'"
    )
  decay = optax.exponential_decay(1.0, 1, rate)
  return lambda round: decay(round - 1)


def _needs_rounds(round: Array | int) -> Array:
  raise ValueError(
    "client.schedule='cosine' ends with the run, and the number of rounds is not known here:"
    ' Engine(..., rounds=...)'
  )
