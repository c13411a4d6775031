"""How many bytes a round sends, computed from shapes alone."""

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_syn.client.local import bind
from fedjax_syn.core.contexts import State, Task
from fedjax_syn.core.keys import Purpose, stream
from fedjax_syn.core.types import Array, Params, PyTree
from fedjax_syn.engine.inputs import broadcasts, client_context, round_inputs
from fedjax_syn.layer import overrides


def bytes_per_round(task: Task, state: State, class_counts: Array) -> tuple[int, int]:
  """Counts the bytes of one round.

  What stays on the clients (`Layer.private`) counts neither among the parameters nor in any other
  part with the structure of the parameters (SCAFFOLD's control variates, for example).

  Args:
    task: the experiment, its first round that of the phase in question.
    state: shapes of a state.
    class_counts: samples of all clients, [clients, classes].

  Returns:
    Bytes up and down, all sampled clients together; with 'poisson' their expected number.
  """
  cohort = task.cohort_size

  def sent(state, chain, data):
    task_now = task._replace(chain=chain, data=data)
    rows = state._replace(clients=jax.tree.map(lambda leaf: leaf[:cohort], state.clients))
    keys = stream(0, Purpose.CLIENT, 1), stream(0, Purpose.COMMON)
    inputs = round_inputs(task_now, *keys, jnp.int32(1), rows, jnp.zeros(cohort, jnp.int32))
    up = bind(task_now).update(client_context(inputs, jnp.int32(0)))[0].payload
    return up, [state.params, state.stats, *broadcasts(task_now, state).values()]

  up, down = jax.eval_shape(sent, state, task.chain, task.data)
  each: float = sum(_size(task, part, state.params) for part in up.values())
  layer = task.chain.client_update
  known = not isinstance(task.data.class_counts, jax.ShapeDtypeStruct)
  if known and layer is not None and overrides(layer, 'message_bytes'):
    # Sets of different classes: the mean client.
    each = float(np.mean(layer.message_bytes(task, np.asarray(class_counts))))
  received = sum(_size(task, part, state.params) for part in down)
  return round(task.expected_cohort * each), round(task.expected_cohort * received)


def _size(task: Task, part: PyTree, params: Params) -> int:
  alike = jax.tree.structure(part) == jax.tree.structure(params)  # type: ignore[operator]
  return sum(
    leaf.size * leaf.dtype.itemsize
    for path, leaf in jax.tree_util.tree_leaves_with_path(part)
    if not (alike and task.is_private(path))
  )
