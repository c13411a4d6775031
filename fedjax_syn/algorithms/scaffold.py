"""SCAFFOLD: control variates against client drift (Karimireddy et al., 2020, Algorithm 1)."""

import jax
import jax.numpy as jnp
import optax

from fedjax_syn.client.shard_gradient import gradient_sum
from fedjax_syn.core import microbatches
from fedjax_syn.core.contexts import ClientContext
from fedjax_syn.core.fields import field
from fedjax_syn.core.types import Params, Variables
from fedjax_syn.layer import Layer, when


class SCAFFOLD(Layer):
  """Corrects local gradients by control variates: c of the server, c_i of client i, 0 at first.

  Line numbers are those of the paper's Algorithm 1: x is the global model, y the local one, eta the
  local step size eta_l, K the number of local steps and N the number of all clients. FedAvg takes
  the local steps and averages y - x (lines 16 and 17, uniformly as in the paper unless
  server.weighting='size'); the global step size eta_g is 1.

  Option I is the gradient at x of the data's own loss, without the terms of other layers (FedCOG,
  FedGen, ...); use correction='step' with them. Option II divides x - y by K eta, which is a mean
  gradient for plain SGD only. option=0 is therefore II for plain SGD and I for momentum and Adam;
  options 1 and 2 work with any optimizer.

  correction='gradient' is the paper's line 10: the optimizer receives g_i(y) - c_i + c. With
  correction='step' it receives g_i(y), and a step -eta (c - c_i) follows the optimizer's
  (NIID-Bench). option=0 is then II, and c_i is the client's mean step in units of eta, whatever the
  optimizer. For plain SGD both are the same.
  """

  option: int = field(
    0,
    "1: option I; 2: option II; 0: 2 for plain SGD and correction='step', else 1",
    choices=(0, 1, 2),
  )
  correction: str = field(
    'gradient',
    "c - c_i is a part of the 'gradient', or a 'step' after the optimizer's",
    choices=('gradient', 'step'),
  )

  def conflicts(self):
    if self.correction == 'gradient':
      return {}
    return {
      'fednova+momentum': "'fednova' counts gradients by their momentum, and"
      " scaffold.correction='step' is outside of it: use scaffold.correction='gradient' or"
      ' client.momentum=0'
    }

  def client_init(self, task, initial, shard):
    return optax.tree.zeros_like(initial.params)

  def server_init(self, task, key, params, messages):
    return optax.tree.zeros_like(params)

  def broadcast(self, c):
    return c

  @when(lambda self, task: self.correction == 'gradient')
  def grad(self, client, grad_fn, y, step):
    value, g = grad_fn(y, step)  # line 9: g_i(y)
    correct = lambda g, c_i, c: g - c_i + c  # line 10: y <- y - eta (g_i(y) - c_i + c)
    return value, jax.tree.map(correct, g, client.state, client.broadcast)

  @when(lambda self, task: self.correction == 'step')
  def step(self, client, old, new, grads, step):
    eta = client.task.learning_rate(client.round)
    correct = lambda y, c_i, c: y - eta * (c - c_i)  # line 10, the correction by itself
    return jax.tree.map(correct, new, client.state, client.broadcast)

  def finish(self, client, trained, steps):
    c_i, c, x, y = client.state, client.broadcast, client.params, trained.params
    if self._option(client.task.local) == 1:  # line 12, option I: c_i+ = g_i(x)
      c_plus = _full_gradient(client)
    else:  # line 12, option II: c_i+ = c_i - c + (x - y) / (K eta)
      scale = 1 / (jnp.maximum(steps, 1) * client.task.learning_rate(client.round))
      c_plus = jax.tree.map(lambda c_i, c, x, y: c_i - c + scale * (x - y), c_i, c, x, y)
    # A client without samples takes no step and keeps its c_i.
    c_plus = jax.tree.map(lambda new, old: jnp.where(steps > 0, new, old), c_plus, c_i)
    return optax.tree.sub(c_plus, c_i), c_plus  # line 13: sends c_i+ - c_i; line 14: keeps c_i+

  def server_update(self, round, new):
    # Lines 16 and 17: c <- c + |S| / N times the mean over the round's clients S, which is 1 / N
    # times their sum.
    total = round.messages.sum('scaffold')
    return new, jax.tree.map(lambda c, d: c + d / round.task.num_clients, round.state, total)

  def server_metrics(self, c):
    return {'norm': optax.tree.norm(c)}

  def _option(self, local) -> int:
    plain_sgd = local.optimizer == 'sgd' and not local.momentum
    return self.option or (2 if plain_sgd or self.correction == 'step' else 1)


def _full_gradient(client: ClientContext) -> Params:
  """Returns g_i(x), the gradient of the client's mean loss at the global model (option I)."""
  task, data, shard = client.task, client.task.data, client.shard
  # Fewer than 128 samples at a time on a CPU whose cache does not hold their activations.
  batch_size = 128
  batch_size //= microbatches.num_microbatches(
    task.model, data.x.shape[1:], data.mean.dtype, batch_size, task.backend
  )
  # Under BatchNorm the loss of a sample depends on its batch. The gradient is that of the loss in
  # local training: the batch size is the local one, and batches have their own statistics.
  train = bool(jax.tree.leaves(client.stats))
  if train:
    batch_size = min(task.local.batch_size, data.positions.shape[0])
  x = Variables(client.params, client.stats)
  total = gradient_sum(task.model, task.loss, data, shard, x, batch_size, train)
  return jax.tree.map(lambda g: g / jnp.maximum(shard.size, 1), total)
