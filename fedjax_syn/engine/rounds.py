"""One round and the programs of many rounds; equal settings share compiled programs."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from fedjax_syn.chains import Chain
from fedjax_syn.client import hook_results
from fedjax_syn.client.local import bind
from fedjax_syn.core.contexts import Messages, Round, State
from fedjax_syn.core.keys import Purpose, fold, stream
from fedjax_syn.core.mesh import replicated
from fedjax_syn.core.programs import OF_DRAWS, ByModel, Once, bounded
from fedjax_syn.core.types import Array, Model, Params, PyTree, Variables
from fedjax_syn.data import federated
from fedjax_syn.data.federated import FederatedData
from fedjax_syn.engine import noise
from fedjax_syn.engine.inputs import round_inputs
from fedjax_syn.engine.placement import run_clients
from fedjax_syn.engine.round_metrics import Report, round_report, server_numbers
from fedjax_syn.engine.static_setting import Setting
from fedjax_syn.engine.trace_once import traced
from fedjax_syn.layer import Numbers

AXIS = 'runs'  # of runs side by side


def everywhere(setting: Setting, tree: PyTree) -> PyTree:
  """Constrains a program's results to lie on all of the setting's devices."""
  sharding = replicated(setting.mesh)
  return jax.tree.map(lambda leaf: jax.lax.with_sharding_constraint(leaf, sharding), tree)


def set_up(
  setting: Setting,
  chain: Chain,
  seed: ArrayLike,
  data: FederatedData,
  clients: Array | None = None,
) -> dict[str, PyTree]:
  """Returns what clients, all or some [n], send before round 1, by layer, leaves [n, ...]."""
  task = setting.task(chain, data, 1)
  having = chain.having('setup', task)

  def one(client):
    key, shard = fold(stream(seed, Purpose.SETUP), client), federated.shard_of(data, client)
    return {layer.name: layer.setup(task, fold(key, i), shard) for i, layer in enumerate(having)}

  if clients is None:
    clients = jnp.arange(setting.num_clients, dtype=jnp.int32)
  return jax.lax.map(one, clients) if having else {}


@bounded
@functools.partial(Once, static_argnums=0)  # as `init`, which has the same operations
def set_up_some(
  setting: Setting, chain: Chain, seed: Array, data: FederatedData
) -> dict[str, PyTree]:
  """Returns what the clients of data in host memory send before round 1; see `set_up`."""
  return everywhere(setting, set_up(setting, chain, seed, data, data.clients))


@bounded
@functools.partial(Once, static_argnums=0)
def rows_of(
  setting: Setting, chain: Chain, data: FederatedData, initial: Variables, clients: Array
) -> dict[str, PyTree]:
  """Returns the clients' state at round 0, by layer, leaves [n, ...]; clients [n] are numbers."""
  return everywhere(setting, setting.initial_rows(chain, data, initial, clients))


@bounded
@functools.partial(Once, on_cpu=OF_DRAWS, static_argnums=(0, 1))
def first_model(model: Model, mesh: jax.sharding.Mesh, seed: Array) -> Variables:
  """Draws w^0; a program by itself, which all methods that train this network share."""
  sharding = replicated(mesh)
  drawn = model.init(stream(seed, Purpose.INIT))
  return jax.tree.map(lambda leaf: jax.lax.with_sharding_constraint(leaf, sharding), drawn)


@bounded
@functools.partial(Once, static_argnums=0)
def init(
  setting: Setting,
  chain: Chain,
  seed: Array,
  data: FederatedData,
  begin: Variables | None = None,
  messages: dict[str, PyTree] | None = None,
) -> State:
  """Returns the state at round 0, with the rows of the first clients that a program has.

  Args:
    setting: of the engine.
    chain: the method.
    seed: [].
    data: the partitioned training set.
    begin: the model to begin with; None draws one.
    messages: of `set_up`; None computes them.
  """
  task = setting.task(chain, data, 1)
  params, stats = setting.model.init(stream(seed, Purpose.INIT)) if begin is None else begin
  messages = set_up(setting, chain, seed, data) if messages is None else messages
  server = {}
  for i, layer in chain.numbered('server_init', task):
    key = fold(stream(seed, Purpose.SERVER), i)
    server[layer.name] = layer.server_init(task, key, params, messages.get(layer.name))
  first = jnp.arange(setting.clients.rows, dtype=jnp.int32)
  rows = setting.initial_rows(chain, data, Variables(params, stats), first)
  return everywhere(setting, State(jnp.zeros((), jnp.int32), params, stats, server, rows))


