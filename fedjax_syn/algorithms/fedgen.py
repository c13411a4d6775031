"""FedGen: a generator of features regularises local training (Zhu et al., 2021, Algorithm 1)."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_syn.core.contexts import Task
from fedjax_syn.core.fields import field
from fedjax_syn.core.keys import fold
from fedjax_syn.core.optimizers import training_step
from fedjax_syn.core.types import Array, Params, PRNGKey, PyTree
from fedjax_syn.layer import Layer
from fedjax_syn.models.generator import FeatureGenerator, Moments, running
from fedjax_syn.server import models


class Broadcast(NamedTuple):
  """What the server sends beside the model."""

  generator: Params
  moments: Moments  # running ones: a client's batch may have one class only
  trained: Array  # [], 0 before the generator's first training, then 1


class Server(NamedTuple):
  """The server's state."""

  generator: Params
  moments: Moments
  trained: Array  # [], see `Broadcast`
  opt_state: PyTree
  loss: Array  # [], of the last step


class FedGen(Layer):
  """Trains a generator G(y, eps) of features of label y, and local models with it.

  From round 2 on, the local loss is CE + alpha CE(head(G(y')), y') + beta KL(p(head(G(y))) ||
  p(x)), y' uniform and y the batch's labels, without a gradient through the target of the second
  term. Both weights are multiplied by decay^(round - 1). alpha = beta = 0 changes nothing.

  Clients send their label counts. They use the running moments of the generator's batch norm: with
  the moments of a batch of one class, the label would cancel. The server draws labels in proportion
  to the number of clients of the round that have them.
  """

  alpha: float = field(10.0, 'weight of the loss on generated features (code 10)', low=0.0)
  beta: float = field(10.0, 'weight of the KL divergence (code 10 or 1)', low=0.0)
  decay: float = field(0.98, 'factor on both weights per round (code 0.98)', above=0.0, high=1.0)
  steps: int = field(50, "the generator's steps in a round (code 50)", low=1, high=10**6)
  batch_size: int = field(32, 'generated samples in such a step (code 32)', low=1, high=10_000)
  lr: float = field(3e-4, "the generator's rate, Adam (code 3e-4)", above=0.0)
  weight_decay: float = field(1e-2, "L2 on the generator's weights (code 1e-2)", low=0.0)
  noise: int = field(32, 'uniform noise per sample (code 32)', low=1, high=10**5)
  hidden: int = field(256, "the generator's hidden units (code 256)", low=1, high=10**5)

  def requires(self):
    return frozenset({'individual updates', 'one class', 'real values'})

  def prepare(self, client):  # the factor on both weights
    return client.broadcast.trained * self.decay ** (client.round - 1.0)

  def loss(self, client, loss_fn, w, step):
    task, sent, g = client.task, client.broadcast, self._generator(client.task)
    value, out = loss_fn(w, step)
    batch, total = step.y.shape[0], jnp.maximum(step.mask.sum(), 1)
    noise = jax.random.uniform(fold(step.key, 0), (2, batch, self.noise))
    other = jax.random.randint(fold(step.key, 0, 1), (batch,), 0, task.num_classes)
    features = lambda y, eps: g.apply({'params': sent.generator}, y, eps, sent.moments)[0]
    logits = lambda y, eps: task.model.head(w, features(y, eps))
    generated = logits(other, noise[0])
    teacher = optax.softmax_cross_entropy_with_integer_labels(generated, other).mean()
    target = jax.nn.softmax(jax.lax.stop_gradient(logits(step.y, noise[1])))
    kl = optax.losses.kl_divergence(jax.nn.log_softmax(out.logits), target)
    kl = jnp.sum(kl * step.mask) / total
    return value + client.prepared * (self.alpha * teacher + self.beta * kl), out

  def finish(self, client, trained, steps):  # the label counts are sent
    return client.shard.class_counts.astype(client.task.data.mean.dtype), None

  def server_init(self, task, key, params, messages):
    example = jnp.zeros(1, jnp.int32), jnp.zeros((1, self.noise))
    weights, zero = self._generator(task).init(key, *example)['params'], jnp.zeros(())
    moments = Moments(jnp.zeros(self.hidden), jnp.ones(self.hidden))
    return Server(weights, moments, zero, self._optimizer().init(weights), zero)

  def broadcast(self, state):
    return Broadcast(state.generator, state.moments, state.trained)

  def server_update(self, round, new):
    """Trains the generator; the global model does not change."""
    state, clients = round.state, models.of_round(round.params, round.messages)
    counts = round.messages.payload['fedgen'] * clients.present[:, None]
    descend = training_step(self._objective, self._optimizer(), has_aux=True)

    def step(carry, i):
      weights, moments = carry
      of = round.task, clients.variables.params, counts
      weights, (value, batch) = descend(weights, fold(round.key, i), *of)
      return (weights, running(moments, batch, self.batch_size)), value

    start = (state.generator, state.opt_state), state.moments
    ((trained, opt_state), moments), losses = jax.lax.scan(step, start, jnp.arange(self.steps))
    after = Server(trained, moments, jnp.ones(()), opt_state, losses[-1])
    anyone = _holders(counts).sum() > 0
    return new, jax.tree.map(lambda a, b: jnp.where(anyone, a, b), after, state)

  def server_metrics(self, state):
    return {'loss': state.loss}

  def _objective(
    self, weights: Params, key: PRNGKey, task: Task, params: Params, counts: Array
  ) -> tuple[Array, Moments]:
    """Returns the generator's loss and its batch's moments; params: the clients', [cohort, ...]."""
    g: Any = self._generator(task)
    labels = jnp.log(_holders(counts))
    y = jax.random.categorical(fold(key, 0), labels, shape=(self.batch_size,))
    noise = jax.random.uniform(fold(key, 0, 1), (self.batch_size, self.noise))
    z, moments = g.apply({'params': weights}, y, noise)
    logits = jax.vmap(task.model.head, (0, None))(params, z)
    return ensemble_loss(logits, y, counts) + diversity_loss(noise, z), moments

  def _generator(self, task: Task) -> FeatureGenerator:
    features = task.shapes_of(task.model.apply).features
    return FeatureGenerator(self.hidden, features.shape[-1], task.num_classes)

  def _optimizer(self) -> optax.GradientTransformation:
    return optax.chain(optax.add_decayed_weights(self.weight_decay), optax.adam(self.lr))


