"""FedBE: distils models drawn around the clients' models (Chen and Chao, 2021, Algorithm 1)."""

import jax
import jax.numpy as jnp
import optax

from fedjax_syn.core.fields import field
from fedjax_syn.core.keys import fold
from fedjax_syn.core.types import Array, Params, PRNGKey, Variables
from fedjax_syn.layer import Layer
from fedjax_syn.server import models
from fedjax_syn.server.distill import distil

SHARPEN = 2.0  # power on the teacher's probabilities (code 1 / 0.5)
AVERAGE_EVERY = 5  # steps between averaged weights


class FedBE(Layer):
  """Distils an ensemble into the averaged model after every round.

  The ensemble has the clients' models, their average, and models drawn from a Gaussian whose mean
  and variance are those of the clients' parameters by the weights of the average
  (`server.weighting`; the paper's are sizes). The layer needs server data without labels
  (`data.proxy`).

  Deviations: the Gaussian is over parameters, as in the paper; the code takes directions of unit
  norm. The KL divergence is a mean over the batch; the code also divides by the number of classes.
  The rate is constant; the code's is cyclical. Weights are averaged from half of the steps on
  (code: from step 500), every 5 (code: 25).
  """

  samples: int = field(10, 'models drawn from the Gaussian (paper 10)', low=0, high=10_000)
  scale: float = field(0.1, "factor on the Gaussian's variance (paper 1, code 0.1)", low=0.0)
  steps: int = field(100, 'distillation steps in a round (code 20 passes)', low=1, high=10**6)
  lr: float = field(1e-3, 'distillation rate, SGD with momentum 0.9 (paper 1e-3)', above=0.0)
  batch_size: int = field(
    128, 'server samples in a distillation step (paper 128)', low=1, high=10**9
  )

  def requires(self):
    return frozenset({'individual updates', 'one class'})

  def server_data(self):
    return 'images'

  def server_init(self, task, key, params, messages):
    return jnp.zeros(())  # the loss of the last step

  def server_update(self, round, new):
    task, stats = round.task, round.messages.mean('stats')
    clients = models.of_round(round.params, round.messages)
    ensemble, weights = self._ensemble(round, clients, Variables(new, stats))
    student, loss = distil(
      fold(round.key, 0, 1),
      task,
      lambda x: sharpened_mean(models.logits(task, ensemble, x), weights, SHARPEN),
      new,
      stats,
      optax.sgd(self.lr, momentum=0.9),
      steps=self.steps,
      batch_size=self.batch_size,
      average_from=self.steps // 2,
      average_every=AVERAGE_EVERY,
    )
    anyone = clients.present.sum() > 0
    return jax.tree.map(lambda s, n: jnp.where(anyone, s, n), student, new), loss

  def server_metrics(self, loss):
    return {'loss': loss}

  def _ensemble(self, round, clients, mean) -> tuple[Variables, Array]:
    """Returns drawn models, the clients' and their mean, [models, ...], and weights [models]."""
    drawn = gaussian_models(
      fold(round.key, 0), clients, round.messages.weight, self.samples, self.scale
    )
    join = lambda drawn, own, mean: jnp.concatenate([drawn, own, mean[None]])
    copies = lambda mean: jnp.broadcast_to(mean, (self.samples, *mean.shape))
    params = jax.tree.map(join, drawn, clients.variables.params, mean.params)
    drawn_stats = jax.tree.map(copies, mean.stats)
    stats = jax.tree.map(join, drawn_stats, clients.variables.stats, mean.stats)
    weights = jnp.concatenate([jnp.ones(self.samples), clients.present, jnp.ones(1)])
    return Variables(params, stats), weights


def gaussian_models(
  key: PRNGKey, clients: models.ClientModels, weight: Array, samples: int, scale: Array | float
) -> Params:
  """Draws models from the diagonal Gaussian with the mean and variance of the clients' parameters.

  Args:
    key: for the draws.
    clients: the round's models.
    weight: [cohort], as in the average: the clients' sizes (the paper's |D_i|), or 1; 0 for an
      absent one.
    samples: how many.
    scale: factor on the variance.

  Returns:
    Parameters, leaves [samples, ...]. Source: FedBE, Eq. 8.
  """
  share = weight / jnp.maximum(weight.sum(), 1)
  leaves, structure = jax.tree.flatten(clients.variables.params)

  def draw(i, leaf):
    mean = jnp.tensordot(share, leaf, 1)
    deviation = jnp.sqrt(scale * jnp.tensordot(share, (leaf - mean[None]) ** 2, 1))
    noise = jax.random.normal(fold(key, i), (samples, *mean.shape), leaf.dtype)
    return mean[None] + deviation[None] * noise

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
