"""LabelFlip: an attack; some clients train on wrong labels (data poisoning)."""

import jax.numpy as jnp

from fedjax_syn.core.fields import field
from fedjax_syn.core.sampling import chosen
from fedjax_syn.layer import Layer


class LabelFlip(Layer):
  """A share of the clients trains with label y replaced by C - 1 - y, C the number of classes.

  With several labels per sample, each is replaced by its opposite. The attackers are the same in
  all rounds and seeds; those of `signflip` with an equal seed are the same clients. The local loss
  of this layer and of those before it has the wrong labels. What layers compute from a client's
  samples outside the local steps (class counts, SCAFFOLD's gradient at the global model) has the
  true ones.
  """

  share: float = field(0.2, 'share of all clients that attack', low=0.0, high=1.0)
  seed: int = field(0, 'seed of the draw of the attackers', low=0, high=2**31 - 1)

  def requires(self):
    return frozenset({'local training'})

  def common(self, task, key, round, w):
    return chosen(task.num_clients, self.share, self.seed)

  def grad(self, client, grad_fn, w, step):
    several, last = step.y.ndim > 1, client.task.num_classes - 1
    wrong = 1 - step.y if several else last - step.y
    attacks = client.broadcast[client.shard.client]
    return grad_fn(w, step._replace(y=jnp.where(attacks, wrong, step.y)))
