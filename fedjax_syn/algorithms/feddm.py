"""FedDM: clients send sets whose features match theirs, the server trains on the union (Xiong et al., CVPR 2023)."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_syn.algorithms import _sets
from fedjax_syn.fields import field
from fedjax_syn.keys import fold
from fedjax_syn.method import Method, ServerTransform
from fedjax_syn.server import sets as sets_lib
from fedjax_syn.synthesis import ball
from fedjax_syn.synthesis import distribution as dm
from fedjax_syn.synthesis.class_sets import ClassSet
from fedjax_syn.typing import Array, Variables


@dataclasses.dataclass(frozen=True)
class Config:
  images_per_class: int = field(
    10, 'distilled images of each class that a client has', low=1, high=10**5
  )
  iterations: int = field(1000, 'matching iterations of a client in a round', low=1, high=10**7)
  lr: float = field(1.0, 'rate of the images, SGD', above=0.0)
  momentum: float = field(0.5, 'of the images', low=0.0, high=1.0)
  real_batch: int = field(
    256, 'real samples per class and iteration, drawn with replacement', low=1, high=10**6
  )
  radius: float = field(
    5.0, 'rho: a model is drawn within it around the global one in every iteration', low=0.0
  )
  least: int = field(10, 'samples below which a class of a client is left out', low=1, high=10**9)
  init: str = field('real', "images begin as 'real' ones or as 'noise'", choices=('real', 'noise'))
  server_steps: int = field(
    1000, "the server's steps in a round (500 passes over about two batches)", low=1, high=10**7
  )
  server_batch: int = field(256, "images in a server's step", low=1, high=10**6)
  server_lr: float = field(0.01, "the server's rate, SGD with momentum 0.9", above=0.0)
  server_weight_decay: float = field(5e-4, "the server's weight decay", low=0.0)


class Server(NamedTuple):
  """The server's state: what the clients of the last round sent."""

  images: Array  # [], how many
  sets: ClassSet  # leaves [slots, ...]


def server_optimizer(c: Config, lr: Array | float) -> optax.GradientTransformation:
  """Returns what the server trains with: SGD with momentum and weight decay."""
  return optax.chain(optax.add_decayed_weights(c.server_weight_decay), optax.sgd(lr, momentum=0.9))


def feddm(base: Method | None = None, **fields) -> Method:
  """Matches ||mean features||^2 and ||mean logits||^2 of each class under models drawn around the global one.

  Args:
    base: must be None or plain FedAvg, whose participation it shares; nothing is trained locally.
    **fields: see `Config`.

  Returns:
    The method. Constants are those of re-implementations, since there is no official code: each says so in
    its config. A server's batch is drawn with replacement.

  Raises:
    TypeError: if a field does not exist.
    ValueError: if it is put around another method.
  """
  c = Config(**fields)

  def client(task):
    shape = task.data.x.shape[1:]
    h = task.hyper['feddm']

    def distil(visit):
      counts, data = visit.shard.class_counts, task.data
      present = counts >= c.least
      positions = dm.by_class(data, visit.shard)
      real = lambda key, cls, rows: dm.draw(key, data, visit.shard, positions, cls, rows)

      def first(cls):
        key = fold(visit.key, cls, 1)
        if c.init == 'noise':
          return jax.random.normal(key, (c.images_per_class, *shape))
        return real(key, cls, c.images_per_class)

      def loss(x, cls, i):
        key = fold(visit.key, i)
        w = Variables(ball.sample(fold(key, 0), visit.params, h['radius']), visit.stats)
        embed = lambda x: dm.layers(task.model, w, x, 'last+logits')
        goal = dm.means(real(fold(key, cls, 1), cls, c.real_batch), embed)
        return sum(
          dm.distance(jax.lax.stop_gradient(a), b.mean(0), squared=True)
          for a, b in zip(goal, embed(x), strict=True)
        )

      start = jax.vmap(first)(jnp.arange(task.num_classes, dtype=jnp.int32))
      own = dm.descend(
        loss, _sets.blank(start, present), c.iterations, lr=h['lr'], momentum=c.momentum
      )
      return own, loss, c.iterations

    return _sets.client('feddm', task, distil, c.images_per_class, c.least)

  def server(task):
    def update(key, round, state, before, new, messages):
      received = sets_lib.received(messages.body['feddm'])
      optimizer = server_optimizer(c, task.hyper['feddm']['server_lr'])
      w = sets_lib.train(
        key,
        task,
        new,
        before.stats,
        [received],
        optimizer,
        steps=c.server_steps,
        batch_size=c.server_batch,
      )
      images = received.present.sum().astype(state.images.dtype) * c.images_per_class
      return w, Server(images, received)

    return ServerTransform(
      'feddm',
      init=lambda key, params, enrolled: Server(
        jnp.zeros(()), _sets.none_yet(task, c.images_per_class)
      ),
      update=update,
      synthetic=lambda state: _sets.learned(state.sets, c.iterations),
      metrics=lambda state: {'images': state.images},
    )

  hyper = {'lr': c.lr, 'radius': c.radius, 'server_lr': c.server_lr}
  return _sets.method('feddm', base, client, server, hyper)
