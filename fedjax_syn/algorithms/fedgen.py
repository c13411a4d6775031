"""FedGen: a generator of features, trained on the server, regularises local training (Zhu et al., 2021, Algorithm 1)."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_syn.algorithms.fedavg import fedavg
from fedjax_syn.fields import field
from fedjax_syn.keys import fold
from fedjax_syn.method import ClientTransform, Method, ServerTransform
from fedjax_syn.models.generator import Moments, generator, running
from fedjax_syn.server import models
from fedjax_syn.typing import Array, Params, PyTree


@dataclasses.dataclass(frozen=True)
class Config:
  alpha: float = field(10.0, 'weight of the loss on generated features (code 10)', low=0.0)
  beta: float = field(
    10.0, 'weight of the pull towards generated predictions (code 10 or 1)', low=0.0
  )
  decay: float = field(0.98, 'factor on both weights per round (code 0.98)', above=0.0, high=1.0)
  diversity: float = field(1.0, "weight of the generator's diversity loss (code 1)", low=0.0)
  steps: int = field(50, "the generator's steps in a round (code 50)", low=1, high=10**6)
  batch_size: int = field(
    32, "generated samples in the generator's step (code 32)", low=1, high=10_000
  )
  lr: float = field(3e-4, "the generator's rate, Adam (code 3e-4)", above=0.0)
  weight_decay: float = field(1e-2, "L2 on the generator's weights (code 1e-2)", low=0.0)
  noise: int = field(32, 'uniform noise per sample (code 32)', low=1, high=10**5)
  hidden: int = field(256, "the generator's hidden units (code 256)", low=1, high=10**5)


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


def ensemble_loss(logits: Array, y: Array, counts: Array) -> Array:
  """The clients' cross-entropy on generated features, each label weighed by who holds it.

  Args:
    logits: [slots, batch, classes], each client's head on the generated features.
    y: [batch], the labels that were generated for.
    counts: [slots, classes], samples of each label at each client.

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


def fedgen(base: Method | None = None, **fields) -> Method:
  """Trains G(y, eps) so that the clients' heads see y in it, and local models to agree with it.

  On a client, from round 2 on: CE + alpha CE(head(G(y')), y') + beta KL(p(head(G(y))) || p(x)), y' uniform and y
  the batch's own labels, no gradient through the second term's target; both weights times decay^(round - 1).

  Args:
    base: a method that trains locally; FedAvg by default.
    **fields: see `Config`; alpha = beta = 0 is the base itself.

  Returns:
    The method. Clients send their label counts, and use the generator by the running moments of its batch norm: by
    those of a batch of one class its label would cancel. Labels for the generator are drawn in proportion to
    how many clients of the round hold them.

  Raises:
    TypeError: if a field does not exist.
  """
  c = Config(**fields)
  base = base or fedavg()

  def build_generator(task):
    image = jax.ShapeDtypeStruct((1, *task.data.x.shape[1:]), task.data.mean.dtype)
    variables = jax.eval_shape(task.model.init, jax.random.key(0))
    features = jax.eval_shape(lambda v, x: task.model.apply(v, x).features, variables, image)
    return generator(
      noise=c.noise, hidden=c.hidden, features=features.shape[-1], num_classes=task.num_classes
    )

  def client(task):
    g, h = build_generator(task), task.hyper['fedgen']

    def prepare(visit):
      sent = visit.broadcast['fedgen']
      return sent, sent.trained * h['decay'] ** (visit.round - 1.0)

    def loss(ctx, loss_fn):
      weights, factor = ctx

      def regularised(params, step):
        value, out = loss_fn(params, step)
        batch, total = step.y.shape[0], jnp.maximum(step.mask.sum(), 1)
        noise = jax.random.uniform(fold(step.key, 0), (2, batch, g.noise))
        other = jax.random.randint(fold(step.key, 0, 1), (batch,), 0, task.num_classes)
        made = lambda y, eps: g.apply(weights.generator, y, eps, weights.moments)[0]
        generated = task.model.head(params, made(other, noise[0]))
        teacher = optax.softmax_cross_entropy_with_integer_labels(generated, other).mean()
        same = task.model.head(params, made(step.y, noise[1]))
        target = jax.nn.softmax(jax.lax.stop_gradient(same))
        pull = optax.losses.kl_divergence(jax.nn.log_softmax(out.logits), target)
        pull = jnp.sum(pull * step.mask) / total
        return value + factor * (h['alpha'] * teacher + h['beta'] * pull), out

      return regularised

    def finish(ctx, visit, trained, steps):
      return visit.shard.class_counts.astype(task.data.mean.dtype), None

    return ClientTransform('fedgen', prepare=prepare, loss=loss, finish=finish)

  def server(task):
    g, h = build_generator(task), task.hyper['fedgen']
    optimizer = optax.chain(optax.add_decayed_weights(c.weight_decay), optax.adam(h['lr']))

    def init(key, params, enrolled):
      weights = g.init(key)
      moments = Moments(jnp.zeros(c.hidden), jnp.ones(c.hidden))
      return Server(weights, moments, jnp.zeros(()), optimizer.init(weights), jnp.zeros(()))

    def update(key, round, state, before, new, messages):
      clients = models.of_round(before.params, messages)
      counts = messages.body['fedgen'] * clients.present[:, None]
      holders = (counts > 0).sum(axis=0)

      def objective(weights, key):
        y = jax.random.categorical(fold(key, 0), jnp.log(holders), shape=(c.batch_size,))
        noise = jax.random.uniform(fold(key, 0, 1), (c.batch_size, g.noise))
        z, moments = g.apply(weights, y, noise)
        logits = jax.vmap(task.model.head, (0, None))(clients.variables.params, z)
        loss = ensemble_loss(logits, y, counts) + h['diversity'] * diversity_loss(noise, z)
        return loss, moments

      def step(carry, i):
        weights, moments, opt_state = carry
        (value, batch), grads = jax.value_and_grad(objective, has_aux=True)(weights, fold(key, i))
        updates, opt_state = optimizer.update(grads, opt_state, weights)
        moments = running(moments, batch, c.batch_size)
        return (optax.apply_updates(weights, updates), moments, opt_state), value

      start = (state.generator, state.moments, state.opt_state)
      (*made, opt_state), losses = jax.lax.scan(step, start, jnp.arange(c.steps))
      trained = Server(*made, jnp.ones(()), opt_state, losses[-1])
      return new, jax.tree.map(lambda t, s: jnp.where(holders.sum() > 0, t, s), trained, state)

    return ServerTransform(
      'fedgen',
      init=init,
      broadcast=lambda state: Broadcast(state.generator, state.moments, state.trained),
      update=update,
      metrics=lambda state: {'loss': state.loss},
    )

  rates = {name: getattr(c, name) for name in ('alpha', 'beta', 'decay', 'diversity', 'lr')}
  return base.extend(
    'fedgen',
    client=client,
    server=server,
    every_message=True,
    needs=('one_class', 'pixels'),
    hyper=rates,
  )
