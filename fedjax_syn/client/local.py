"""Local training: one client's visit as begin, step, end, with the transforms that methods add to it."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_syn.client import pieces
from fedjax_syn.data import federated
from fedjax_syn.keys import fold
from fedjax_syn.method import LocalTraining, Message, Method, Task, Visit
from fedjax_syn.typing import Array, Params, PRNGKey, PyTree, Stats, Step, Variables

SHUFFLE, STEP, AUGMENT, SEAL = range(4)  # uses of a visit's key
# The mean loss of a visit from which on it has diverged: in float32 it would stay finite for many rounds more.
LARGEST_LOSS = 1e6
OPTIMIZER = 'optimizer'  # the name under which a persistent optimizer keeps its rows


class Carry(NamedTuple):
  """A visit in progress."""

  visit: Visit
  ctx: dict[str, PyTree]  # by client transform
  params: Params
  stats: Stats
  opt_state: PyTree
  order: Array  # int32 [largest client], this epoch's permutation of the client's samples
  index: Array  # [], steps done
  loss_sum: Array  # [], summed over steps


class LocalClient(NamedTuple):
  """Local training closed over a task; the engine decides how visits are laid out on devices."""

  init: Any  # (w^0, shard) -> per-client state by transform
  steps: Any  # (size) -> how many steps a client of that size takes, []
  begin: Any  # (visit) -> Carry
  step: Any  # (Carry) -> Carry
  end: Any  # (Carry) -> (Message, state, metrics)
  personal: (
    Any  # (Carry) -> Variables, what is evaluated as this client's model; None: the trained model
  )


def shuffled(key: PRNGKey, epoch: Array | int, slots: Array, size: Array | int) -> Array:
  """Draws the order in which one epoch of a visit goes through a client's samples.

  Args:
    key: the visit's.
    epoch: 0, 1, ... within the visit.
    slots: 0, 1, ... up to the static bound on a client's size, [bound].
    size: the client's samples.

  Returns:
    int32 [bound]: a permutation of 0 .. size - 1, then what is beyond the client's size.
  """
  noise = jax.random.uniform(fold(key, epoch, SHUFFLE), slots.shape)
  return jnp.argsort(jnp.where(slots < size, noise, 2.0)).astype(jnp.int32)


def close(method: Method, task: Task) -> LocalClient:
  """Closes a method's local training over a task.

  Args:
    method: a method whose client is a `LocalTraining`.
    task: the experiment, inside a trace.

  Returns:
    A `LocalClient`. `step` never looks at how many steps are left: running it no more than `steps(size)`
    times, or discarding what comes after, is the caller's duty.
  """
  local: LocalTraining = method.client
  transforms = [build(task) for build in method.client_transforms]
  data = task.data
  batch_size = min(
    local.batch_size, data.slots.shape[0]
  )  # no wider than the largest client's bound

  def with_hook(hook):
    return [t for t in transforms if getattr(t, hook) is not None]

  # A transform's loss may look at the whole batch's output, and differentiate it.
  taken = (
    1
    if with_hook('loss')
    else pieces.count(task.model, data.x.shape[1:], data.mean.dtype, batch_size)
  )

  def epoch_steps(size):
    return -(-size // batch_size)

  def steps(size):
    return local.epochs * epoch_steps(size) if local.epochs else jnp.where(size > 0, local.steps, 0)

  def optimizer(visit_round):
    return local.optimizer(task.hyper['client']['lr'] * local.schedule(visit_round))

  def init(initial, shard):
    state = {t.name: t.init(initial, shard) for t in with_hook('init')}
    if local.persistent:
      state[OPTIMIZER] = optimizer(1).init(initial.params)
    return state

  def shuffle(visit, epoch):
    return shuffled(visit.key, epoch, data.slots, visit.shard.size)

  def begin(visit):
    params = visit.params
    for t in with_hook('start'):
      params = t.start(visit, params)
    visit = visit._replace(params=params)  # what is sent is the difference from the start
    ctx = {t.name: t.prepare(visit) for t in with_hook('prepare')}
    opt_state = visit.state[OPTIMIZER] if local.persistent else optimizer(visit.round).init(params)
    zero = jnp.zeros((), jnp.int32)
    return Carry(visit, ctx, params, visit.stats, opt_state, shuffle(visit, 0), zero, jnp.zeros(()))

  def base_loss(params, step):
    out = task.model.apply(Variables(params, step.stats), step.x, train=True, mask=step.mask)
    return task.loss(out.logits, step.y, step.mask), out

  def gradient(ctx):
    loss_fn = base_loss
    for t in with_hook('loss'):
      loss_fn = t.loss(ctx.get(t.name), loss_fn)
    grad_fn = pieces.value_and_grad(loss_fn, taken)
    for t in with_hook('grad'):
      grad_fn = t.grad(ctx.get(t.name), grad_fn)
    return grad_fn

  def batch(visit, order, index):
    first = index % jnp.maximum(epoch_steps(visit.shard.size), 1) * batch_size
    slots = first + jnp.arange(batch_size, dtype=jnp.int32)
    mask = (slots < visit.shard.size).astype(data.mean.dtype)
    x, y = federated.take(data, visit.shard, order[jnp.minimum(slots, order.shape[0] - 1)])
    if local.augment is not None:
      black = -data.mean / data.std
      x = local.augment(fold(visit.key, index, AUGMENT), x, black)
    return x, y, mask

  def step(carry):
    visit, ctx, index = carry.visit, carry.ctx, carry.index
    order = carry.order
    if local.epochs != 1:
      per_epoch = jnp.maximum(epoch_steps(visit.shard.size), 1)
      new_epoch = (index % per_epoch == 0) & (index > 0)
      order = jax.lax.cond(new_epoch, lambda: shuffle(visit, index // per_epoch), lambda: order)
    x, y, mask = batch(visit, order, index)
    now = Step(fold(visit.key, index, STEP), index, x, y, mask, carry.stats)
    (loss, out), grads = gradient(ctx)(carry.params, now)
    updates, opt_state = optimizer(visit.round).update(grads, carry.opt_state, carry.params)
    params = optax.apply_updates(carry.params, updates)
    for t in with_hook('step'):
      params = t.step(ctx.get(t.name), carry.params, params, grads, now)
    return Carry(visit, ctx, params, out.stats, opt_state, order, index + 1, carry.loss_sum + loss)

  def end(carry):
    visit = carry.visit
    body = {'params': jax.tree.map(jnp.subtract, carry.params, visit.params), 'stats': carry.stats}
    state = {}
    trained = Variables(carry.params, carry.stats)
    for t in with_hook('finish'):
      part, rows = t.finish(carry.ctx.get(t.name), visit, trained, carry.index)
      if part is not None:
        body[t.name] = part
      if t.init is not None:
        state[t.name] = rows
    if local.persistent:
      state[OPTIMIZER] = carry.opt_state
    for t in with_hook('seal'):
      body = t.seal(fold(visit.key, 0, SEAL), body)
    size = visit.shard.size.astype(carry.loss_sum.dtype)
    weight = (
      size if method.weighting == 'size' else jnp.where(size > 0, 1.0, 0.0).astype(size.dtype)
    )
    loss = carry.loss_sum / jnp.maximum(carry.index, 1)
    finite = jnp.abs(loss) < LARGEST_LOSS  # false for NaN
    for leaf in jax.tree.leaves(body['params']):
      finite &= jnp.isfinite(leaf.sum())
    metrics = {'loss': loss, 'finite': finite}
    for t in with_hook('metrics'):
      measured = t.metrics(carry.ctx.get(t.name), visit, trained)
      metrics |= {f'{t.name}/{name}': value for name, value in measured.items()}
    return Message(weight, body), state, metrics

  def personal(carry):
    own = Variables(carry.params, carry.stats)
    for t in with_hook('personal'):
      own = t.personal(carry.ctx.get(t.name), carry.visit, own)
    return own

  return LocalClient(init, steps, begin, step, end, personal if with_hook('personal') else None)
