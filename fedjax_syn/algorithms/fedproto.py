"""FedProto: clients share mean features by class, not models (Tan et al., 2022, Algorithm 1)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedjax_syn.core.fields import field
from fedjax_syn.core.programs import loop
from fedjax_syn.core.types import Array, Variables
from fedjax_syn.data import federated
from fedjax_syn.layer import Layer, when


class Prototypes(NamedTuple):
  """What the server sends: the mean features of every class."""

  mean: Array  # [classes, features]
  known: Array  # [classes], bool: a client has sent features of the class


class FedProto(Layer):
  """Adds lambda d(f(x), C_y) to the local loss, C_y the mean features of class y over all clients.

  d is the mean squared difference, as in the authors' code. A client sends, for each class, the sum
  of its features and the number of its samples. With average=False, as in the paper, every client
  keeps its own model and the global model stays the initial one: evaluate the clients' own models
  (`personal_every`). With average=True, models are averaged too.
  Deviations: a class that no client of a round has keeps its prototype, and prototypes are computed
  by the trained model in evaluation mode.
  """

  lambda_proto: float = field(1.0, 'lambda, weight of the distance (paper and code 1)', low=0.0)
  average: bool = field(True, 'average the models, too (paper False)')

  def requires(self):
    return frozenset({'one class'})

  def private(self, model, path):
    return not self.average

  @when(lambda self, task: not self.average)
  def client_init(self, task, initial, shard):
    return initial.params

  @when(lambda self, task: not self.average)
  def receive(self, client, params):
    return client.state

  def loss(self, client, loss_fn, w, step):  # Eq. 6
    value, out = loss_fn(w, step)
    known = client.broadcast.known[step.y] * step.mask
    square = jnp.mean((out.features - client.broadcast.mean[step.y]) ** 2, axis=-1)  # d
    return value + self.lambda_proto * jnp.sum(square * known) / jnp.maximum(known.sum(), 1), out

  def finish(self, client, trained, steps):  # Eq. 3, as sums: the server divides
    sums = _feature_sums(client.task, client.shard, trained)
    counts = client.shard.class_counts.astype(sums.dtype)
    return (sums, counts), None if self.average else trained.params  # w_k stays on the client

  @when(lambda self, task: not self.average)
  def postprocess_update(self, client, payload):  # the model stays where it is
    return payload | {'params': jax.tree.map(jnp.zeros_like, payload['params'])}

  def server_init(self, task, key, params, messages):
    features = task.shapes_of(task.model.apply).features
    mean = jnp.zeros((task.num_classes, features.shape[-1]), features.dtype)
    return Prototypes(mean, jnp.zeros(task.num_classes, bool))

  def broadcast(self, prototypes):
    return prototypes

  def server_update(self, round, new):  # Eq. 5
    sums, counts = round.messages.sum('fedproto')
    sent = counts > 0
    mean = sums / jnp.maximum(counts, 1)[:, None]
    mean = jnp.where(sent[:, None], mean, round.state.mean)
    return new, Prototypes(mean, round.state.known | sent)

  def server_metrics(self, prototypes):
    return {'classes': prototypes.known.sum().astype(prototypes.mean.dtype)}


def _feature_sums(task, shard, w: Variables, batch: int = 128) -> Array:
  """Sums a client's features by class, [classes, features], batch by batch."""

  def add(i, total):
    x, y, mask = federated.batch(task.data, shard, i, batch)
    features = task.model.apply(w, x, train=False).features
    return total.at[y].add(features * mask[:, None])

  features = task.shapes_of(task.model.apply).features
  zero = jnp.zeros((task.num_classes, features.shape[-1]), features.dtype)
  with loop(f'rows_of_client_by_{batch}'):
    return jax.lax.fori_loop(0, -(-shard.size // batch), add, zero)
