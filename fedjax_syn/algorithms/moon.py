"""MOON: local features stay near the global model's and away from the previous local model's (Li et al., 2021, Eq. 3)."""

import dataclasses

import jax
import jax.numpy as jnp
import optax

from fedjax_syn.algorithms.fedavg import fedavg
from fedjax_syn.data import federated
from fedjax_syn.fields import field
from fedjax_syn.method import ClientTransform, Method
from fedjax_syn.models.projection import with_projection
from fedjax_syn.typing import Array, Variables


@dataclasses.dataclass(frozen=True)
class Config:
  mu: float = field(
    1.0, "weight of the contrastive loss (paper 5 for CIFAR-10; in FedCOG's tables 0.01)", low=0.0
  )
  temperature: float = field(0.5, 'tau (paper 0.5)', above=0.0)
  projection: int = field(
    0,
    "size of a projection head's output (paper 256); 0: none, as in FedCOG's tables",
    low=0,
    high=10**5,
  )


def cosine(a: Array, b: Array) -> Array:
  """Returns cosines of features [batch, features]: [batch]."""
  return optax.losses.cosine_similarity(a, b, epsilon=1e-8)


def contrastive_loss(z: Array, z_global: Array, z_previous: Array, mask: Array, tau) -> Array:
  """-log of exp(cos(z, z_global) / tau) over the sum with exp(cos(z, z_previous) / tau), a mean over the mask.

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


def moon(
  base: Method | None = None, *, mu: float = 1.0, temperature: float = 0.5, projection: int = 0
) -> Method:
  """Adds the model-contrastive loss; each client keeps its last local model.

  Args:
    base: a method that trains locally; FedAvg by default.
    mu: weight of the contrastive loss; 0 is the base itself.
    temperature: tau.
    projection: size of the output of a two-layer projection head between features and classifier.

  Returns:
    The method. A client that has not trained yet takes the initial model for its previous one.
  """
  base = base or fedavg()

  def client(task):
    def prepare(visit):
      return Variables(visit.params, visit.stats), visit.state['moon']

    def loss(ctx, loss_fn):
      w_global, w_previous = ctx

      def contrastive(params, step):
        value, out = loss_fn(params, step)
        features = [
          jax.lax.stop_gradient(task.model.apply(w, step.x, train=False).features)
          for w in (w_global, w_previous)
        ]
        h = task.hyper['moon']
        return value + h['mu'] * contrastive_loss(
          out.features, *features, step.mask, h['temperature']
        ), out

      return contrastive

    def metrics(ctx, visit, trained):
      x, _, mask = federated.first(task.data, visit.shard)
      z, *others = (task.model.apply(w, x, train=False).features for w in (trained, *ctx))
      mean = lambda values: jnp.sum(values * mask) / jnp.maximum(mask.sum(), 1)
      near, far = (mean(cosine(z, other)) for other in others)
      return {'cosine_global': near, 'cosine_previous': far}

    return ClientTransform(
      'moon',
      metrics=metrics,
      init=lambda initial, shard: initial,
      prepare=prepare,
      loss=loss,
      finish=lambda ctx, visit, trained, steps: (None, trained),
    )

  adapt = (lambda model, shape: with_projection(model, shape, projection)) if projection else None
  hyper = {'mu': mu, 'temperature': temperature}
  return base.extend('moon', client=client, adapt=adapt, hyper=hyper)
