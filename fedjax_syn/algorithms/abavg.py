"""ABAVG: clients weigh by their accuracy on labelled server data (Xiao et al., 2021)."""

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_syn.core.fields import field
from fedjax_syn.layer import Layer
from fedjax_syn.server import models


class ABAVG(Layer):
  """Averages the clients' models with weights acc_i / sum_j acc_j.

  It needs server data with labels (data.proxy='held_out'). If no client has any sample right, all weigh the same.
  Running statistics are averaged by FedAvg's weights. Deviation: the released code of DynaFed measures the accuracy on
  one batch of test data; here no test row is seen.
  """

  rows: int = field(
    default=0,
    help="server samples that decide, evenly from all; 0: all (DynaFed's code: a batch)",
    low=0,
    high=10**9,
  )

  def requires(self):
    return frozenset({'individual updates'})

  def server_data(self):
    return 'labels'

  def aggregate(self, round):
    clients = models.of_round(round.params, round.messages)
    proxy = round.task.data.proxy
    total_rows = len(proxy.y)
    rows = min(self.rows or total_rows, total_rows)
    evenly = np.arange(rows) * total_rows // rows  # rows may be sorted by class
    x, y = proxy.x[evenly], proxy.y[evenly]
    accuracy = models.accuracy(round.task, clients.variables, x, y) * clients.present
    total, present = accuracy.sum(), clients.present.sum()
    weights = jnp.where(
      total > 0,
      accuracy / jnp.where(total > 0, total, 1),
      clients.present / jnp.maximum(present, 1),
    )
    deltas = round.messages.payload['params']
    new = jax.tree.map(lambda w, d: w + jnp.tensordot(weights, d, 1), round.params, deltas)
    return new, {'client_accuracy': total / jnp.maximum(present, 1)}
