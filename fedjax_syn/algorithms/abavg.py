"""ABAVG: clients weigh by their accuracy on labelled server data (Xiao et al., 2021)."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_syn.algorithms.fedavg import fedavg
from fedjax_syn.fields import field
from fedjax_syn.method import Method
from fedjax_syn.server import models


@dataclasses.dataclass(frozen=True)
class Config:
  rows: int = field(
    0,
    "server samples that decide, evenly from all; 0: all (DynaFed's code: a batch)",
    low=0,
    high=10**9,
  )


def abavg(base: Method | None = None, *, rows: int = 0) -> Method:
  """Averages the clients' models with weights acc_i / sum_j acc_j.

  Args:
    base: the method whose average is replaced; FedAvg by default.
    rows: server samples that the accuracies are measured on; 0 is all.

  Returns:
    The method. It needs server data with labels (`data.proxy = 'held_out'`). If no client has any sample
    right, all weigh the same. The released code of DynaFed measures the accuracy on one batch of test data;
    here no test row is seen. Running statistics are averaged by the base's weights.
  """
  base = base or fedavg()

  def aggregate(task):
    def mean(key, old, messages):
      clients = models.of_round(old, messages)
      there = len(task.data.proxy.y)
      count = min(rows or there, there)
      picked = np.arange(count) * there // count  # rows may be sorted by class
      x, y = task.data.proxy.x[picked], task.data.proxy.y[picked]
      accuracy = models.accuracy(task, clients.variables, x, y) * clients.present
      total, present = accuracy.sum(), clients.present.sum()
      weights = jnp.where(
        total > 0,
        accuracy / jnp.where(total > 0, total, 1),
        clients.present / jnp.maximum(present, 1),
      )
      new = jax.tree.map(
        lambda w, delta: w + jnp.tensordot(weights, delta, 1), old, messages.body['params']
      )
      return new, {'abavg/client_accuracy': total / jnp.maximum(present, 1)}

    return mean

  return base.extend('abavg', aggregate=aggregate, every_message=True, proxy='labels')
