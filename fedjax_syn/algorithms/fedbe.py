"""FedBE: distillation from an ensemble sampled around the clients' models (Chen and Chao, 2021, Algorithm 1)."""

import jax
import jax.numpy as jnp
import optax

from fedjax_syn.core.fields import field
from fedjax_syn.core.keys import fold
from fedjax_syn.core.types import Array, Params, PRNGKey, Variables
from fedjax_syn.layer import Layer
from fedjax_syn.server import models
from fedjax_syn.server.distill import distil


class FedBE(Layer):
  """Distils the averaged model from sampled models, the clients' own and itself, after every round.

  It needs server data without labels (`data.proxy`). Mean and variance of the Gaussian are by the weights of the
  average (`server.weighting`; the paper's are sizes).

  Deviations: the Gaussian is that of the parameters, as in the paper, where the code takes directions of unit norm; the
  KL divergence is averaged over the batch, where the code divides by the classes too; the rate stays the same where the
  code has a cyclical one.
  """

  samples: int = field(
    default=10, help='models drawn from the Gaussian (paper and code 10)', low=0, high=10_000
  )
  scale: float = field(
    default=0.1, help="factor on the Gaussian's variance (paper 1, code 0.1)", low=0.0
  )
  sharpen: float = field(
    default=2.0,
    help="power on the teacher's probabilities (code 1 / 0.5)",
    above=0.0,
    static=True,  # p ** 2.0 is p * p only where the compiler knows the power
  )
  steps: int = field(
    default=100, help='distillation steps in a round (code 20 passes)', low=1, high=10**6
  )
  average_from: float = field(
    default=0.5,
    help='share of the steps after which the weights are averaged (code: from step 500)',
    low=0.0,
    high=1.0,
    static=True,
  )
  average_every: int = field(
    default=5, help='steps between averaged weights (code 25)', low=1, high=10**9
  )
  lr: float = field(
    default=1e-3, help='rate of the distillation, SGD with momentum 0.9 (paper 1e-3)', above=0.0
  )
  batch_size: int = field(
    default=128, help='server samples in a step (paper 128)', low=1, high=10**9
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
      lambda x: sharpened_mean(models.logits(task, ensemble, x), weights, self.sharpen),
      new,
      stats,
      optax.sgd(self.lr, momentum=0.9),
      steps=self.steps,
      batch_size=self.batch_size,
      average_from=min(int(self.average_from * self.steps), self.steps - 1),
      average_every=self.average_every,
    )
    anyone = clients.present.sum() > 0
    return jax.tree.map(lambda s, n: jnp.where(anyone, s, n), student, new), loss

  def server_metrics(self, loss):
    return {'loss': loss}

  def _ensemble(self, round, clients, mean) -> tuple[Variables, Array]:
    """Returns the drawn models, the clients' own and their mean, leaves [models, ...], and their weights [models]."""
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
    weight: [cohort], as in the average: the clients' sizes (the paper's |D_i|), or 1; 0 for an absent one.
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