def weighted_mean(round: Round) -> tuple[Params, Numbers]:
  """Adds the weighted mean of the clients' differences to the old model; all weights zero keep it.

  Source: McMahan et al. (2017); DynaFed, Eq. 2 and Algorithm 2, line 7.
  """
  return jax.tree.map(jnp.add, round.params, round.messages.mean('params')), {}


def one_round(
  setting: Setting,
  first_round: int,
  chain: Chain,
  seed: Array,
  state: State,
  data: FederatedData,
  across: str = '',
  done: Array | None = None,
) -> tuple[State, Report]:
  """Runs one round: sample, run the clients, aggregate, let the server layers act.

  Args:
    setting: of the engine.
    first_round: of the static phase.
    chain: the method.
    seed: [].
    state: before the round.
    data: the partitioned training set.
    across: the axis of runs side by side, whose blocks of clients end together; '' for a run by
      itself.
    done: rounds done, [], if all runs side by side are there; None: as the state says.

  Returns:
    The state after the round, and what it reports.
  """
  task = setting.task(chain, data, first_round)
  number = (state.round if done is None else done) + 1
  sampled = setting.cohort(seed, number, data)
  size = setting.sizes(data, sampled)
  rows = setting.clients.read(state.clients, sampled)
  keys = setting.stream(seed, Purpose.CLIENT, number), stream(seed, Purpose.COMMON, number)
  inputs = round_inputs(task, *keys, number, state._replace(clients=rows), sampled)
  messages, rows, metrics, efficiency = run_clients(
    lambda inputs: bind(setting.clients_task(inputs.chain, inputs.data, first_round)),
    inputs,
    size,
    setting.layout,
    setting.clients_mesh,
    uniform=chain.trains_locally and chain.local.weighting == 'uniform',
    keep_messages='individual updates' in chain.requires,
    across=across,
  )
  # The state of a client without samples stays as it is.
  trained = jnp.where(size > 0, sampled, setting.num_clients)
  clients = setting.clients.write(state.clients, trained, rows)
  key = setting.stream(seed, Purpose.AGGREGATE, number)
  task = task._replace(mesh=setting.mesh)
  round = Round(task, key, number, state.params, state.stats, messages)
  new, numbers = _aggregate(round)
  stats = _mean_stats(state, messages)
  seen = round._replace(messages=noise.visible(setting, messages))
  new, server = _server_updates(seen, new, state, stream(seed, Purpose.SERVER, number))
  numbers |= server_numbers(task, server)
  metrics, size = noise.reported(setting, metrics, size)
  report = round_report(number, new, metrics, size, sampled, efficiency, numbers)
  return State(number, new, stats, server, clients), report


def _aggregate(round: Round) -> tuple[Params, Numbers]:
  having = round.task.chain.having('aggregate', round.task)
  if not having:
    sender = round.task.chain.client_update
    if sender is not None and 'params' not in round.messages.weighted_sum:
      raise ValueError(
        f"{type(sender).__name__}.client_update: its messages have no 'params', and no layer has"
        ' aggregate'
      )
    return weighted_mean(round)
  layer = having[0]
  both = layer.aggregate(round)
  new, numbers = hook_results.parts(layer, 'aggregate', both, 'parameters', 'numbers')
  new = hook_results.like(layer, 'aggregate', new, round.params, 'params')
  numbers = hook_results.numbers(layer, 'aggregate', numbers)
  return new, {f'{layer.name}/{name}': value for name, value in numbers.items()}


def _mean_stats(state: State, messages: Messages) -> PyTree:
  mean = messages.mean('stats') if 'stats' in messages.weighted_sum else state.stats
  anyone = messages.weight.sum() > 0
  return jax.tree.map(lambda old, mean: jnp.where(anyone, mean, old), state.stats, mean)


def _server_updates(
  round: Round, new: Params, state: State, key: Array
) -> tuple[Params, dict[str, PyTree]]:
  chain, server = round.task.chain, dict(state.server)
  for i, layer in chain.numbered('server_update', round.task):
    seen = round._replace(key=fold(key, i), state=server.get(layer.name))
    both = layer.server_update(seen, new)
    after, own = hook_results.parts(layer, 'server_update', both, 'parameters', 'new state')
    new = hook_results.like(layer, 'server_update', after, new, 'params')
    own = hook_results.new_state(layer, 'server_update', own, server)
    if layer.name in server:
      server[layer.name] = own
  return new, server


