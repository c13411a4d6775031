"""Losses over each client's data during one round (DynaFed, Figure 3).

The round is run again: local training of its clients, the weighted mean, and fine-tuning on the
synthetic set. With the keys and the state of the original round it ends at the same model.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_syn.client.local import LocalClient
from fedjax_syn.core.contexts import ClientContext, Task
from fedjax_syn.core.types import Array, Params, PRNGKey, PyTree, Shard, Stats, Variables
from fedjax_syn.data import federated
from fedjax_syn.layer import LOCAL_HOOKS, overrides

FineTune = Callable[  # (w, stats, record) -> (w, records of every step), see `finetuning.finetune`
  [Params, Stats, Callable[[Params], PyTree]], tuple[Params, PyTree]
]


class RoundLosses(NamedTuple):
  """Losses of a round: means over rows, without augmentation, with fixed running statistics."""

  at: np.ndarray  # [points], local steps done: 0, every, 2 every, ...
  steps: np.ndarray  # [clients], local steps of each; its losses do not change after them
  local: np.ndarray  # [clients, points], L_m(w_m, D_m) of the round's clients
  # [1 + steps, all clients], L_m(w, D_m) after the aggregation and each fine-tuning step
  tuned: np.ndarray
  mean: np.ndarray  # [1 + steps], L(w, D): the mean over all rows, Eq. 1
  params: Params  # the model at the end of the round


def client_loss(task: Task, variables: Variables, shard: Shard, batch_size: int = 500) -> Array:
  """Returns a model's mean loss over one client's data, []; nan for a client without any.

  Args:
    task: gives model, loss and data.
    variables: parameters and running statistics.
    shard: the client.
    batch_size: rows at once.
  """

  def batch_loss(x, y, mask):
    return task.loss(task.model.apply(variables, x, train=False).logits, y, mask) * mask.sum()

  batch_size = min(batch_size, task.data.positions.shape[0])
  return federated.sum_batches(task.data, shard, batch_size, batch_loss) / shard.size


def round_losses(
  task: Task,
  client: ClientContext,
  keys: PRNGKey,
  clients: Array,
  finetune: FineTune,
  *,
  every: int = 1,
) -> RoundLosses:
  """Runs one round again and measures the clients' losses during it.

  Args:
    task: its chain says how clients train locally; optimizers that persist between rounds start
      anew.
    client: any client in the round, with parts by layer (`Engine.client_context`): the global model
      before the round and the round's number.
    keys: of the clients in the round, [clients].
    clients: the round's clients, [clients], int32.
    finetune: what the server does after the aggregation.
    every: local steps between two measurements.

  Returns:
    The losses. Source: DynaFed, Section 6.2 and Figure 3.

  Raises:
    ValueError: if the method adds to local training, or does not average.
  """
  for layer in list(task.chain)[1:]:
    if overrides(layer, *LOCAL_HOOKS, 'client_update', 'aggregate'):
      raise ValueError(
        f'{task.chain.name!r}: losses are shown for plain local training and averaging only'
      )
  steps = np.asarray(LocalClient(task).steps(task.data.size[clients]))
  points = -(-int(steps.max()) // every)

  @jax.jit
  def run(data, client, keys, clients):  # data as a constant would be a part of the program
    traced = task._replace(data=data)
    train = lambda pair: _train(traced, client, *pair, every, points)
    losses, weights, payloads = jax.lax.map(train, (keys, clients))
    w, stats = _average(client, weights, payloads)

    def record(w):
      loss = lambda c: client_loss(traced, Variables(w, stats), federated.shard_of(data, c))
      return jax.lax.map(loss, jnp.arange(task.num_clients, dtype=jnp.int32))

    start = record(w)
    w, tuned = finetune(w, stats, record)
    return losses, jnp.concatenate([start[None], tuned]), w

  losses, tuned, w = run(task.data, client, keys, clients)
  losses, tuned, sizes = np.asarray(losses), np.asarray(tuned), np.asarray(task.data.size)
  mean = np.where(sizes > 0, tuned, 0) @ (sizes / sizes.sum())
  return RoundLosses(every * np.arange(points + 1), steps, losses, tuned, mean, w)


def _train(
  task: Task, client: ClientContext, key: PRNGKey, number: Array, every: int, points: int
) -> tuple[Array, Array, dict[str, PyTree]]:
  """Trains one client; returns its losses [points + 1] and its message's weight and payload."""
  local, shard = LocalClient(task), federated.shard_of(task.data, number)
  state = local.init(Variables(client.params, client.stats), shard)
  carry = local.begin(client._replace(key=key, shard=shard, broadcast={}, state=state))
  last = local.steps(shard.size)
  loss = lambda carry: client_loss(task, Variables(carry.params, carry.stats), shard)

  def advance(carry, i):
    until = jnp.minimum((i + 1) * every, last)
    carry = jax.lax.fori_loop(i * every, until, lambda _, carry: local.step(carry), carry)
    return carry, loss(carry)

  start = loss(carry)
  carry, losses = jax.lax.scan(advance, carry, jnp.arange(points))
  message = local.end(carry)[0]
  return jnp.concatenate([start[None], losses]), message.weight, message.payload


def _average(client: ClientContext, weights: Array, payloads: dict[str, PyTree]) -> Variables:
  """Returns the global model after the round, of messages with leaves [clients, ...]."""
  total = weights.sum()
  share = jnp.where(total > 0, weights / jnp.where(total > 0, total, 1), 0)
  mean = lambda leaf: jnp.tensordot(share.astype(leaf.dtype), leaf, axes=1)
  move = lambda old, difference: old + mean(difference)
  keep = lambda old, new: jnp.where(total > 0, mean(new), old)
  return Variables(
    jax.tree.map(move, client.params, payloads['params']),
    jax.tree.map(keep, client.stats, payloads['stats']),
  )
