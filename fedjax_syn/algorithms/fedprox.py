"""FedProx: a proximal term keeps local models near the global one (Li et al., 2020, Eq. 2)."""

import optax

from fedjax_syn.core.fields import field
from fedjax_syn.layer import Layer


class FedProx(Layer):
  """Adds mu/2 ||w - w^t||^2, w^t the global model, to the local loss.

  DynaFed's authors omit the 1/2: their mu is half of this one.
  """

  mu: float = field(0.01, 'weight of the proximal term mu/2 ||w - w^t||^2', low=0.0)

  def proximal(self):
    return self.mu

  def loss(self, client, loss_fn, w, step):
    value, out = loss_fn(w, step)
    drift = optax.tree.sub(w, client.params)
    return value + self.mu / 2 * optax.tree.vdot(drift, drift), out

  def client_metrics(self, client, trained):
    return {'drift': optax.tree.norm(optax.tree.sub(trained.params, client.params))}
