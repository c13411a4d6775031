"""FedDM: clients send sets whose features match theirs, the server trains on the union (Xiong et al., CVPR 2023)."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_syn.algorithms.set_sharing import distribution_matching as dm
from fedjax_syn.algorithms.set_sharing import perturbation
from fedjax_syn.algorithms.set_sharing import server as sets_lib
from fedjax_syn.algorithms.set_sharing.base import SetSharing, blank, listed
from fedjax_syn.algorithms.set_sharing.class_sets import ClassSet
from fedjax_syn.core.contexts import ClientContext
from fedjax_syn.core.fields import field
from fedjax_syn.core.keys import fold
from fedjax_syn.core.types import Array, PRNGKey, Variables

Real = Callable[[PRNGKey, Array, int], Array]  # (key, class, rows) -> real images of the client


class Server(NamedTuple):
  """The server's state: what the clients of the last round sent."""

  images: Array  # [], how many
  sets: ClassSet  # leaves [cohort, ...]


class FedDM(SetSharing):
  """Matches ||mean features||^2 and ||mean logits||^2 of each class under models drawn around the global one.

  Clients send their sets and keep nothing; the server trains the global model on the union of the sets. There is no
  official code: constants are those of re-implementations. A server's batch is drawn with replacement.
  """

  images_per_class: int = field(
    default=10, help='distilled images of each class that a client has', low=1, high=10**5
  )
  iterations: int = field(
    default=1000, help='matching iterations of a client in a round', low=1, high=10**7
  )
  lr: float = field(default=1.0, help='rate of the images, SGD', above=0.0)
  momentum: float = field(default=0.5, help='of the images', low=0.0, high=1.0)
  real_batch: int = field(
    default=256,
    help='real samples per class and iteration, drawn with replacement',
    low=1,
    high=10**6,
  )
  radius: float = field(
    default=5.0,
    help='rho: a model is drawn within it around the global one in every iteration',
    low=0.0,
  )
  least: int = field(
    default=10, help='samples below which a class of a client is left out', low=1, high=10**9
  )
  init: str = field(
    default='real', help="images begin as 'real' ones or as 'noise'", choices=('real', 'noise')
  )
  server_steps: int = field(
    default=1000,
    help="the server's steps in a round (500 passes over about two batches)",
    low=1,
    high=10**7,
  )
  server_batch: int = field(default=256, help="images in a server's step", low=1, high=10**6)
  server_lr: float = field(default=0.01, help="the server's rate, SGD with momentum 0.9", above=0.0)
  server_weight_decay: float = field(default=5e-4, help="the server's weight decay", low=0.0)

  # Clients: each distils its data.

  def client_update(self, client):
    data, shard = client.task.data, client.shard
    positions = dm.by_class(data, shard)
    real = lambda key, c, rows: dm.draw(key, data, shard, positions, c, rows)
    classes = jnp.arange(client.task.num_classes, dtype=jnp.int32)
    first = jax.vmap(functools.partial(self._first, client, real))(classes)
    start = blank(first, self._present(shard.class_counts))
    loss = functools.partial(self._loss, client, real)
    own = dm.descend(loss, start, self.iterations, lr=self.lr, momentum=self.momentum)
    message, numbers = self._message(own, loss, self.iterations)
    return message, None, numbers

  def _first(self, client: ClientContext, real: Real, c: Array) -> Array:
    """Returns the images that a class begins with."""
    key = fold(client.key, c, 1)
    if self.init == 'noise':
      return jax.random.normal(key, (self.images_per_class, *client.task.data.x.shape[1:]))
    return real(key, c, self.images_per_class)

  def _loss(self, client: ClientContext, real: Real, x: Array, c: Array, i: Array) -> Array:
    """Compares the features and logits of a class's images with those of a batch of real ones, at a w within rho."""
    key = fold(client.key, i)
    w = Variables(perturbation.sample(fold(key, 0), client.params, self.radius), client.stats)
    embed = lambda x: dm.layers(client.task.model, w, x, 'last+logits')
    goal = dm.means(real(fold(key, c, 1), c, self.real_batch), embed)
    return sum(
      dm.distance(jax.lax.stop_gradient(a), b.mean(0), squared=True)
      for a, b in zip(goal, embed(x), strict=True)
    )

  def _present(self, class_counts):
    return class_counts >= self.least

  # Server: it trains on the union of the sets.

  def server_init(self, task, key, params, messages):
    return Server(jnp.zeros(()), self._none_yet(task))

  def server_update(self, round, new):
    sets = self._received(round.messages.payload)
    w = sets_lib.train(
      round.key,
      round.task,
      new,
      round.stats,
      [sets],
      self._server_optimizer(),
      steps=self.server_steps,
      batch_size=self.server_batch,
    )
    images = sets.present.sum().astype(round.state.images.dtype) * self.images_per_class
    return w, Server(images, sets)

  def server_metrics(self, state):
    return {'images': state.images}

  def artifacts(self, task, state):
    return listed(state.sets, self.iterations)

  def _server_optimizer(self) -> optax.GradientTransformation:
    decay = optax.add_decayed_weights(self.server_weight_decay)
    return optax.chain(decay, optax.sgd(self.server_lr, momentum=0.9))
