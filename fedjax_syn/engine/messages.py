"""What one client would send in the next round, by itself: to look at it, not to go on from it."""

import functools
from collections.abc import Callable

import jax
import numpy as np

from fedjax_syn.data import federated
from fedjax_syn.engine.clients import run_one
from fedjax_syn.engine.visits import close, downlink, first_round_of, servers_of
from fedjax_syn.keys import Purpose, fold, stream
from fedjax_syn.method import Message, Method, State, Task, Visit
from fedjax_syn.typing import Hyper


def make_message(
  method: Method,
  task_of: Callable[[federated.FederatedData, Hyper, int], Task],
  data: federated.FederatedData,
  hyper: Hyper,
) -> Callable[[int, State, int], Message]:
  """Returns a function that runs one visit of the next round.

  Args:
    method: what is done.
    task_of: (data, hyper, first round of a phase) -> Task.
    data: the partitioned training set.
    hyper: numbers that change no shape.

  Returns:
    (seed, state, client) -> the message that the client sends in round `state.round` + 1 if it is sampled;
    random numbers are the round's. The state is not consumed.
  """

  @functools.partial(jax.jit, static_argnums=6)
  def visit_once(seed, state, row, client, data, hyper, first_round):
    task = task_of(data, hyper, first_round)
    number = state.round + 1
    key = stream(seed, Purpose.SHARED, number)
    sent, alike = downlink(servers_of(method, task), key, number, state)
    visit = Visit(
      key=fold(stream(seed, Purpose.CLIENT, number), client),
      round=number,
      params=state.params,
      stats=state.stats,
      broadcast=sent | alike,
      state=row,
      shard=federated.shard_of(data, client),
    )
    return run_one(close(method, task), visit)[0]

  def message(seed, state, client):
    row = jax.tree.map(lambda leaf: leaf[client], state.clients)
    first_round = first_round_of(method, int(state.round))
    operands = np.int32(seed), state._replace(clients={}), row, np.int32(client), data, hyper
    return visit_once(*operands, first_round)

  return message
