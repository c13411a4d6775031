"""FedExP: the server extrapolates where updates differ (Jhunjhunwala et al., 2023, Eq. 8)."""

import jax
import jax.numpy as jnp
import optax

from fedjax_syn.core.fields import field
from fedjax_syn.layer import Layer


class FedExP(Layer):
  """Moves by eta_g d, with eta_g = max(1, mean ||d_i||^2 / (2 (||d||^2 + epsilon))).

  d is the mean of the clients' differences d_i.
  Means are by the clients' weights. Clients also send ||d_i||^2, one number, so that sums are
  enough for the server. With a large epsilon, eta_g is 1 and nothing changes. Deviation: the last
  iterate is evaluated; the authors average the last two.
  """

  epsilon: float = field(1e-3, 'epsilon (code 1e-3 for CIFAR-10)', low=0.0)

  def finish(self, client, trained, steps):
    stays = client.task.is_private  # for example a head
    d_i = jax.tree_util.tree_map_with_path(
      lambda path, y, w: jnp.zeros_like(y) if stays(path) else y - w, trained.params, client.params
    )
    return optax.tree.vdot(d_i, d_i), None

  def aggregate(self, round):
    d = round.messages.mean('params')
    bound = 2 * (optax.tree.vdot(d, d) + self.epsilon)
    ratio = round.messages.mean('fedexp') / jnp.maximum(bound, jnp.finfo(bound.dtype).tiny)
    eta_g = jnp.maximum(1.0, ratio)  # Eq. 8
    return jax.tree.map(lambda w, d: w + eta_g * d, round.params, d), {'server_step': eta_g}
