"""FedDF: the averaged model is distilled from the clients' mean logits on server data (Lin et al., 2020, Algorithm 1)."""

import dataclasses

import jax
import jax.numpy as jnp
import optax

from fedjax_syn.algorithms.fedavg import fedavg
from fedjax_syn.fields import field
from fedjax_syn.method import Method, ServerTransform
from fedjax_syn.server import models
from fedjax_syn.server.distill import distil
from fedjax_syn.typing import Array


@dataclasses.dataclass(frozen=True)
class Config:
  steps: int = field(
    100, 'distillation steps in a round (paper: up to 10,000, stopped early)', low=1
  )
  lr: float = field(
    1e-3, 'rate of the distillation, Adam, to zero by a cosine (paper 1e-3)', above=0.0
  )
  batch_size: int = field(128, 'server samples in a step (paper 128)', low=1)


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


def feddf(
  base: Method | None = None, *, steps: int = 100, lr: float = 1e-3, batch_size: int = 128
) -> Method:
  """Distils softmax(mean of the clients' logits) into the averaged model after every round.

  Args:
    base: the method whose average is the student; FedAvg by default.
    steps: distillation steps in a round.
    lr: rate of Adam at first; 0 is the base itself.
    batch_size: server samples in a step.

  Returns:
    The method. It needs server data without labels (`data.proxy`). Deviation: a fixed number of steps
    and the last student, where the paper stops early by, and keeps the best on, labelled validation data.
  """
  base = base or fedavg()

  def server(task):
    def update(key, round, state, before, new, messages):
      clients = models.of_round(before.params, messages)
      teacher = lambda x: ensemble(models.logits(task, clients.variables, x), clients.present)
      optimizer = optax.adam(optax.cosine_decay_schedule(task.hyper['feddf']['lr'], steps))
      student, loss = distil(
        key,
        task,
        teacher,
        new,
        messages.mean('stats'),
        optimizer,
        steps=steps,
        batch_size=batch_size,
      )
      anyone = clients.present.sum() > 0
      return jax.tree.map(lambda s, n: jnp.where(anyone, s, n), student, new), loss

    return ServerTransform(
      'feddf',
      init=lambda key, params, enrolled: jnp.zeros(()),
      update=update,
      metrics=lambda loss: {'loss': loss},
    )

  return base.extend('feddf', server=server, every_message=True, proxy='images', hyper={'lr': lr})
