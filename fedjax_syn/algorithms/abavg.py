"""ABAVG: clients weigh by their accuracy on labelled server data (Xiao et al., 2021)."""

import jax
import jax.numpy as jnp

from fedjax_syn.layer import Layer
from fedjax_syn.server import models


class ABAVG(Layer):
  """Averages the clients' models with weights acc_i / sum_j acc_j.

  It needs server data with labels (data.proxy='held_out'). If all accuracies are 0, all clients
  weigh the same. Running statistics are averaged by FedAvg's weights. Deviation: the accuracy is
  that on all server data, where the released code of DynaFed takes one batch of test data.
  """

  def requires(self):
    return frozenset({'individual updates'})

  def server_data(self):
    return 'labels'

  def aggregate(self, round):
    clients = models.of_round(round.params, round.messages)
    x, y = round.task.data.proxy
    accuracy = models.accuracy(round.task, clients.variables, x, y) * clients.present
    total, present = accuracy.sum(), clients.present.sum()
    by_accuracy = accuracy / jnp.where(total > 0, total, 1)
    weights = jnp.where(total > 0, by_accuracy, clients.present / jnp.maximum(present, 1))
    deltas = round.messages.payload['params']
    new = jax.tree.map(lambda w, d: w + jnp.tensordot(weights, d, 1), round.params, deltas)
    return new, {'client_accuracy': total / jnp.maximum(present, 1)}
