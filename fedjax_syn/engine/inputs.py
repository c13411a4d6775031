"""What the server sends to the clients of a round, and the context of each of them."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedjax_syn.chains import Chain
from fedjax_syn.core.contexts import ClientContext, State, Task
from fedjax_syn.core.keys import fold
from fedjax_syn.core.types import Array, PRNGKey, PyTree, Variables
from fedjax_syn.data import federated


class RoundInputs(NamedTuple):
  """What the clients of a round read, the same on every device."""

  chain: Chain
  data: federated.FederatedData
  sampled: Array
  """[cohort], client numbers."""
  common: ClientContext
  """The round's key, no shard, and the state of all sampled clients, leaves [cohort, ...]."""
  split: Any = None
  """Test rows, where clients measure their models."""


def round_inputs(
  task: Task, key: PRNGKey, common_key: PRNGKey, number: Array, state: State, sampled: Array
) -> RoundInputs:
  """Returns what the clients of a round read.

  Args:
    task: the experiment.
    key: of the round; every client folds its number into it.
    common_key: for what all clients compute alike.
    number: the round, [].
    state: before the round; its clients are the sampled ones, leaves [cohort, ...].
    sampled: client numbers, [cohort].
  """
  sent, w = broadcasts(task, state), Variables(state.params, state.stats)
  common = {
    layer.name: layer.common(task, fold(common_key, i), number, w)
    for i, layer in task.chain.numbered('common', task)
  }
  for name in sent.keys() & common.keys():
    raise ValueError(
      f'{name!r} has both broadcast and common, and client.broadcast is one of them: leave one out'
    )
  nobody: Any = None
  context = ClientContext(
    key, number, state.params, state.stats, nobody, sent | common, state.clients
  )
  return RoundInputs(task.chain, task.data, sampled, context)


def broadcasts(task: Task, state: State) -> dict[str, PyTree]:
  """Returns what the server sends beside the model, by layer."""
  having = task.chain.having('broadcast', task)
  return {layer.name: layer.broadcast(state.server.get(layer.name)) for layer in having}


def client_context(inputs: RoundInputs, position: Array) -> ClientContext:
  """Returns the context of one sampled client, with parts by layer.

  Args:
    inputs: what the round's clients read.
    position: [], in the cohort; one beyond the last gives a client without samples.
  """
  cohort_size = inputs.sampled.shape[0]
  row = jnp.minimum(position, cohort_size - 1)
  client = jnp.where(position < cohort_size, inputs.sampled[row], federated.nobody(inputs.data))
  return inputs.common._replace(
    key=fold(inputs.common.key, client),
    shard=federated.shard_of(inputs.data, client),
    state=jax.tree.map(lambda leaf: leaf[row], inputs.common.state),
  )
