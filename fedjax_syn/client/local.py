"""Local training: one client in one round, with the hooks of the chain's layers."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_syn.client import hook_results
from fedjax_syn.core import microbatches
from fedjax_syn.core.contexts import ClientContext, Message, Task
from fedjax_syn.core.keys import fold
from fedjax_syn.core.packing import Packed, pack, unpack
from fedjax_syn.core.programs import loop
from fedjax_syn.core.types import (
  Array,
  GradFn,
  LossFn,
  Params,
  PRNGKey,
  PyTree,
  Shard,
  Stats,
  Step,
  Variables,
)
from fedjax_syn.data import federated
from fedjax_syn.layer import Layer, Numbers

SHUFFLE, STEP, AUGMENT, STRAGGLE = 0, 1, 2, 7  # uses of a client's key in a round
RANDOM_LAYERS = 7  # use of a local step's key: dropout
# The mean loss of a client from which on it has diverged: in float32 it would stay finite for many
# rounds more.
LARGEST_LOSS = 1e6
OPTIMIZER = 'optimizer'  # the name under which a persistent optimizer keeps its state


class Carry(NamedTuple):
  """Local training in progress."""

  client: ClientContext  # broadcast, state and prepared by layer
  weights: Packed | Params  # the parameters as the optimizer has them
  stats: Stats
  opt_state: PyTree
  order: Array  # int32 [largest client], this epoch's permutation of the client's samples
  index: Array  # type: ignore[assignment]  # [], steps done
  loss_sum: Array  # [], summed over steps

  @property
  def params(self) -> Params:
    """The parameters."""
    return unpack(self.weights) if isinstance(self.weights, Packed) else self.weights


def shuffled(key: PRNGKey, epoch: Array | int, positions: Array, size: Array | int) -> Array:
  """Draws the order in which one epoch goes through a client's samples.

  Args:
    key: the client's in this round.
    epoch: 0, 1, ... within the round.
    positions: 0, 1, ... up to the static bound on a client's size, [bound].
    size: the client's samples.

  Returns:
    int32 [bound]: a permutation of 0 .. size - 1, then what is beyond the client's size.
  """
  noise = jax.random.uniform(fold(key, epoch, SHUFFLE), positions.shape)
  return jnp.argsort(jnp.where(positions < size, noise, 2.0)).astype(jnp.int32)


def seen_by(layer: Layer, client: ClientContext, task: Task) -> ClientContext:
  """Returns a client as one layer sees it: with its own broadcast, state and prepared."""
  own = lambda parts: (parts or {}).get(layer.name)
  return client._replace(
    task=task,
    broadcast=own(client.broadcast),
    state=own(client.state),
    prepared=own(client.prepared),
  )


class LocalClient:
  """Local training bound to a task; the engine decides how clients lie on devices.

  `step` does not count the steps that are left: the caller runs it `steps_of(client)` times, or
  discards what comes after.
  """

  def __init__(self, task: Task):
    """Binds the clients of a task."""
    self.task, self.local = task, task.local
    positions = task.data.positions.shape[0]
    self.batch_size = min(self.local.batch_size, positions)  # no wider than the largest client
    self.augment = self.local._augmentation()

  def having(self, hook: str, client: ClientContext) -> list[tuple[Layer, ClientContext]]:
    """Returns the layers that have a hook, each with its own view of the client."""
    task = self.task
    return [(layer, seen_by(layer, client, task)) for layer in task.chain.having(hook, task)]

  def init(self, initial: Variables, shard: Shard) -> dict[str, PyTree]:
    """Returns per-client state by layer at round 0."""
    state = _initial_state(self.task, initial, shard)
    if self.local.persistent:
      state[OPTIMIZER] = self._optimizer(1).init(initial.params)
    return state

  def steps(self, size: Array) -> Array:
    """Returns how many steps a client of a size takes, []."""
    if self.local.epochs:
      return self.local.epochs * self._epoch_steps(size)
    return jnp.where(size > 0, self.local.steps, 0)

  def steps_of(self, client: ClientContext) -> Array:
    """Returns how many steps a client takes in its round, []: a straggler fewer than `steps`."""
    steps = self.steps(client.shard.size)
    if not self.local.stragglers:
      return steps
    late, share = jax.random.uniform(fold(client.key, 0, STRAGGLE), (2,))
    part = jnp.minimum(jnp.floor(share * steps).astype(steps.dtype) + 1, steps)
    return jnp.where(late < self.local.stragglers, part, steps)

  def begin(self, client: ClientContext) -> Carry:
    """Receives the global model and prepares what stays the same in all steps."""
    params = client.params
    for layer, seen in self.having('receive', client):
      params = hook_results.like(layer, 'receive', layer.receive(seen, params), params, 'params')
    # What is sent is the difference from here; what is carried from step to step is arrays.
    client = client._replace(params=params, task=None)  # type: ignore[arg-type]
    prepared = {layer.name: layer.prepare(seen) for layer, seen in self.having('prepare', client)}
    client = client._replace(prepared=prepared)
    weights = self._packed(params)
    if self.local.persistent:
      opt_state = client.state[OPTIMIZER]
    else:
      opt_state = self._optimizer(client.round).init(weights)
    zero = jnp.zeros((), jnp.int32)
    order = self._shuffle(client, 0)
    return Carry(client, weights, client.stats, opt_state, order, zero, jnp.zeros(()))

  def step(self, carry: Carry) -> Carry:
    """Takes one local step."""
    client, index, order = carry.client, carry.index, carry.order
    if self.local.epochs != 1:
      per_epoch = jnp.maximum(self._epoch_steps(client.shard.size), 1)
      new_epoch = (index % per_epoch == 0) & (index > 0)
      shuffle = lambda: self._shuffle(client, index // per_epoch)
      order = jax.lax.cond(new_epoch, shuffle, lambda: order)
    x, y, mask = self._batch(client, order, index)
    now = Step(fold(client.key, index, STEP), index, x, y, mask, carry.stats)
    (loss, out), grads = self._gradient(client)(carry.params, now)
    optimizer = self._optimizer(client.round)
    updates, opt_state = optimizer.update(self._packed(grads), carry.opt_state, carry.weights)
    new = carry._replace(weights=optax.apply_updates(carry.weights, updates))
    for layer, seen in self.having('step', client):
      params = layer.step(seen, carry.params, new.params, grads, now)
      params = hook_results.like(layer, 'step', params, new.params, 'params')
      new = carry._replace(weights=self._packed(params))
    return Carry(client, new.weights, out.stats, opt_state, order, index + 1, carry.loss_sum + loss)

  def end(self, carry: Carry) -> tuple[Message, dict[str, PyTree], Numbers]:
    """Returns the message, the new per-client state by layer, and numbers for the log."""
    client, trained = carry.client, Variables(carry.params, carry.stats)
    difference = jax.tree.map(jnp.subtract, carry.params, client.params)
    payload, state = {'params': difference, 'stats': carry.stats}, dict(client.state)
    for layer, seen in self.having('finish', client):
      both = layer.finish(seen, trained, carry.index)
      part, new_state = hook_results.parts(
        layer, 'finish', both, 'part of the message', 'new state'
      )
      if part is not None:
        payload[layer.name] = jax.tree.map(jnp.asarray, part)
      new_state = hook_results.new_state(layer, 'finish', new_state, client.state)
      if layer.name in client.state:
        state[layer.name] = new_state
    if self.local.persistent:
      state[OPTIMIZER] = carry.opt_state
    for layer, seen in self.having('postprocess_update', client):
      payload = _with_update(layer, layer.postprocess_update(seen, payload))
    size = client.shard.size.astype(carry.loss_sum.dtype)
    one = jnp.where(size > 0, 1.0, 0.0).astype(size.dtype)
    weight = size if self.local.weighting == 'size' else one
    loss = carry.loss_sum / jnp.maximum(carry.index, 1)
    finite = jnp.abs(loss) < LARGEST_LOSS  # false for NaN
    for leaf in jax.tree.leaves(payload['params']):
      finite &= jnp.isfinite(leaf.sum())
    metrics: Numbers = {'loss': loss, 'finite': finite}
    for layer, seen in self.having('client_metrics', client):
      numbers = layer.client_metrics(seen, trained)
      numbers = hook_results.numbers(layer, 'client_metrics', numbers)
      metrics |= {f'{layer.name}/{name}': value for name, value in numbers.items()}
    return Message(weight, payload), state, metrics

  def update(self, client: ClientContext) -> tuple[Message, dict[str, PyTree], Numbers]:
    """Runs a client with its own number of steps; returns what `end` returns."""
    steps = self.steps_of(client)
    carry = self.begin(client)
    with loop('local_steps'):
      carry = jax.lax.fori_loop(0, steps, lambda _, carry: self.step(carry), carry)
    return self.end(carry)

  def personal(self, carry: Carry) -> Variables | None:
    """Returns what is evaluated as this client's model; None: the trained model."""
    having = self.having('personal', carry.client)
    own = Variables(carry.params, carry.stats)
    for layer, seen in having:
      own = layer.personal(seen, own)
    return own if having else None

  def _epoch_steps(self, size: Array) -> Array:
    return -(-size // self.batch_size)

  def _packed(self, tree: Params) -> Packed | Params:
    # A state that is kept has the parameters' structure, as in every stored run.
    return tree if self.local.persistent else pack(tree)

  def _optimizer(self, round: Array | int) -> optax.GradientTransformation:
    return self.local._optimizer(self.task.learning_rate(round))

  def _shuffle(self, client: ClientContext, epoch: Array | int) -> Array:
    return shuffled(client.key, epoch, self.task.data.positions, client.shard.size)

  def _batch(self, client: ClientContext, order: Array, index: Array) -> tuple[Array, Array, Array]:
    data, size = self.task.data, client.shard.size
    first = index % jnp.maximum(self._epoch_steps(size), 1) * self.batch_size
    positions = first + jnp.arange(self.batch_size, dtype=jnp.int32)
    mask = (positions < size).astype(data.mean.dtype)
    x, y = federated.take(data, client.shard, order[jnp.minimum(positions, order.shape[0] - 1)])
    if self.augment is not None:
      x = self.augment(fold(client.key, index, AUGMENT), x, -data.mean / data.std)
    return x, y, mask

  def _gradient(self, client: ClientContext) -> GradFn:
    task = self.task

    def loss_fn(params, step):
      drawn = {'key': fold(step.key, 0, RANDOM_LAYERS)} if task.model.keyed else {}
      w = Variables(params, step.stats)
      out = task.model.apply(w, step.x, train=True, mask=step.mask, **drawn)
      return task.loss(out.logits, step.y, step.mask), out

    with_loss = self.having('loss', client)
    for layer, seen in with_loss:
      loss_fn = functools.partial(_loss, layer, seen, loss_fn)
    # A layer's loss may look at the whole batch's output, and differentiate it.
    image, dtype = task.data.x.shape[1:], task.data.mean.dtype
    number = 1
    if not with_loss and not task.model.keyed:  # random layers draw for the whole batch
      number = microbatches.num_microbatches(
        task.model,
        image,
        dtype,
        self.batch_size,
        task.backend,
        Variables(client.params, client.stats),
      )
    grad_fn = microbatches.value_and_grad(loss_fn, number)
    for layer, seen in self.having('grad', client):
      grad_fn = functools.partial(_grad, layer, seen, grad_fn)
    return grad_fn


class DirectClient:
  """A client that does not train locally: one layer's `client_update`, bound to a task."""

  def __init__(self, task: Task):
    """Binds the clients of a task."""
    layer = task.chain.client_update
    assert layer is not None
    self.task, self.layer = task, layer

  def init(self, initial: Variables, shard: Shard) -> dict[str, PyTree]:
    """Returns per-client state by layer at round 0."""
    return _initial_state(self.task, initial, shard)

  def steps(self, size: Array) -> Array:
    """Returns the work of a client of a size, []: its samples."""
    return size

  def update(self, client: ClientContext) -> tuple[Message, dict[str, PyTree], Numbers]:
    """Returns the message, per-client state by layer, and numbers for the log."""
    layer, state = self.layer, dict(client.state)
    all_three = layer.client_update(seen_by(layer, client, self.task))
    names = 'Message', 'state', 'numbers'
    message, new_state, numbers = hook_results.parts(layer, 'client_update', all_three, *names)
    new_state = hook_results.new_state(layer, 'client_update', new_state, state)
    numbers = hook_results.numbers(layer, 'client_update', numbers)
    for name in ('loss', 'finite'):
      if name not in numbers:
        raise ValueError(
          f'{type(layer).__name__}.client_update: {name!r} must be among the numbers'
        )
    if layer.name in state:
      state[layer.name] = new_state
    own = lambda name: name if name in ('loss', 'finite') else f'{layer.name}/{name}'
    return message, state, {own(name): value for name, value in numbers.items()}


def _initial_state(task: Task, initial: Variables, shard: Shard) -> dict[str, PyTree]:
  having = task.chain.having('client_init', task)
  return {layer.name: layer.client_init(task, initial, shard) for layer in having}


def _loss(
  layer: Layer, client: ClientContext, loss_fn: LossFn, w: Params, step: Step
) -> tuple[Array, Any]:
  return hook_results.loss(layer, 'loss', layer.loss(client, loss_fn, w, step))


def _grad(
  layer: Layer, client: ClientContext, grad_fn: GradFn, w: Params, step: Step
) -> tuple[Any, Params]:
  both = layer.grad(client, grad_fn, w, step)
  value, gradient = hook_results.parts(layer, 'grad', both, '(loss, output)', 'gradient')
  value = hook_results.loss(layer, 'grad', value)
  return value, hook_results.like(layer, 'grad', gradient, w, 'gradient')


def _with_update(layer: Layer, payload: Any) -> dict[str, PyTree]:
  if not isinstance(payload, dict) or 'params' not in payload:
    raise ValueError(
      f"{type(layer).__name__}.postprocess_update: must return the payload, a dict with 'params'"
    )
  return payload


def bind(task: Task) -> LocalClient | DirectClient:
  """Returns the clients of a task."""
  return LocalClient(task) if task.chain.trains_locally else DirectClient(task)
