"""What goes down to the clients of a round, and the context that each of them makes of it."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedjax_syn.chains import Chain
from fedjax_syn.core.contexts import ClientContext, State, Task
from fedjax_syn.core.keys import fold
from fedjax_syn.core.types import Array, Params, PRNGKey, PyTree, Stats, Variables
from fedjax_syn.data import federated


class RoundInputs(NamedTuple):
  """What the clients of a round read, the same on every device."""

  key: PRNGKey  # of the round; every client folds its number into it
  round: Array  # []
  chain: Chain
  data: federated.FederatedData
  params: Params
  stats: Stats
  broadcast: dict[str, PyTree]  # by layer
  state: dict[str, PyTree]  # of the sampled clients, by layer, leaves [cohort, ...]
  sampled: Array  # [cohort], client numbers


def client_context(inputs: RoundInputs, slot: Array) -> ClientContext:
  """Returns the context of one sampled client.

  Args:
    inputs: what the round's clients read.
    slot: [], which of the sampled clients; one beyond the last gives a client without samples.

  Returns:
    The context, with parts by layer.
  """
  num_clients, cohort_size = inputs.data.start.shape[0], inputs.sampled.shape[0]
  row = jnp.minimum(slot, cohort_size - 1)
  client = jnp.where(slot < cohort_size, inputs.sampled[row], num_clients)
  return ClientContext(
    key=fold(inputs.key, client),
    round=inputs.round,
    params=inputs.params,
    stats=inputs.stats,
    shard=federated.shard_of(inputs.data, client),
    broadcast=inputs.broadcast,
    state=jax.tree.map(lambda leaf: leaf[row], inputs.state),
  )


def downlink(
  task: Task, key: PRNGKey, number: Array, state: State
) -> tuple[dict[str, PyTree], dict[str, PyTree]]:
  """Collects what clients get beside the model.

  Args:
    task: the experiment.
    key: for what all clients compute alike.
    number: the round, [].
    state: before the round.

  Returns:
    By layer: what is sent, and what every client computes by itself, which costs no bytes.
  """
  having = task.chain.having('broadcast', task)
  sent = {layer.name: layer.broadcast(state.server.get(layer.name)) for layer in having}
  w, common = Variables(state.params, state.stats), task.chain.having('common', task)
  alike = {
    layer.name: layer.common(task, fold(key, i), number, w)
    for i, layer in enumerate(task.chain.on_server)
    if layer in common
  }
  for name in sent.keys() & alike.keys():
    raise ValueError(
      f'{name!r} has both broadcast and common, and client.broadcast is one of them: leave one out'
    )
  return sent, alike
