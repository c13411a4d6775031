"""FedGen: a generator of features, trained on the server, regularises local training (Zhu et al., 2021, Algorithm 1)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_syn.core.contexts import Task
from fedjax_syn.core.fields import field
from fedjax_syn.core.keys import fold
from fedjax_syn.core.types import Array, Params, PRNGKey, PyTree
from fedjax_syn.layer import Layer
from fedjax_syn.models.generator import Generator, Moments, generator, running
from fedjax_syn.server import models


class Broadcast(NamedTuple):
  """What comes down beside the model."""

  generator: Params
  moments: Moments  # running ones: a client's batch may be of one class
  trained: Array  # [], 0 until the generator was trained for the first time, then 1


class Server(NamedTuple):
  """The server's state."""

  generator: Params
  moments: Moments
  trained: Array  # [], see `Broadcast`
  opt_state: PyTree
  loss: Array  # [], of the last step


class FedGen(Layer):
  """Trains G(y, eps) so that the clients' heads see y in it, and local models to agree with it.

  On a client, from round 2 on: CE + alpha CE(head(G(y')), y') + beta KL(p(head(G(y))) || p(x)), y' uniform and y the
  batch's own labels, no gradient through the second term's target; both weights times decay^(round - 1). alpha = beta
  = 0 changes nothing.

  Clients send their label counts, and use the generator by the running moments of its batch norm: by those of a batch
  of one class its label would cancel. Labels for the generator are drawn in proportion to how many clients of the round
  hold them.
  """

  alpha: float = field(
    default=10.0, help='weight of the loss on generated features (code 10)', low=0.0
  )
  beta: float = field(
    default=10.0, help='weight of the pull towards generated predictions (code 10 or 1)', low=0.0
  )
  decay: float = field(
    default=0.98, help='factor on both weights per round (code 0.98)', above=0.0, high=1.0
  )
  diversity: float = field(
    default=1.0, help="weight of the generator's diversity loss (code 1)", low=0.0
  )
  steps: int = field(
    default=50, help="the generator's steps in a round (code 50)", low=1, high=10**6
  )
  batch_size: int = field(
    default=32, help="generated samples in the generator's step (code 32)", low=1, high=10_000
  )
  lr: float = field(default=3e-4, help="the generator's rate, Adam (code 3e-4)", above=0.0)
  weight_decay: float = field(
    default=1e-2, help="L2 on the generator's weights (code 1e-2)", low=0.0
  )
  noise: int = field(default=32, help='uniform noise per sample (code 32)', low=1, high=10**5)
  hidden: int = field(
    default=256, help="the generator's hidden units (code 256)", low=1, high=10**5
  )

  def requires(self):
    return frozenset({'individual updates', 'one class', 'pixels'})

  def prepare(self, client):  # the factor on both weights
    return client.broadcast.trained * self.decay ** (client.round - 1.0)

  def loss(self, client, loss_fn, w, step):
    task, sent, g = client.task, client.broadcast, self._generator(client.task)
    value, out = loss_fn(w, step)
    batch, total = step.y.shape[0], jnp.maximum(step.mask.sum(), 1)
    noise = jax.random.uniform(fold(step.key, 0), (2, batch, g.noise))
    other = jax.random.randint(fold(step.key, 0, 1), (batch,), 0, task.num_classes)
    made = lambda y, eps: g.apply(sent.generator, y, eps, sent.moments)[0]
    generated = task.model.head(w, made(other, noise[0]))
    teacher = optax.softmax_cross_entropy_with_integer_labels(generated, other).mean()
    same = task.model.head(w, made(step.y, noise[1]))
    target = jax.nn.softmax(jax.lax.stop_gradient(same))
    pull = optax.losses.kl_divergence(jax.nn.log_softmax(out.logits), target)
    pull = jnp.sum(pull * step.mask) / total
    return value + client.prepared * (self.alpha * teacher + self.beta * pull), out

  def finish(self, client, trained, steps):  # the label counts are sent
    return client.shard.class_counts.astype(client.task.data.mean.dtype), None

  def server_init(self, task, key, params, messages):
    weights, zero = self._generator(task).init(key), jnp.zeros(())
    moments = Moments(jnp.zeros(self.hidden), jnp.ones(self.hidden))
    return Server(weights, moments, zero, self._optimizer().init(weights), zero)

  def broadcast(self, state):
    return Broadcast(state.generator, state.moments, state.trained)

  def server_update(self, round, new):
    """Trains the generator; the global model stays as it is."""
    state, clients = round.state, models.of_round(round.params, round.messages)
    counts = round.messages.payload['fedgen'] * clients.present[:, None]
    optimizer = self._optimizer()

    def step(carry, i):
      weights, moments, opt_state = carry
      key, of = fold(round.key, i), (round.task, clients.variables.params, counts)
      slope = jax.value_and_grad(self._objective, has_aux=True)
      (value, batch), grads = slope(weights, key, *of)
      updates, opt_state = optimizer.update(grads, opt_state, weights)
      moments = running(moments, batch, self.batch_size)
      return (optax.apply_updates(weights, updates), moments, opt_state), value

    start = (state.generator, state.moments, state.opt_state)
    (*trained, opt_state), losses = jax.lax.scan(step, start, jnp.arange(self.steps))
    after = Server(*trained, jnp.ones(()), opt_state, losses[-1])
    anyone = _holders(counts).sum() > 0
    return new, jax.tree.map(lambda a, b: jnp.where(anyone, a, b), after, state)

  def server_metrics(self, state):
    return {'loss': state.loss}

  def _objective(
    self, weights: Params, key: PRNGKey, task: Task, params: Params, counts: Array
  ) -> tuple[Array, Moments]:
    """Returns the generator's loss, params [cohort, ...] being the clients', and its batch's moments."""
    g = self._generator(task)
    labels = jnp.log(_holders(counts))
    y = jax.random.categorical(fold(key, 0), labels, shape=(self.batch_size,))
    noise = jax.random.uniform(fold(key, 0, 1), (self.batch_size, g.noise))
    z, moments = g.apply(weights, y, noise)
    logits = jax.vmap(task.model.head, (0, None))(params, z)
    return ensemble_loss(logits, y, counts) + self.diversity * diversity_loss(noise, z), moments

  def _generator(self, task: Task) -> Generator:
    image = jax.ShapeDtypeStruct((1, *task.data.x.shape[1:]), task.data.mean.dtype)
    variables = jax.eval_shape(task.model.init, jax.random.key(0))
    features = jax.eval_shape(lambda v, x: task.model.apply(v, x).features, variables, image)
    size = features.shape[-1]
    return generator(
      noise=self.noise, hidden=self.hidden, features=size, num_classes=task.num_classes
    )

  def _optimizer(self) -> optax.GradientTransformation:
    return optax.chain(optax.add_decayed_weights(self.weight_decay), optax.adam(self.lr))


