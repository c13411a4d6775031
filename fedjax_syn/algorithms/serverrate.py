"""ServerRate: a learning rate of the server, with a schedule over rounds."""

import jax

from fedjax_syn.core.fields import field
from fedjax_syn.core.schedules import schedule
from fedjax_syn.layer import Layer


class ServerRate(Layer):
  """Moves the global model by eta s(c) of what the layers before it computed in round c.

  s is the schedule. After FedOpt it is a schedule on FedOpt's rate.
  """

  lr: float = field(1.0, 'eta, factor on the update; 1: the whole update', low=0.0)
  schedule: str = field('', 's, factor on lr by round: names as in client.schedule')

  def check(self):
    schedule(self.schedule, 0, 'serverrate.schedule')

  def server_update(self, round, new):
    factor = schedule(self.schedule, round.task.rounds, 'serverrate.schedule')
    rate = self.lr * factor(round.round)
    move = lambda w, n: w + rate.astype(w.dtype) * (n - w)
    return jax.tree.map(move, round.params, new), round.state
