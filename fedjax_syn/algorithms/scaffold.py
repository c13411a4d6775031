"""SCAFFOLD: control variates against client drift (Karimireddy et al., 2020, Algorithm 1)."""

import dataclasses

import jax
import jax.numpy as jnp
import optax

from fedjax_syn.algorithms.fedavg import fedavg
from fedjax_syn.client import pieces
from fedjax_syn.data import federated
from fedjax_syn.fields import field
from fedjax_syn.method import ClientTransform, Method, ServerTransform
from fedjax_syn.typing import Step, Variables


@dataclasses.dataclass(frozen=True)
class Config:
  option: int = field(
    0,
    'control variate: 1 the gradient at x over all local data, 2 (x - y) / (K eta); 0: 2 for plain SGD and for'
    " correction='step', else 1",
    choices=(0, 1, 2),
  )
  correction: str = field(
    'gradient',
    "where c - c_i enters: the 'gradient', so that it goes through momentum or Adam, or a 'step' of its own after"
    " the optimizer's, -eta (c - c_i); for plain SGD they are the same",
    choices=('gradient', 'step'),
  )


def scaffold(
  base: Method | None = None, *, option: int = 0, correction: str = 'gradient'
) -> Method:
  """Adds control variates c_i (clients) and c (server), all zero at first, to local training.

  Args:
    base: a method that trains locally; FedAvg by default.
    option: 1: c_i+ is the gradient of the client's loss at the global model, under BatchNorm by the statistics of batches, as in
      training; 2: c_i+ = c_i - c + (x - y) / (K eta).
      The loss is the data's own: what another layer adds to it (FedCOG, FedGen, ...) is not taken back, for which
      there is correction='step'. Option 2 reads a step of size eta out of the path, which only plain SGD takes; 0 is therefore 2 for
      plain SGD and 1 for momentum and Adam, where the correction enters the optimizer as part of the
      gradient. Asked for by its number, each option runs with any optimizer.
    correction: 'gradient': line 10 as it stands, before the optimizer. 'step': the optimizer sees the plain
      gradient, and a step -eta (c - c_i) follows its own (NIID-Bench). With option 2, variates are then a
      visit's mean steps, in units of eta, whatever the optimizer, and 0 is option 2: what a client is moved
      by beyond the others is what its own variate takes back.

  Returns:
    The method. Line numbers below are those of the paper's Algorithm 1.

  Raises:
    ValueError: if the option or the correction is unknown.
  """
  if option not in (0, 1, 2):
    raise ValueError(f'scaffold.option={option!r} is unknown; known: 0, 1, 2')
  if correction not in ('gradient', 'step'):
    raise ValueError(f'scaffold.correction={correction!r} is unknown; known: gradient, step')
  base = base or fedavg()
  after = correction == 'step'
  option = option or (2 if after or getattr(base.client, 'momentum', None) == 0 else 1)

  def client(task):
    image = task.data.x.shape[1:]
    batch = 128  # at a time; fewer where a CPU's cache is too small for the activations of as many
    batch //= pieces.count(task.model, image, task.data.mean.dtype, batch)
    # With batch statistics the loss depends on what is in a batch: those of training, or the gradient is another loss's.
    together = bool(jax.tree.leaves(jax.eval_shape(task.model.init, jax.random.key(0)).stats))
    if together:
      batch = min((task.local or base.client).batch_size, task.data.slots.shape[0])

    def full_gradient(visit):  # the gradient of the client's mean loss at x (Option I, line 12)
      def add(part, total):
        positions = part * batch + jnp.arange(batch, dtype=jnp.int32)
        mask = (positions < visit.shard.size).astype(task.data.mean.dtype)
        x, y = federated.take(task.data, visit.shard, positions)

        def summed(params):
          w = Variables(params, visit.stats)
          out = task.model.apply(w, x, train=together, mask=mask)
          return task.loss(out.logits, y, mask) * mask.sum()

        return jax.tree.map(jnp.add, total, jax.grad(summed)(visit.params))

      size = visit.shard.size  # not the largest client's, many times as large where data are skewed
      zero = jax.tree.map(jnp.zeros_like, visit.params)
      total = jax.lax.fori_loop(0, -(-size // batch), add, zero)
      return jax.tree.map(lambda g: g / jnp.maximum(size, 1), total)

    def init(initial, shard):
      return jax.tree.map(jnp.zeros_like, initial.params)

    def rate(visit):  # eta
      return task.hyper['client']['lr'] * (task.local or base.client).schedule(visit.round)

    def prepare(visit):
      return visit.state['scaffold'], visit.broadcast['scaffold'], rate(visit)

    def grad(ctx, grad_fn):  # line 10: g_i(y) - c_i + c
      c_i, c, _ = ctx

      def corrected(params, step: Step):
        value, g = grad_fn(params, step)
        return value, jax.tree.map(lambda g, ci, c: g - ci + c, g, c_i, c)

      return corrected

    def step(ctx, old, new, grads, now):  # the correction of line 10, outside the optimizer
      c_i, c, eta = ctx
      return jax.tree.map(lambda y, ci, c: y - eta * (c - ci), new, c_i, c)

    def finish(ctx, visit, trained, steps):  # line 12, and the difference of line 13
      c_i, c, eta = ctx
      if option == 1:
        c_new = full_gradient(visit)
      else:
        scale = 1 / (jnp.maximum(steps, 1) * eta)
        c_new = jax.tree.map(
          lambda ci, c, x, y: ci - c + scale * (x - y), c_i, c, visit.params, trained.params
        )
      present = steps > 0
      c_new = jax.tree.map(lambda new, old: jnp.where(present, new, old), c_new, c_i)
      return jax.tree.map(jnp.subtract, c_new, c_i), c_new

    corrects = {'step': step} if after else {'grad': grad}
    return ClientTransform('scaffold', init=init, prepare=prepare, finish=finish, **corrects)

  def server(task):
    def init(key, params, enrolled):
      return jax.tree.map(jnp.zeros_like, params)

    def update(
      key, round, c, state, new, messages
    ):  # line 17: c += 1/N sum_i (c_i+ - c_i), N = all clients
      return new, jax.tree.map(lambda c, d: c + d / task.num_clients, c, messages.sum('scaffold'))

    def metrics(c):
      return {'norm': optax.tree.norm(c)}

    return ServerTransform(
      name='scaffold', init=init, broadcast=lambda c: c, update=update, metrics=metrics
    )

  counted = not after or not getattr(base.client, 'momentum', None)
  conflicts = {
    'fednova': "'fednova' counts gradients by their momentum, and scaffold.correction='step' is outside of it: use"
    " scaffold.correction='gradient' or client.momentum=0"
  }
  return base.extend(
    'scaffold', client=client, server=server, conflicts={} if counted else conflicts
  )
