"""SCAFFOLD: control variates against client drift (Karimireddy et al., 2020, Algorithm 1)."""

import jax
import jax.numpy as jnp
import optax

from fedjax_syn.client import pieces
from fedjax_syn.contexts import ClientContext
from fedjax_syn.data import federated
from fedjax_syn.fields import field
from fedjax_syn.layer import Layer, when
from fedjax_syn.typing import Array, Params, Variables


class SCAFFOLD(Layer):
  """Adds control variates c_i (clients) and c (server), all zero at first, to local training.

  Line numbers are those of the paper's Algorithm 1. The loss of option 1 is the data's own: what another layer adds to
  it (FedCOG, FedGen, ...) is not taken back, for which there is correction='step'. Option 2 reads a step of size eta
  out of the path, which only plain SGD takes; 0 is therefore 2 for plain SGD and 1 for momentum and Adam, where the
  correction enters the optimizer as part of the gradient. Asked for by its number, each option runs with any optimizer.
  With correction='step' the optimizer sees the plain gradient, and a step -eta (c - c_i) follows its own (NIID-Bench);
  with option 2 variates are then a client's mean steps, in units of eta, whatever the optimizer, and 0 is option 2.
  """

  option: int = field(
    default=0,
    help='control variate: 1 the gradient at x over all local data, 2 (x - y) / (K eta); 0: 2 for plain SGD and for'
    " correction='step', else 1",
    choices=(0, 1, 2),
  )
  correction: str = field(
    default='gradient',
    help="where c - c_i enters: the 'gradient', so that it goes through momentum or Adam, or a 'step' of its own after"
    " the optimizer's, -eta (c - c_i); for plain SGD they are the same",
    choices=('gradient', 'step'),
  )

  def conflicts(self):
    if self.correction == 'gradient':
      return {}
    return {
      'fednova+momentum': "'fednova' counts gradients by their momentum, and scaffold.correction='step' is outside of"
      " it: use scaffold.correction='gradient' or client.momentum=0"
    }

  def client_init(self, task, initial, shard):
    return optax.tree.zeros_like(initial.params)

  def server_init(self, task, key, params, messages):
    return optax.tree.zeros_like(params)

  def broadcast(self, c):
    return c

  @when(lambda self, task: self.correction == 'gradient')
  def grad(self, client, grad_fn, y, step):  # line 10: g_i(y) - c_i + c
    value, g = grad_fn(y, step)
    return value, jax.tree.map(lambda g, c_i, c: g - c_i + c, g, client.state, client.broadcast)

  @when(lambda self, task: self.correction == 'step')
  def step(self, client, old, new, grads, step):  # line 10's correction, outside the optimizer
    eta = client.task.learning_rate(client.round)
    correct = lambda y, c_i, c: y - eta * (c - c_i)
    return jax.tree.map(correct, new, client.state, client.broadcast)

  def finish(self, client, trained, steps):
    c_i, c, x, y = client.state, client.broadcast, client.params, trained.params
    if self._option(client.task.local) == 1:  # line 12, option I
      c_new = _full_gradient(client)
    else:  # option II
      scale = 1 / (jnp.maximum(steps, 1) * client.task.learning_rate(client.round))
      c_new = jax.tree.map(lambda c_i, c, x, y: c_i - c + scale * (x - y), c_i, c, x, y)
    c_new = jax.tree.map(lambda new, old: jnp.where(steps > 0, new, old), c_new, c_i)
    return optax.tree.sub(c_new, c_i), c_new  # line 13: the difference is sent

  def server_update(self, round, new):  # line 17: c += 1/N sum_i (c_i+ - c_i), N = all clients
    total = round.messages.sum('scaffold')
    return new, jax.tree.map(lambda c, d: c + d / round.task.num_clients, round.state, total)

  def server_metrics(self, c):
    return {'norm': optax.tree.norm(c)}

  def _option(self, local) -> int:
    plain_sgd = local.optimizer == 'sgd' and not local.momentum
    return self.option or (2 if plain_sgd or self.correction == 'step' else 1)


def _full_gradient(client: ClientContext) -> Params:
  """Returns the gradient of the client's mean loss at the global model (option I)."""
  task, shard, x = client.task, client.shard, client.params
  batch = 128  # at a time; fewer where a CPU's cache is too small for the activations of as many
  batch //= pieces.count(task.model, task.data.x.shape[1:], task.data.mean.dtype, batch)
  # With batch statistics the loss depends on what is in a batch: those of training, or it is another loss's gradient.
  train = bool(jax.tree.leaves(client.stats))
  if train:
    batch = min(task.local.batch_size, task.data.slots.shape[0])

  def add(part, total):
    positions = part * batch + jnp.arange(batch, dtype=jnp.int32)
    mask = (positions < shard.size).astype(task.data.mean.dtype)
    images, labels = federated.take(task.data, shard, positions)

    loss = lambda w: _summed_loss(client, w, images, labels, mask, train)
    return jax.tree.map(jnp.add, total, jax.grad(loss)(x))

  # The client's own size, not the largest client's, which is many times as large where data are skewed.
  total = jax.lax.fori_loop(0, -(-shard.size // batch), add, optax.tree.zeros_like(x))
  return jax.tree.map(lambda g: g / jnp.maximum(shard.size, 1), total)


def _summed_loss(
  client: ClientContext, w: Params, images: Array, labels: Array, mask: Array, train: bool
) -> Array:
  """Returns the sum of the losses of a batch, []."""
  out = client.task.model.apply(Variables(w, client.stats), images, train=train, mask=mask)
  return client.task.loss(out.logits, labels, mask) * mask.sum()
