"""How many bytes a round sends, read off the shapes; nothing is computed."""

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_syn.client.local import bind
from fedjax_syn.core.contexts import State, Task
from fedjax_syn.core.keys import Purpose, stream
from fedjax_syn.core.types import Params, PyTree
from fedjax_syn.engine.clients import run_one
from fedjax_syn.engine.inputs import RoundInputs, client_context, downlink
from fedjax_syn.layer import overrides


def bytes_per_round(task: Task, state: State) -> tuple[int, int]:
  """Counts the bytes of one round.

  What stays on the clients (`Layer.private`) counts neither among the parameters nor in any other part
  that has the parameters' structure (SCAFFOLD's control variates, say).

  Args:
    task: the experiment, its first round that of the phase in question.
    state: shapes of a state.

  Returns:
    Bytes up and down, all sampled clients together; with 'poisson' their expected number.
  """
  cohort = task.cohort_size

  def message(state):
    sent, alike = downlink(task, stream(0, Purpose.SHARED), jnp.int32(1), state)
    inputs = RoundInputs(
      stream(0, Purpose.CLIENT, 1),
      jnp.int32(1),
      task.chain,
      task.data,
      state.params,
      state.stats,
      sent | alike,
      jax.tree.map(lambda leaf: leaf[:cohort], state.clients),
      jnp.zeros(cohort, jnp.int32),
    )
    up = run_one(bind(task), client_context(inputs, jnp.int32(0)))[0].payload
    return up, {'params': state.params, 'stats': state.stats, 'broadcast': sent}

  up, down = jax.eval_shape(message, state)
  down |= {f'broadcast/{name}': part for name, part in down.pop('broadcast').items()}
  count = lambda parts: sum(_size(task, part, state.params) for part in parts.values())
  layer, each = task.chain.client_update, count(up)
  if layer is not None and overrides(
    layer, 'message_bytes'
  ):  # sets of different classes: the mean client
    each = float(np.mean(layer.message_bytes(task, np.asarray(task.data.class_counts))))
  return round(task.expected_cohort * each), round(task.expected_cohort * count(down))


def _size(task: Task, part: PyTree, params: Params) -> int:
  alike = jax.tree.structure(part) == jax.tree.structure(params)
  return sum(
    leaf.size * leaf.dtype.itemsize
    for path, leaf in jax.tree_util.tree_leaves_with_path(part)
    if not (alike and task.is_private(path))
  )
