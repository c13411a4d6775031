"""FedDF: the clients' mean logits are distilled (Lin et al., 2020, Algorithm 1)."""

import jax
import jax.numpy as jnp
import optax

from fedjax_syn.core.fields import field
from fedjax_syn.core.types import Array, Variables
from fedjax_syn.layer import Layer
from fedjax_syn.server import models
from fedjax_syn.server.distill import distil


class FedDF(Layer):
  """Distils softmax(mean of the clients' logits) into the averaged model after every round.

  It needs server data (`data.proxy`), with labels only for `keep_best`. The paper stops early by
  labelled validation data, and keeps the best student. With `keep_best`, the layer keeps the most
  accurate one, on the server's samples, of the average and the students after every `check_every`
  steps. Without it, the layer keeps the last student, however bad the teacher: with clients of one
  or two classes the mean logits are often worse than the averaged model.
  """

  steps: int = field(100, 'distillation steps in a round (paper: up to 10,000)', low=1, high=10**6)
  lr: float = field(1e-3, 'distillation rate, Adam, to zero by a cosine (paper 1e-3)', above=0.0)
  batch_size: int = field(
    128, 'server samples in a distillation step (paper 128)', low=1, high=10**9
  )
  keep_best: bool = field(False, 'keep the best student by labels (paper: early stopping)')
  check_every: int = field(20, 'steps between checks of keep_best (paper 100)', low=1, high=10**9)

  def requires(self):
    return frozenset({'individual updates', 'one class'})

  def server_data(self):
    return 'labels' if self.keep_best else 'images'

  def server_init(self, task, key, params, messages):
    return jnp.zeros(())  # the loss of the last step

  def server_update(self, round, new):
    task, stats = round.task, round.messages.mean('stats')
    clients = models.of_round(round.params, round.messages)

    def score(w):
      one = jax.tree.map(lambda leaf: leaf[None], Variables(w, stats))
      return models.accuracy(task, one, *task.data.proxy)[0]

    student, loss = distil(
      round.key,
      task,
      lambda x: ensemble(models.logits(task, clients.variables, x), clients.present),
      new,
      stats,
      optax.adam(optax.cosine_decay_schedule(self.lr, self.steps)),
      steps=self.steps,
      batch_size=self.batch_size,
      score=score if self.keep_best else None,
      score_every=self.check_every,
    )
    anyone = clients.present.sum() > 0
    return jax.tree.map(lambda s, n: jnp.where(anyone, s, n), student, new), loss

  def server_metrics(self, loss):
    return {'loss': loss}


def ensemble(logits: Array, present: Array) -> Array:
  """Averages logits over models, then takes the softmax.

  Args:
    logits: [models, rows, classes].
    present: [models], 1 for a model that counts, else 0.

  Returns:
    The teacher's class probabilities [rows, classes]. Source: FedDF, Algorithm 1, line 10.
  """
  share = present / jnp.maximum(present.sum(), 1)
  return jax.nn.softmax(jnp.tensordot(share, logits, axes=1))
