"""MOON: a contrastive loss draws local features to the global model's (Li et al., CVPR 2021)."""

import jax
import jax.numpy as jnp
import optax

from fedjax_syn.core.fields import field
from fedjax_syn.core.types import Array, Variables
from fedjax_syn.data import federated
from fedjax_syn.layer import Layer
from fedjax_syn.models.projection import with_projection


class MOON(Layer):
  """Adds the model-contrastive loss to the local loss: l = l_sup + mu l_con (Eqs. 3 to 5).

  Line numbers are those of the paper's Algorithm 1. R_w(x) are the features that a model w gives x:
  the output of the projection head, or without one the input of the classifier. w is the local
  model w_i^t during training, w_glob the global model w^t, and w_prev the local model w_i^{t-1} of
  the client's last participation, which each client keeps. A client that has not trained yet has
  the initial model for w_prev. Messages are the same as without this layer.

  Deviation: under BatchNorm, z is normalised by the batch's statistics, z_glob and z_prev by their
  models' running statistics; the paper does not say which.
  """

  mu: float = field(1.0, "weight of l_con (paper 5 for CIFAR-10, FedCOG's tables 0.01)", low=0.0)
  temperature: float = field(0.5, 'tau (paper 0.5)', above=0.0)
  projection: int = field(
    0, "outputs of a projection head (paper 256); 0: none (FedCOG's tables)", low=0, high=10**5
  )

  def model(self, model, shape):
    return with_projection(model, shape, self.projection) if self.projection else model

  def client_init(self, task, initial, shard):
    return initial

  def loss(self, client, loss_fn, w, step):
    l_sup, out = loss_fn(w, step)  # line 13, with the terms of the layers before this one
    z = out.features  # line 14: R_w(x)
    w_glob, w_prev = Variables(client.params, client.stats), client.state
    features = lambda w: client.task.model.apply(w, step.x, train=False).features
    z_glob, z_prev = jax.lax.stop_gradient((features(w_glob), features(w_prev)))  # lines 15 and 16
    l_con = contrastive_loss(z, z_glob, z_prev, step.mask, self.temperature)  # line 17, Eq. 3
    return l_sup + self.mu * l_con, out  # line 18, Eq. 4

  def finish(self, client, trained, steps):
    return None, trained  # w_prev of the client's next round

  def client_metrics(self, client, trained):
    task, w_glob = client.task, Variables(client.params, client.stats)
    x, _, mask = federated.first_rows(task.data, client.shard)
    features = lambda w: task.model.apply(w, x, train=False).features
    z, z_glob, z_prev = map(features, (trained, w_glob, client.state))
    mean = lambda values: jnp.sum(values * mask) / jnp.maximum(mask.sum(), 1)
    return {
      'cosine_global': mean(cosine(z, z_glob)),
      'cosine_previous': mean(cosine(z, z_prev)),
    }


def cosine(a: Array, b: Array) -> Array:
  """Returns sim(a, b), the cosine similarity of features [batch, features]: [batch]."""
  return optax.losses.cosine_similarity(a, b, epsilon=1e-8)


def contrastive_loss(z: Array, z_glob: Array, z_prev: Array, mask: Array, tau) -> Array:
  """Returns l_con, -log(e^(s_glob / tau) / (e^(s_glob / tau) + e^(s_prev / tau))), Eq. 3.

  s_glob is sim(z, z_glob), and s_prev is sim(z, z_prev).

  Args:
    z: [batch, features], of the model that is trained.
    z_glob: [batch, features], of the global model.
    z_prev: [batch, features], of the client's previous local model.
    mask: [batch].
    tau: temperature.

  Returns:
    The mean over the mask, []; ln 2 where z_glob and z_prev agree.
  """
  sim_glob, sim_prev = cosine(z, z_glob), cosine(z, z_prev)
  # -log(e^a / (e^a + e^b)) = log(1 + e^(b - a)) = softplus(b - a)
  losses = jax.nn.softplus((sim_prev - sim_glob) / tau)
  return jnp.sum(losses * mask) / jnp.maximum(mask.sum(), 1)
