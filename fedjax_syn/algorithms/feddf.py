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
from fedjax_syn.typing import Array, Variables


@dataclasses.dataclass(frozen=True)
class Config:
  steps: int = field(
    100, 'distillation steps in a round (paper: up to 10,000, stopped early)', low=1, high=10**6
  )
  lr: float = field(
    1e-3, 'rate of the distillation, Adam, to zero by a cosine (paper 1e-3)', above=0.0
  )
  batch_size: int = field(128, 'server samples in a step (paper 128)', low=1, high=10**9)
  keep_best: bool = field(
    False,
    'keep the best student, the average among them, by labels of the server data (paper: early stopping)',
  )
  check_every: int = field(
    20, 'steps between the looks of keep_best (paper 100)', low=1, high=10**9
  )


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
  base: Method | None = None,
  *,
  steps: int = 100,
  lr: float = 1e-3,
  batch_size: int = 128,
  keep_best: bool = False,
  check_every: int = 20,
) -> Method:
  """Distils softmax(mean of the clients' logits) into the averaged model after every round.

  Args:
    base: the method whose average is the student; FedAvg by default.
    steps: distillation steps in a round.
    lr: rate of Adam at first; 0 is the base itself.
    batch_size: server samples in a step.
    keep_best: of the average and the student after every `check_every` steps, keep the one that is right
      most often on the server's samples, whose labels are needed then.
    check_every: see above.

  Returns:
    The method. It needs server data (`data.proxy`), with labels only for `keep_best`. The paper stops early
    by, and keeps the best on, labelled validation data: `keep_best` is that. Without it a fixed
    number of steps is taken and the last student kept, however bad the teacher: with clients of one or
    two classes the clients' mean logits are often worse than the averaged model.
  """
  base = base or fedavg()
  needed = 'labels' if keep_best else 'images'

  def server(task):
    def update(key, round, state, before, new, messages):
      clients = models.of_round(before.params, messages)
      teacher = lambda x: ensemble(models.logits(task, clients.variables, x), clients.present)

      def score(w):
        one = jax.tree.map(lambda leaf: leaf[None], Variables(w, messages.mean('stats')))
        return models.accuracy(task, one, *task.data.proxy)[0]

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
        score=score if keep_best else None,
        score_every=check_every,
      )
      anyone = clients.present.sum() > 0
      return jax.tree.map(lambda s, n: jnp.where(anyone, s, n), student, new), loss

    return ServerTransform(
      'feddf',
      init=lambda key, params, enrolled: jnp.zeros(()),
      update=update,
      metrics=lambda loss: {'loss': loss},
    )

  return base.extend(
    'feddf', server=server, every_message=True, proxy=needed, needs=('one_class',), hyper={'lr': lr}
  )
