"""SignFlip: an attack; some clients send their update with the opposite sign (model poisoning)."""

import jax
import jax.numpy as jnp

from fedjax_syn.core.fields import field
from fedjax_syn.core.sampling import chosen
from fedjax_syn.layer import Layer


class SignFlip(Layer):
  """A share of the clients trains as the others do and sends -s (w_i - w) instead of w_i - w.

  s is `scale`. The attackers are the same in all rounds and seeds; those of `labelflip` with an
  equal seed are the same clients. Running statistics and what other layers send stay as they are.
  """

  share: float = field(0.2, 'share of all clients that attack', low=0.0, high=1.0)
  scale: float = field(1.0, 's, factor on the reversed update', low=0.0)
  seed: int = field(0, 'seed of the draw of the attackers', low=0, high=2**31 - 1)

  def common(self, task, key, round, w):
    return chosen(task.num_clients, self.share, self.seed)

  def postprocess_update(self, client, payload):
    factor = jnp.where(client.broadcast[client.shard.client], -self.scale, 1.0)
    flip = lambda d: factor.astype(d.dtype) * d
    return payload | {'params': jax.tree.map(flip, payload['params'])}
