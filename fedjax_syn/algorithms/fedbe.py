"""FedBE: distillation from an ensemble sampled around the clients' models (Chen and Chao, 2021, Algorithm 1)."""

import dataclasses

import jax
import jax.numpy as jnp
import optax

from fedjax_syn.algorithms.fedavg import fedavg
from fedjax_syn.fields import field
from fedjax_syn.keys import fold
from fedjax_syn.method import Method, ServerTransform
from fedjax_syn.server import models
from fedjax_syn.server.distill import distil
from fedjax_syn.typing import Array, Params, PRNGKey, Variables


@dataclasses.dataclass(frozen=True)
class Config:
  samples: int = field(10, 'models drawn from the Gaussian (paper and code 10)', low=0, high=10_000)
  scale: float = field(0.1, "factor on the Gaussian's variance (paper 1, code 0.1)", low=0.0)
  sharpen: float = field(2.0, "power on the teacher's probabilities (code 1 / 0.5)", above=0.0)
  steps: int = field(100, 'distillation steps in a round (code 20 passes)', low=1, high=10**6)
  average_from: float = field(
    0.5,
    'share of the steps after which the weights are averaged (code: from step 500)',
    low=0.0,
    high=1.0,
  )
  average_every: int = field(5, 'steps between averaged weights (code 25)', low=1, high=10**9)
  lr: float = field(1e-3, 'rate of the distillation, SGD with momentum 0.9 (paper 1e-3)', above=0.0)
  batch_size: int = field(128, 'server samples in a step (paper 128)', low=1, high=10**9)


def gaussian_models(
  key: PRNGKey, clients: models.ClientModels, weight: Array, samples: int, scale
) -> Params:
  """Draws models from the diagonal Gaussian with the mean and variance of the clients' parameters.

  Args:
    key: for the draws.
    clients: the round's models.
    weight: [slots], as in the average: the clients' sizes (the paper's |D_i|), or 1; 0 for an absent one.
    samples: how many.
    scale: factor on the variance.

  Returns:
    Parameters, leaves [samples, ...]. Source: FedBE, Eq. 8.
  """
  share = weight / jnp.maximum(weight.sum(), 1)
  leaves, structure = jax.tree.flatten(clients.variables.params)

  def draw(i, leaf):
    mean = jnp.tensordot(share, leaf, 1)
    spread = jnp.sqrt(scale * jnp.tensordot(share, (leaf - mean[None]) ** 2, 1))
    noise = jax.random.normal(fold(key, i), (samples, *mean.shape), leaf.dtype)
    return mean[None] + spread[None] * noise

  return jax.tree.unflatten(structure, [draw(i, leaf) for i, leaf in enumerate(leaves)])


def sharpened_mean(logits: Array, weights: Array, power: float) -> Array:
  """Averages class probabilities over models and sharpens the average.

  Args:
    logits: [models, rows, classes].
    weights: [models], of the models in the average.
    power: on the probabilities, before they are normalised again.

  Returns:
    Class probabilities [rows, classes].
  """
  p = jnp.tensordot(weights / jnp.maximum(weights.sum(), 1), jax.nn.softmax(logits), 1) ** power
  return p / jnp.maximum(p.sum(axis=-1, keepdims=True), jnp.finfo(p.dtype).tiny)


def fedbe(base: Method | None = None, **fields) -> Method:
  """Distils the averaged model from sampled models, the clients' own and itself, after every round.

  Args:
    base: the method whose average is the student; FedAvg by default.
    **fields: see `Config`.

  Returns:
    The method. It needs server data without labels (`data.proxy`). Mean and variance of the Gaussian are by the weights of the
    average (`server.weighting`; the paper's are sizes). Deviations: the Gaussian is that of
    the parameters, as in the paper, where the code takes directions of unit norm; the KL divergence is
    averaged over the batch, where the code divides by the classes too; the rate stays the same
    where the code has a cyclical one.

  Raises:
    TypeError: if a field does not exist.
  """
  c = Config(**fields)
  base = base or fedavg()

  def server(task):
    h = task.hyper['fedbe']

    def update(key, round, state, before, new, messages):
      clients = models.of_round(before.params, messages)
      stats = messages.mean('stats')
      drawn = gaussian_models(fold(key, 0), clients, messages.weight, c.samples, h['scale'])
      params = jax.tree.map(
        lambda drawn, own, mean: jnp.concatenate([drawn, own, mean[None]]),
        drawn,
        clients.variables.params,
        new,
      )
      copies = lambda mean: jnp.broadcast_to(mean, (c.samples, *mean.shape))
      weights = jnp.concatenate([jnp.ones(c.samples), clients.present, jnp.ones(1)])
      statistics = jax.tree.map(
        lambda own, mean: jnp.concatenate([copies(mean), own, mean[None]]),
        clients.variables.stats,
        stats,
      )

      def teacher(x):
        logits = models.logits(task, Variables(params, statistics), x)
        return sharpened_mean(logits, weights, c.sharpen)

      student, loss = distil(
        fold(key, 0, 1),
        task,
        teacher,
        new,
        stats,
        optax.sgd(h['lr'], momentum=0.9),
        steps=c.steps,
        batch_size=c.batch_size,
        average_from=min(int(c.average_from * c.steps), c.steps - 1),
        average_every=c.average_every,
      )
      anyone = clients.present.sum() > 0
      return jax.tree.map(lambda s, n: jnp.where(anyone, s, n), student, new), loss

    return ServerTransform(
      'fedbe',
      init=lambda key, params, enrolled: jnp.zeros(()),
      update=update,
      metrics=lambda loss: {'loss': loss},
    )

  return base.extend(
    'fedbe',
    server=server,
    every_message=True,
    proxy='images',
    needs=('one_class',),
    hyper={'lr': c.lr, 'scale': c.scale},
  )