def _holders(counts: Array) -> Array:
  """Counts the clients that have each label: counts [cohort, classes] -> [classes]."""
  return (counts > 0).sum(axis=0)


def ensemble_loss(logits: Array, y: Array, counts: Array) -> Array:
  """Returns the clients' cross-entropy on generated features, by their shares of each label.

  Args:
    logits: [cohort, batch, classes], each client's head on the generated features.
    y: [batch], the labels of the generated features.
    counts: [cohort, classes], samples of each label at each client.

  Returns:
    The mean over the batch of sum_k w_{k,y} CE_k with w_{k,y} = counts[k, y] / sum_k counts[k, y],
    [].
  """
  share = counts / jnp.maximum(counts.sum(axis=0, keepdims=True), 1)
  losses = optax.softmax_cross_entropy_with_integer_labels(logits, y[None])
  return jnp.sum(share[:, y] * losses, axis=0).mean()


def diversity_loss(noise: Array, features: Array) -> Array:
  """Returns exp(-mean over pairs of d(eps_i, eps_j) d(z_i, z_j)).

  It is small where different noise gives different features.

  Args:
    noise: [batch, noise]; d is the mean squared difference.
    features: [batch, features]; d is the mean absolute difference.

  Returns:
    The loss, [], between 0 and 1. With sums over coordinates instead of means, the exponential
    would vanish for wide layers.
  """
  pairs = lambda a: a[:, None] - a[None]
  return jnp.exp(-jnp.mean((pairs(noise) ** 2).mean(-1) * jnp.abs(pairs(features)).mean(-1)))
