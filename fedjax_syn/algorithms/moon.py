"""MOON: local features stay near the global model's and away from the previous local model's (Li et al., 2021, Eq. 3)."""

import jax
import jax.numpy as jnp
import optax

from fedjax_syn.data import federated
from fedjax_syn.fields import field
from fedjax_syn.layer import Layer
from fedjax_syn.models.projection import with_projection
from fedjax_syn.typing import Array, Variables


class MOON(Layer):
  """Adds mu times the model-contrastive loss to the local loss (Algorithm 1, lines 14 to 20).

  Every client keeps its last local model; nothing else is sent than in FedAvg. A client that has not trained yet takes
  the initial model for its previous one.
  """

  mu: float = field(
    default=1.0,
    help="weight of the contrastive loss (paper 5 for CIFAR-10; in FedCOG's tables 0.01)",
    low=0.0,
  )
  temperature: float = field(default=0.5, help='tau (paper 0.5)', above=0.0)
  projection: int = field(
    default=0,
    help="size of a projection head's output (paper 256); 0: none, as in FedCOG's tables",
    low=0,
    high=10**5,
  )

  def model(self, model, shape):
    return with_projection(model, shape, self.projection) if self.projection else model

  def client_init(self, task, initial, shard):
    return initial

  def loss(self, client, loss_fn, w, step):
    value, out = loss_fn(w, step)  # out.features: z, line 15
    w_global, w_previous = Variables(client.params, client.stats), client.state
    features = lambda w: client.task.model.apply(w, step.x, train=False).features
    z_global, z_previous = jax.lax.stop_gradient((features(w_global), features(w_previous)))
    l_con = contrastive_loss(out.features, z_global, z_previous, step.mask, self.temperature)
    return value + self.mu * l_con, out  # line 19

  def finish(self, client, trained, steps):
    return None, trained  # w_i^{t-1} of the next round

  def client_metrics(self, client, trained):
    task, w_global = client.task, Variables(client.params, client.stats)
    x, _, mask = federated.first(task.data, client.shard)
    features = lambda w: task.model.apply(w, x, train=False).features
    z, z_global, z_previous = map(features, (trained, w_global, client.state))
    mean = lambda values: jnp.sum(values * mask) / jnp.maximum(mask.sum(), 1)
    return {
      'cosine_global': mean(cosine(z, z_global)),
      'cosine_previous': mean(cosine(z, z_previous)),
    }


def cosine(a: Array, b: Array) -> Array:
  """Returns cosines of features [batch, features]: [batch]."""
  return optax.losses.cosine_similarity(a, b, epsilon=1e-8)


def contrastive_loss(z: Array, z_global: Array, z_previous: Array, mask: Array, tau) -> Array:
  """-log of exp(cos(z, z_global) / tau) over the sum with exp(cos(z, z_previous) / tau), a mean over the mask (Eq. 3).

  Args:
    z: [batch, features], of the model that is trained.
    z_global: [batch, features], of the global model.
    z_previous: [batch, features], of the client's previous local model.
    mask: [batch].
    tau: temperature.

  Returns:
    The loss, []; ln 2 where the two others agree.
  """
  near, far = cosine(z, z_global), cosine(z, z_previous)
  losses = jax.nn.softplus((far - near) / tau)
  return jnp.sum(losses * mask) / jnp.maximum(mask.sum(), 1)
