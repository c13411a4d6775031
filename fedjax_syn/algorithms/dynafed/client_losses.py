"""Losses over each client's own data through one round (DynaFed, Figure 3).

The round is run again: local training of every client that takes part, the weighted mean, and fine-tuning
on the synthetic set; with the keys and the state of the original round it ends at the same model.
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
  """Losses of a round; means over rows, without augmentation, with running statistics held fixed."""

  at: np.ndarray  # [points], local steps done: 0, every, 2 every, ...
  steps: np.ndarray  # [clients], local steps that each takes; its losses do not change after them
  local: np.ndarray  # [clients, points], L_m(w_m, D_m) of those that take part
  tuned: (
    np.ndarray
  )  # [1 + steps, all clients], L_m(w, D_m) after aggregation and each fine-tuning step
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
  batch_size = min(batch_size, task.data.positions.shape[0])

  def add(index, total):
    x, y, mask = federated.batch(task.data, shard, index, batch_size)
    logits = task.model.apply(variables, x, train=False).logits
    return total + task.loss(logits, y, mask) * mask.sum()

  zero = jnp.zeros((), task.data.mean.dtype)
  return jax.lax.fori_loop(0, -(-shard.size // batch_size), add, zero) / shard.size


def round_losses(
  task: Task,
  client: ClientContext,
  keys: PRNGKey,
  clients: Array,
  finetune: FineTune,
  *,
  every: int = 1,
) -> RoundLosses:
  """Runs one round again and looks at the clients' losses on the way.

  Args:
    task: its chain says how clients train locally; optimizers that persist between rounds begin anew here.
    client: any client in the round, with parts by layer (`Engine.client_context`): the global model before the round
      and the round's number.
    keys: of the clients in the round, [clients].
    clients: who takes part, [clients], int32.
    finetune: what the server does after the aggregation.
    every: local steps between two looks.

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
  start = Variables(client.params, client.stats)
  sizes = np.asarray(task.data.size)
  steps = np.asarray(LocalClient(task).steps(task.data.size[clients]))
  points = -(-int(steps.max()) // every)

  @jax.jit
  def run(data, start, keys, clients):
    # The data are an argument: as a constant they would be a part of the program.
    traced = task._replace(data=data)
    local = LocalClient(traced)

    def train(key, number):
      shard = federated.shard_of(data, number)
      own = {'key': key, 'shard': shard, 'broadcast': {}, 'state': local.init(start, shard)}
      carry = local.begin(client._replace(params=start.params, stats=start.stats, **own))
      last = local.steps(shard.size)

      def look(carry):
        return client_loss(traced, Variables(carry.params, carry.stats), shard)

      def advance(carry, i):
        until = jnp.minimum((i + 1) * every, last)
        carry = jax.lax.fori_loop(i * every, until, lambda _, carry: local.step(carry), carry)
        return carry, look(carry)

      first = look(carry)
      carry, losses = jax.lax.scan(advance, carry, jnp.arange(points))
      message = local.end(carry)[0]
      return jnp.concatenate([first[None], losses]), message.weight, message.payload

    losses, weights, payloads = jax.lax.map(lambda pair: train(*pair), (keys, clients))
    total = weights.sum()
    share = jnp.where(total > 0, weights / jnp.where(total > 0, total, 1), 0)
    mean = lambda leaf: jnp.tensordot(share.astype(leaf.dtype), leaf, axes=1)
    w = jax.tree.map(lambda old, d: old + mean(d), start.params, payloads['params'])
    stats = jax.tree.map(
      lambda old, new: jnp.where(total > 0, mean(new), old), start.stats, payloads['stats']
    )
    everyone = jnp.arange(task.num_clients, dtype=jnp.int32)

    def record(w):
      loss_of = lambda c: client_loss(traced, Variables(w, stats), federated.shard_of(data, c))
      return jax.lax.map(loss_of, everyone)

    first = record(w)
    w, tuned = finetune(w, stats, record)
    return losses, jnp.concatenate([first[None], tuned]), w

  losses, tuned, w = run(task.data, start, keys, clients)
  losses, tuned = np.asarray(losses), np.asarray(tuned)
  mean = np.where(sizes > 0, tuned, 0) @ (sizes / sizes.sum())
  return RoundLosses(every * np.arange(points + 1), steps, losses, tuned, mean, w)