def _holders(counts: Array) -> Array:
  """Counts the clients that hold each label: counts [cohort, classes] -> [classes]."""
  return (counts > 0).sum(axis=0)


def ensemble_loss(logits: Array, y: Array, counts: Array) -> Array:
  """The clients' cross-entropy on generated features, each label weighed by who holds it.

  Args:
    logits: [cohort, batch, classes], each client's head on the generated features.
    y: [batch], the labels that were generated for.
    counts: [cohort, classes], samples of each label at each client.

  Returns:
    mean over the batch of sum_k w_{k,y} CE_k with w_{k,y} = counts[k, y] / sum_k counts[k, y], [].
  """
  share = counts / jnp.maximum(counts.sum(axis=0, keepdims=True), 1)
  losses = optax.softmax_cross_entropy_with_integer_labels(logits, y[None])
  return jnp.sum(share[:, y] * losses, axis=0).mean()


def diversity_loss(noise: Array, features: Array) -> Array:
  """exp(-mean over pairs of d(eps_i, eps_j) d(z_i, z_j)): small when different noise gives different features.

  Args:
    noise: [batch, noise]; d is the mean squared difference.
    features: [batch, features]; d is the mean absolute difference.

  Returns:
    The loss, [], between 0 and 1. Means over the coordinates, where sums would make the exponential
    vanish for wide layers.
  """
  apart = lambda a: a[:, None] - a[None]
  return jnp.exp(-jnp.mean((apart(noise) ** 2).mean(-1) * jnp.abs(apart(features)).mean(-1)))
