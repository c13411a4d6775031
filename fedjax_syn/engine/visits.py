"""What goes down to the clients: a round's operands, and the visit that each client makes of them."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedjax_syn.client import local as local_training
from fedjax_syn.data import federated
from fedjax_syn.keys import fold
from fedjax_syn.method import Client, LocalTraining, Method, ServerTransform, State, Task, Visit
from fedjax_syn.typing import Array, Params, PRNGKey, PyTree, Stats, Variables


class Operands(NamedTuple):
  """What a client reads in one round, the same on every device."""

  key: PRNGKey  # of the round; every client folds its number into it
  round: Array
  hyper: Any
  data: federated.FederatedData
  params: Params
  stats: Stats
  broadcast: Any
  state: Any  # per-client rows of the sampled clients, leaves [slots, ...]
  sampled: Array  # [slots]


def visit_of(operands: Operands, slot: Array) -> Visit:
  """Makes the visit of one slot.

  Args:
    operands: what the round's clients read.
    slot: [], which of the sampled clients; one beyond the last gives a visit without samples.

  Returns:
    The visit.
  """
  num_clients, slots = operands.data.start.shape[0], operands.sampled.shape[0]
  row = jnp.minimum(slot, slots - 1)
  client_id = jnp.where(slot < slots, operands.sampled[row], num_clients)
  return Visit(
    key=fold(operands.key, client_id),
    round=operands.round,
    params=operands.params,
    stats=operands.stats,
    broadcast=operands.broadcast,
    state=jax.tree.map(lambda leaf: leaf[row], operands.state),
    shard=federated.shard_of(operands.data, client_id),
  )


def close(method: Method, task: Task) -> local_training.LocalClient | Client:
  """Closes a method's client over a task."""
  if isinstance(method.client, LocalTraining):
    return local_training.close(method, task)
  return method.client(task)


def servers_of(method: Method, task: Task) -> list[ServerTransform]:
  """Builds a method's server transforms for a task."""
  return [build_transform(task) for build_transform in method.server_transforms]


def downlink(
  servers: list[ServerTransform], key: PRNGKey, number: Array, state: State
) -> tuple[dict[str, PyTree], dict[str, PyTree]]:
  """Collects what clients get beside the model.

  Args:
    servers: the server transforms.
    key: for what all clients compute alike.
    number: the round, [].
    state: before the round.

  Returns:
    By transform: what is sent, and what every client computes by itself, which costs no bytes.
  """
  sent = {t.name: t.broadcast(state.server.get(t.name)) for t in servers if t.broadcast is not None}
  alike = {}
  for i, t in enumerate(servers):
    if t.shared is not None:
      alike[t.name] = t.shared(fold(key, i), number, Variables(state.params, state.stats))
  return sent, alike


def first_round_of(method: Method, done: int) -> int:
  """Returns the first round of the static phase that comes after `done` rounds."""
  return max((p + 1 for p in method.phases if p <= done), default=1)
