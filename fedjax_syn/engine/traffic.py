"""How many bytes a round sends, read off the shapes; nothing is computed."""

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_syn.engine.clients import run_one
from fedjax_syn.engine.visits import Operands, close, downlink, servers_of, visit_of
from fedjax_syn.keys import Purpose, stream
from fedjax_syn.method import Client, Method, State, Task
from fedjax_syn.typing import Params, PyTree


def bytes_per_round(method: Method, task: Task, state: State, slots: int) -> tuple[int, int]:
  """Counts the bytes of one round.

  What stays on the clients (`Method.private`) counts neither among the parameters nor in any other part
  that has the parameters' structure (SCAFFOLD's control variates, say).

  Args:
    method: the method.
    task: the experiment, its first round that of the phase in question.
    state: shapes of a state.
    slots: places for sampled clients, some of them empty with the sampler 'poisson'.

  Returns:
    Bytes up and down, all sampled clients together; with 'poisson' their expected number.
  """

  def message(state):
    sent, alike = downlink(servers_of(method, task), stream(0, Purpose.SHARED), jnp.int32(1), state)
    operands = Operands(
      stream(0, Purpose.CLIENT, 1),
      jnp.int32(1),
      task.hyper,
      task.data,
      state.params,
      state.stats,
      sent | alike,
      jax.tree.map(lambda leaf: leaf[:slots], state.clients),
      jnp.zeros(slots, jnp.int32),
    )
    up = run_one(close(method, task), visit_of(operands, jnp.int32(0)))[0].body
    return up, {'params': state.params, 'stats': state.stats, 'broadcast': sent}

  up, down = jax.eval_shape(message, state)
  down |= {f'broadcast/{name}': part for name, part in down.pop('broadcast').items()}
  count = lambda parts: sum(_size(method, task, part, state.params) for part in parts.values())
  client, each = close(method, task), count(up)
  if isinstance(client, Client) and client.bytes:  # sets of different classes: the mean client
    each = float(np.mean(client.bytes(np.asarray(task.data.class_counts))))
  return round(task.cohort * each), round(task.cohort * count(down))


def _size(method: Method, task: Task, part: PyTree, params: Params) -> int:
  alike = jax.tree.structure(part) == jax.tree.structure(params)
  return sum(
    leaf.size * leaf.dtype.itemsize
    for path, leaf in jax.tree_util.tree_leaves_with_path(part)
    if not (alike and method.is_private(task.model, path))
  )
