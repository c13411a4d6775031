"""Programs that look into a run and change nothing."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from fedjax_syn.chains import Chain
from fedjax_syn.client.local import DirectClient, bind
from fedjax_syn.core.contexts import ClientContext, Message, State, Task
from fedjax_syn.core.keys import Purpose, fold, stream
from fedjax_syn.core.mesh import alone
from fedjax_syn.core.programs import bounded
from fedjax_syn.core.sampling import FEWEST
from fedjax_syn.core.types import Array, Variables
from fedjax_syn.data import federated
from fedjax_syn.data.federated import FederatedData
from fedjax_syn.engine.inputs import client_context, round_inputs
from fedjax_syn.engine.static_setting import Setting
from fedjax_syn.layer import overrides


@bounded
@functools.partial(jax.jit, static_argnums=(0, 1))
def one_message(
  setting: Setting,
  first_round: int,
  chain: Chain,
  seed: Array,
  state: State,
  client: Array,
  data: FederatedData,
) -> Message:
  """Returns the message that a client would send in the next round.

  Args:
    setting: of the engine.
    first_round: of the static phase.
    chain: the method.
    seed: [].
    state: its `clients` are this client's own rows.
    client: its number, [].
    data: the partitioned training set.
  """
  task = setting.task(chain, data, first_round)
  return bind(task).update(context_of(setting, task, seed, state, client))[0]


@bounded
@functools.partial(jax.jit, static_argnums=(0, 1))
def one_model(
  setting: Setting,
  first_round: int,
  chain: Chain,
  seed: Array,
  state: State,
  client: Array,
  data: FederatedData,
) -> Variables:
  """Returns a client's own model, with the random numbers of `personal.measure_clients`.

  It is what the layers' `personal` hooks make of the local model, which is trained from the current
  global model; without any it is the local model, and that of clients that do not train is the
  global one. The arguments are those of `one_message`.
  """
  task = setting.task(chain, data, first_round)
  key, number = stream(seed, Purpose.PERSONAL, state.round), jnp.maximum(state.round, 1)
  state = state._replace(clients=jax.tree.map(lambda leaf: leaf[None], state.clients))
  inputs = round_inputs(task, key, fold(key, 0, 1), number, state, client[None])
  context, bound = client_context(inputs, jnp.int32(0)), bind(task)
  if isinstance(bound, DirectClient):
    return Variables(context.params, context.stats)
  steps = bound.steps(context.shard.size)
  carry = jax.lax.fori_loop(0, steps, lambda _, c: bound.step(c), bound.begin(context))
  own = bound.personal(carry)
  return Variables(carry.params, carry.stats) if own is None else own


def context_of(
  setting: Setting, task: Task, seed: ArrayLike, state: State, client: ArrayLike
) -> ClientContext:
  """Returns the context of one client in the next round; see `one_message`."""
  number = state.round + 1
  keys = setting.stream(seed, Purpose.CLIENT, number), stream(seed, Purpose.COMMON, number)
  state = state._replace(clients=jax.tree.map(lambda leaf: leaf[None], state.clients))
  inputs = round_inputs(task, *keys, number, state, jnp.asarray(client)[None])
  return client_context(inputs, jnp.int32(0))


@bounded
@functools.partial(jax.jit, static_argnums=0)
def sampled_clients(setting: Setting, seed: Array, number: Array) -> Array:
  """Returns who is sampled in a round, [cohort]."""
  return setting.sample(seed, number)


def sampled_on_host(setting: Setting, seed: int, number: int) -> np.ndarray:
  """Draws the clients of a round in host memory: int32 [cohort], as inside the round."""
  on_host = jax.device_put((np.int32(seed), np.int32(number)), host_device())
  return np.asarray(sampled_clients(setting, *on_host))


def host_device() -> jax.Device:
  """Returns the processor as a device; where JAX has only an accelerator, one of those."""
  try:
    return jax.local_devices(backend='cpu')[0]
  except RuntimeError:  # JAX_PLATFORMS names others
    return jax.local_devices()[0]


@bounded
@functools.partial(jax.jit, static_argnums=0)
def count_empty(setting: Setting, size: Array, seed: Array, first: Array, last: Array) -> Array:
  """Counts the rounds first + 1 .. last without a client that has samples, by drawing again."""

  def add(number, empty):
    drawn = setting.sample(seed, number)
    present = (drawn < len(size)) & (size[jnp.minimum(drawn, len(size) - 1)] > 0)
    return empty + jnp.where(present.any(), 0, 1)

  return jax.lax.fori_loop(first + 1, last + 1, add, jnp.int32(0))


@bounded
@functools.partial(jax.jit, static_argnums=0)
def count_answers(setting: Setting, seed: Array, last: Array) -> Array:
  """Counts the clients that are drawn and do not drop out, over the rounds 1 .. last."""
  add = lambda number, total: total + jnp.sum(setting.sample(seed, number) < setting.num_clients)
  return jax.lax.fori_loop(jnp.int32(1), last + 1, add, jnp.int32(0))


def bytes_up(setting: Setting, each: int, expected_cohort: float, seed: int, rounds: int) -> int:
  """Returns the bytes that clients send in rounds 1 .. rounds; who drops out sends nothing.

  Args:
    setting: of the engine.
    each: bytes of a round in which nobody drops out.
    expected_cohort: clients of such a round.
    seed: the run's.
    rounds: how many.
  """
  if not setting.dropouts or not each:
    return each * rounds
  arguments = jax.device_put((np.int32(seed), np.int32(rounds)), host_device())
  return round(each / expected_cohort * int(count_answers(setting, *arguments)))


def empty_rounds(setting: Setting, size: np.ndarray, seed: int, first: int, last: int) -> int:
  """Counts the rounds first + 1 .. last in which nobody with a sample is drawn; size [clients]."""
  sure = setting.sampler in FEWEST and not setting.dropouts
  if sure and (size == 0).sum() < FEWEST[setting.sampler](setting.cohort_size):
    return 0  # somebody with a sample is always among them
  arguments = jax.device_put((size, *map(np.int32, (seed, first, last))), host_device())
  return int(count_empty(setting, *arguments))


def artifacts(task: Task, mesh: jax.sharding.Mesh, state: State) -> dict[str, Any] | None:
  """Returns the learned set of the outermost layer with one, as numpy arrays, or None."""
  server = alone(state.server, mesh)
  having = [layer for layer in task.chain if overrides(layer, 'artifacts')]
  learned = (layer.artifacts(task, server.get(layer.name)) for layer in reversed(having))
  return next((one for one in learned if one is not None), None)


def diagnose(task: Task, mesh: jax.sharding.Mesh, seed: int, state: State) -> dict[str, Any]:
  """Returns what the layers' `evaluate` hooks measure, on one device."""
  state = alone(state._replace(clients={}), mesh)
  if federated.placement_of(task.data) == 'device':
    task = task._replace(data=alone(task.data, mesh))
  report: dict[str, Any] = {}
  for i, layer in task.chain.numbered('evaluate', task):
    key = fold(stream(seed, Purpose.EVALUATE), i)
    report |= layer.evaluate(task, key, state.server.get(layer.name), state.stats)
  return report
