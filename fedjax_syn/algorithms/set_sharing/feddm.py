"""FedDM: clients send sets with their mean features (Xiong et al., 2023)."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_syn.algorithms.set_sharing import distribution_matching as dm
from fedjax_syn.algorithms.set_sharing.base import SetSharing, blank, listed, perturb_weights, train
from fedjax_syn.algorithms.set_sharing.class_sets import ClassSet
from fedjax_syn.core.contexts import ClientContext
from fedjax_syn.core.fields import field
from fedjax_syn.core.keys import fold
from fedjax_syn.core.types import Array, PRNGKey, Variables

WEIGHT_DECAY = 5e-4  # of the server

Real = Callable[[PRNGKey, Array, int], Array]  # (key, class, rows) -> real images of the client


class Server(NamedTuple):
  """The server's state: what the clients of the last round sent."""

  images: Array  # [], how many
  sets: ClassSet  # leaves [cohort, ...]


class FedDM(SetSharing):
  """Matches mean features and mean logits by class, under models drawn around the global one.

  Clients send their sets and keep nothing; the server trains the global model on the union of the
  sets, in batches drawn with replacement. There is no official code: constants are those of
  re-implementations.
  """

  iterations: int = field(1000, 'matching iterations of a client in a round', low=1, high=10**7)
  lr: float = field(1.0, 'rate of the images, SGD', above=0.0)
  momentum: float = field(0.5, 'momentum of the images', low=0.0, high=1.0)
  real_batch: int = field(256, 'real samples per class and iteration', low=1, high=10**6)
  radius: float = field(5.0, 'rho, around the global model, of the drawn models', low=0.0)
  least: int = field(10, 'samples that a class of a client must have', low=1, high=10**9)
  init: str = field('real', "images start as 'real' ones or 'noise'", choices=('real', 'noise'))
  server_steps: int = field(1000, "the server's steps in a round", low=1, high=10**7)
  server_batch: int = field(256, "images in a server's step", low=1, high=10**6)
  server_lr: float = field(0.01, "the server's rate, SGD with momentum 0.9", above=0.0)

  # Clients distil their data.

  def client_update(self, client):
    data, shard = client.task.data, client.shard
    positions = dm.by_class(data, shard)
    real = lambda key, c, rows: dm.draw(key, data, shard, positions, c, rows)
    classes = jnp.arange(client.task.num_classes, dtype=jnp.int32)
    first = jax.vmap(functools.partial(self._first, client, real))(classes)
    start = blank(first, self._present(shard.class_counts))
    losses = functools.partial(self._losses, client, real)
    own = dm.descend(losses, start, self.iterations, lr=self.lr, momentum=self.momentum)
    message, numbers = self._message(own, losses, self.iterations)
    return message, None, numbers

  def _first(self, client: ClientContext, real: Real, c: Array) -> Array:
    """Returns the initial images of a class."""
    key = fold(client.key, c, 1)
    if self.init == 'noise':
      return jax.random.normal(key, (self.images_per_class, *client.task.data.x.shape[1:]))
    return real(key, c, self.images_per_class)

  def _losses(self, client: ClientContext, real: Real, i: Array) -> dm.ClassLoss:
    """Returns the squared distances of a class's mean features and logits at a drawn w."""
    key = fold(client.key, i)
    w = Variables(perturb_weights(fold(key, 0), client.params, self.radius), client.stats)
    embed = lambda x: dm.layers(client.task.model, w, x, 'last+logits')

    def loss(x, c):
      goal = dm.means(real(fold(key, c, 1), c, self.real_batch), embed, client.task.backend)
      pairs = zip(goal, embed(x), strict=True)
      distances = (dm.distance(jax.lax.stop_gradient(a), b.mean(0), True) for a, b in pairs)
      return sum(distances, jnp.zeros(()))

    return loss

  def _present(self, class_counts):
    return class_counts >= self.least

  # The server trains on the union of the sets.

  def _optimizer(self) -> optax.GradientTransformation:
    """Returns the optimizer of the server."""
    decay = optax.add_decayed_weights(WEIGHT_DECAY)
    return optax.chain(decay, optax.sgd(self.server_lr, momentum=0.9))

  def server_init(self, task, key, params, messages):
    return Server(jnp.zeros(()), self._none_yet(task))

  def server_update(self, round, new):
    sets = self._received(round.messages.payload)
    sizes = {'steps': self.server_steps, 'batch_size': self.server_batch}
    w = train(round.key, round.task, new, round.stats, [sets], self._optimizer(), **sizes)
    images = sets.present.sum().astype(round.state.images.dtype) * self.images_per_class
    return w, Server(images, sets)

  def server_metrics(self, state):
    return {'images': state.images}

  def artifacts(self, task, state):
    return listed(state.sets, self.iterations)
