"""FedSAM: sharpness-aware minimisation on the clients (Qu et al., 2022)."""

import jax
import jax.numpy as jnp
import optax

from fedjax_syn.core.fields import field
from fedjax_syn.core.types import Params, Variables
from fedjax_syn.data import federated
from fedjax_syn.layer import Layer


class FedSAM(Layer):
  """Takes the gradient at w + rho g / ||g||, g the gradient at w, on the same batch.

  The logged loss is that at w. rho = 0 changes nothing, at twice the cost.
  """

  rho: float = field(0.05, "radius (FedCOG's paper 0.5, its code 0.05)", low=0.0)

  def grad(self, client, grad_fn, w, step):
    value, g = grad_fn(w, step)
    return value, grad_fn(self._ascend(w, g), step)[1]

  def client_metrics(self, client, trained):
    task = client.task
    x, y, mask = federated.first_rows(task.data, client.shard)

    def loss(w):
      return task.loss(task.model.apply(Variables(w, trained.stats), x).logits, y, mask)

    value, g = jax.value_and_grad(loss)(trained.params)
    return {'sharpness': loss(self._ascend(trained.params, g)) - value}

  def _ascend(self, w: Params, g: Params) -> Params:
    """Returns w + rho g / ||g||; w where g is 0."""
    norm = optax.tree.norm(g)
    scale = self.rho / jnp.where(norm > 0, norm, 1.0)
    return jax.tree.map(lambda w, g: w + scale * g, w, g)