def _repeat(
  step: Callable[[PyTree, Report], tuple[PyTree, Report]],
  state: PyTree,
  report: Report,
  rounds: Array,
) -> tuple[PyTree, Report]:
  """Repeats a step, given a report's shapes, until all rounds are done or all runs diverged."""

  def go(loop):
    i, _, report = loop
    return (i < rounds) & (report['diverged_round'] == 0).any()

  blank = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), report)
  body = lambda loop: (loop[0] + 1, *step(*loop[1:]))
  return jax.lax.while_loop(go, body, (jnp.int32(0), state, blank))[1:]


_by_model = functools.partial(
  ByModel,
  of=lambda setting, *_: (setting.model, setting.mesh),
  static_argnums=(0, 1),
  donate_argnums=4,
)


@bounded
@_by_model
def many_rounds(
  setting: Setting,
  first_round: int,
  chain: Chain,
  seed: Array,
  state: State,
  data: FederatedData,
  rounds: Array,
) -> tuple[State, Report]:
  """Runs rounds until they are done or one diverges; the state given is consumed."""
  one = lambda state: one_round(setting, first_round, chain, seed, state, data)
  one, (_, report) = traced(one, state)
  return _repeat(lambda state, _: one(state), state, report, rounds)


@bounded
@_by_model
def many_rounds_side_by_side(
  setting: Setting,
  first_round: int,
  chains: Chain,
  seeds: Array,
  states: tuple[State, ...],
  data: FederatedData,
  rounds: Array,
) -> tuple[tuple[State, ...], Report]:
  """Runs rounds of several runs in one program whose every operation has an axis of runs.

  A run that diverges does not change further while the others continue: its state is that of the
  round in which it diverged.

  Args:
    setting: of the engine.
    first_round: of the static phase.
    chains: the methods as one, leaves [runs] where they differ and [] where not.
    seeds: [runs].
    states: of each run, at the same round; consumed.
    data: the partitioned training set.
    rounds: how many.

  Returns:
    A state for each, and the report of arrays [runs].
  """
  swept = jax.tree.map(lambda value: 0 if value.ndim else None, chains)

  def all_runs(states):
    # The number of the round has no axis of runs, so that branches on it stay branches.
    of_round = AXIS, states.round.max()
    one = lambda chain, seed, state: one_round(
      setting, first_round, chain, seed, state, data, *of_round
    )
    return jax.vmap(one, (swept, 0, 0), axis_name=AXIS)(chains, seeds, states)

  def step(stacked, report):
    fine = report['diverged_round'] == 0
    keep = lambda new, old: jnp.where(fine.reshape(-1, *[1] * (new.ndim - 1)), new, old)
    return jax.tree.map(keep, all_once(stacked), (stacked, report))

  stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
  all_once, (_, report) = traced(all_runs, stacked)
  stacked, report = _repeat(step, stacked, report, rounds)
  return tuple(jax.tree.map(lambda leaf: leaf[i], stacked) for i in range(len(states))), report


def lowered(
  setting: Setting, first_round: int, chain: Chain, shapes: State, data: FederatedData, runs: int
) -> jax.stages.Lowered:
  """Traces and lowers `many_rounds`, or for several runs `many_rounds_side_by_side`.

  Args:
    setting: of the engine.
    first_round: of the static phase.
    chain: the method.
    shapes: of one run's state, with shardings.
    data: the partitioned training set.
    runs: how many side by side.

  Returns:
    What compiles to a function of all arguments but the first two.
  """
  number = lambda shape: jax.ShapeDtypeStruct(shape, jnp.int32, sharding=replicated(setting.mesh))
  one = many_rounds, number(()), shapes
  several = many_rounds_side_by_side, number((runs,)), (shapes,) * runs
  program, seeds, states = one if runs == 1 else several
  arguments = setting, first_round, chain, seeds, states, data, number(())
  return program.lower(*arguments)


def compiled(*arguments: Any) -> Callable[..., tuple[Any, Report]]:
  """Compiles what `lowered` returns: a function of all arguments of a program but the first two."""
  return lowered(*arguments).compile()
