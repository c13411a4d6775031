"""FedDyn: dynamic regularisation of local losses (Acar et al., 2021, Algorithm 1)."""

import jax
import jax.numpy as jnp
import optax

from fedjax_syn.core.fields import field
from fedjax_syn.layer import Layer


class FedDyn(Layer):
  """Adds -<g_k, w> + alpha/2 ||w - w^t||^2 to the local loss.

  g_k is the client's accumulated gradient. A client keeps g_k and the server keeps h; both are zero
  at first. Clients send the update only. The clients' models are averaged by FedAvg's weights.
  """

  alpha: float = field(0.01, 'weight of the quadratic term (paper 0.1, 0.01)', above=0.0)

  def proximal(self):
    return self.alpha

  def client_init(self, task, initial, shard):
    return optax.tree.zeros_like(initial.params)

  def loss(self, client, loss_fn, w, step):  # Eq. 1
    value, out = loss_fn(w, step)
    drift = optax.tree.sub(w, client.params)
    linear = optax.tree.vdot(client.state, w)
    return value - linear + self.alpha / 2 * optax.tree.vdot(drift, drift), out

  def finish(self, client, trained, steps):  # g_k <- g_k - alpha (w_k - w^t)
    drift = optax.tree.sub(trained.params, client.params)
    return None, jax.tree.map(lambda g, d: g - self.alpha * d, client.state, drift)

  def server_init(self, task, key, params, messages):
    return optax.tree.zeros_like(params)

  def server_update(self, round, new):
    # h <- h - alpha/m sum_k (w_k - w^t);  w = mean of w_k - h / alpha
    m, drifts = round.task.num_clients, round.messages.sum('params')
    h = jax.tree.map(lambda h, d: h - self.alpha / m * d, round.state, drifts)
    anyone = round.messages.weight.sum() > 0  # a round without samples keeps the model
    move = lambda w, h: jnp.where(anyone, w - h / self.alpha, w)
    return jax.tree.map(move, new, h), h

  def server_metrics(self, h):
    return {'norm': optax.tree.norm(h)}
