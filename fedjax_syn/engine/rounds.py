"""Closes a method into jitted rounds: sample, run the clients, aggregate, let the server transforms act."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_syn.background import Background
from fedjax_syn.client import local as local_training
from fedjax_syn.data import federated
from fedjax_syn.engine import clients as clients_lib
from fedjax_syn.engine import refusals
from fedjax_syn.engine.evaluate import make_evaluator
from fedjax_syn.engine.interface import Engine
from fedjax_syn.engine.layout import Layout, resolve
from fedjax_syn.engine.mesh import alone, mesh_of, place, replicated
from fedjax_syn.engine.report import round_report
from fedjax_syn.engine.sampling import SAMPLERS
from fedjax_syn.keys import Purpose, fold, stream
from fedjax_syn.losses import objective_of
from fedjax_syn.method import Client, LocalTraining, Method, State, Task, Visit, weighted_mean
from fedjax_syn.typing import Array, Model, Params, Stats, Variables


class Operands(NamedTuple):
  """What a client reads in one round, the same on every device."""

  seed: Array
  round: Array
  hyper: Any
  data: federated.FederatedData
  params: Params
  stats: Stats
  broadcast: Any
  state: Any  # per-client rows of the sampled clients, leaves [slots, ...]
  sampled: Array  # [slots]


def build(
  method: Method,
  model: Model,
  data: federated.FederatedData,
  *,
  num_classes: int | None = None,
  participation: float = 1.0,
  sampler: str = 'fixed',
  layout: Layout = Layout(),  # noqa: B008 (an immutable NamedTuple)
  loss: Callable[[Array, Array, Array], Array] | None = None,
) -> Engine:
  """Closes a method into an engine.

  Args:
    method: what is done.
    model: the network; the method's `adapt` functions are applied to it.
    data: the partitioned training set.
    num_classes: classes; default: columns of `data.class_counts`.
    participation: share of the clients in a round, 0 < p <= 1.
    sampler: 'fixed' or 'poisson'.
    layout: how clients lie on devices; zeros are filled in from the table.
    loss: (logits, y, mask) -> mean loss; default: that of the labels' kind, `losses.objective_of`.

  Returns:
    An `Engine`.

  Raises:
    ValueError: if the sampler or the layout cannot be had, or the method cannot work on these data.
  """
  refusals.check(method, data, sampler)
  objective = objective_of(data.y)
  if loss is not None:
    objective = objective._replace(loss=loss)
  for adapt in method.adapt:
    model = adapt(model, data.x.shape[1:])
  num_clients = data.start.shape[0]
  num_classes = num_classes or data.class_counts.shape[1]
  slots, sample = SAMPLERS[sampler](num_clients, participation)
  cohort = participation * num_clients if sampler == 'poisson' else slots
  layout = resolve(layout, slots)
  mesh = mesh_of(layout)
  everywhere = replicated(mesh)
  data = place(data, everywhere)
  hyper = place(jax.tree.map(jnp.asarray, method.hyper), everywhere)

  def task_of(data, hyper, first_round):
    sizes = num_clients, num_classes
    return Task(model, objective.loss, data, *sizes, hyper, first_round, cohort, objective)

  def close_client(task):
    return (
      local_training.close(method, task)
      if isinstance(method.client, LocalTraining)
      else method.client(task)
    )

  def servers_of(task):
    return [build_transform(task) for build_transform in method.server_transforms]

  # Work between rounds runs on one device; plain numbers are not bound to the mesh.
  host_servers = servers_of(task_of(data, method.hyper, 1))

  def enrolled(seed, data, hyper):
    task = task_of(data, hyper, 1)
    transforms = [t for t in (b(task) for b in method.client_transforms) if t.enrol is not None]
    everyone = jnp.arange(num_clients, dtype=jnp.int32)

    def enrol(client):
      key = fold(stream(seed, Purpose.ENROL), client)
      return {
        t.name: t.enrol(fold(key, i), federated.shard_of(data, client))
        for i, t in enumerate(transforms)
      }

    return jax.lax.map(enrol, everyone) if transforms else {}

  @functools.partial(jax.jit, out_shardings=everywhere)
  def init(seed, data, hyper):
    task = task_of(data, hyper, 1)
    client = close_client(task)
    params, stats = model.init(stream(seed, Purpose.INIT))
    messages = enrolled(seed, data, hyper)
    server = {}
    for i, t in enumerate(servers_of(task)):
      if t.init is not None:
        server[t.name] = t.init(fold(stream(seed, Purpose.SERVER), i), params, messages.get(t.name))
    everyone = jax.vmap(lambda c: federated.shard_of(data, c))(
      jnp.arange(num_clients, dtype=jnp.int32)
    )
    rows = jax.vmap(lambda shard: client.init(Variables(params, stats), shard))(everyone)
    return State(jnp.zeros((), jnp.int32), params, stats, server, rows)

  def make_visit(operands, slot):
    client_id = jnp.where(slot < slots, operands.sampled[jnp.minimum(slot, slots - 1)], num_clients)
    return Visit(
      key=fold(stream(operands.seed, Purpose.CLIENT, operands.round), client_id),
      round=operands.round,
      params=operands.params,
      stats=operands.stats,
      broadcast=operands.broadcast,
      state=jax.tree.map(lambda leaf: leaf[jnp.minimum(slot, slots - 1)], operands.state),
      shard=federated.shard_of(operands.data, client_id),
    )

  def one_round(seed, state, data, hyper, first_round):
    task = task_of(data, hyper, first_round)
    servers = servers_of(task)
    number = state.round + 1
    sampled = sample(stream(seed, Purpose.SAMPLE, number))
    size = jnp.where(sampled < num_clients, data.size[jnp.minimum(sampled, num_clients - 1)], 0)
    rows = jax.tree.map(lambda leaf: leaf[jnp.minimum(sampled, num_clients - 1)], state.clients)
    broadcast = {
      t.name: t.broadcast(state.server.get(t.name)) for t in servers if t.broadcast is not None
    }
    for i, t in enumerate(servers):
      if t.shared is not None:
        key = fold(stream(seed, Purpose.SHARED, number), i)
        broadcast[t.name] = t.shared(key, number, Variables(state.params, state.stats))
    operands = Operands(
      seed, number, hyper, data, state.params, state.stats, broadcast, rows, sampled
    )

    def client_of(operands):
      return close_client(task_of(operands.data, operands.hyper, first_round))

    client = client_of(operands)
    cost = client.steps(size) if isinstance(client, local_training.LocalClient) else size
    messages, rows, metrics, efficiency = clients_lib.run_clients(
      client_of,
      make_visit,
      operands,
      cost,
      layout,
      mesh,
      uniform=method.weighting == 'uniform' and isinstance(client, local_training.LocalClient),
      every_message=method.every_message,
    )

    visited = jnp.where(size > 0, sampled, num_clients)  # an empty client's state stays as it is
    clients = jax.tree.map(
      lambda all_rows, new: all_rows.at[visited].set(new, mode='drop'), state.clients, rows
    )

    aggregate = method.aggregate(task) if method.aggregate else weighted_mean
    new, logged = aggregate(stream(seed, Purpose.AGGREGATE, number), state.params, messages)
    any_weight = messages.weight.sum() > 0
    sent = messages.mean('stats') if 'stats' in messages.weighted else state.stats
    stats = jax.tree.map(lambda old, mean: jnp.where(any_weight, mean, old), state.stats, sent)
    server = dict(state.server)
    for i, t in enumerate(servers):
      if t.update is not None:
        key = fold(stream(seed, Purpose.SERVER, number), i)
        new, server[t.name] = t.update(key, number, server.get(t.name), state, new, messages)
    server = {name: value for name, value in server.items() if name in state.server}

    report = round_report(number, new, metrics, size, sampled, efficiency)
    report |= logged
    for t in servers:
      if t.metrics is not None:
        report |= {f'{t.name}/{name}': v for name, v in t.metrics(server.get(t.name)).items()}
    return State(number, new, stats, server, clients), report

  @functools.partial(jax.jit, static_argnums=5, donate_argnums=1)
  def many_rounds(seed, state, data, hyper, rounds, first_round):
    def go(loop):
      i, _, report = loop
      return (i < rounds) & (report['diverged_round'] == 0)

    def body(loop):
      i, state, _ = loop
      state, report = one_round(seed, state, data, hyper, first_round)
      return i + 1, state, report

    blank = jax.eval_shape(lambda: one_round(seed, state, data, hyper, first_round)[1])
    blank = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), blank)
    _, state, report = jax.lax.while_loop(go, body, (jnp.int32(0), state, blank))
    return state, report

  def first_round_of(done):
    return max((p + 1 for p in method.phases if p <= done), default=1)

  def next_stop(done):
    return min((p for p in method.phases if p > done), default=None)

  def run(seed, state, rounds):
    done = int(state.round)
    stop = next_stop(done)
    if stop is not None and done + rounds > stop:
      raise ValueError(
        f'{rounds} rounds from round {done} cross round {stop}, where the program changes'
      )
    state, first_round = place(state, everywhere), first_round_of(done)
    arguments = np.int32(seed), state, data, hyper, np.int32(rounds)
    if first_round in warm:
      state, report = warm[first_round].result()(*arguments)
    else:
      state, report = many_rounds(*arguments, first_round)
    return state, {name: float(value) for name, value in report.items()}

  warm: dict[int, Background] = {}

  def warm_up():
    state = jax.eval_shape(init, np.int32(0), data, hyper)
    state = jax.tree.map(
      lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=everywhere), state
    )

    def compile_rounds(first_round):
      lowered = many_rounds.lower(np.int32(0), state, data, hyper, np.int32(1), first_round)
      return lowered.compile()

    for first_round in (1, *(phase + 1 for phase in method.phases)):
      warm[first_round] = Background(functools.partial(compile_rounds, first_round))

  def init_state(seed):
    return init(np.int32(seed), data, hyper)

  def unfinished(state):
    return [
      (i, t)
      for i, t in enumerate(host_servers)
      if t.between is not None and t.pending(state.server.get(t.name), int(state.round))
    ]

  def pending(state):
    return bool(unfinished(state))

  def between(seed, state, seconds):
    work = unfinished(state)
    if not work:
      return state, True, {}
    i, t = work[0]
    state = alone(state, mesh)
    key = fold(stream(np.int32(seed), Purpose.BETWEEN, state.round), i)
    params, own, report = t.between(key, state.server[t.name], state.params, state.stats, seconds)
    state = state._replace(params=params, server={**state.server, t.name: own})
    return state, not pending(state), report

  def bytes_per_round():
    state = jax.eval_shape(init, jnp.int32(0), data, hyper)
    task = task_of(data, hyper, first_round_of(max(method.phases, default=0)))

    def message(state):
      sent = {
        t.name: t.broadcast(state.server.get(t.name))
        for t in servers_of(task)
        if t.broadcast is not None
      }
      alike = {
        t.name: t.shared(
          stream(0, Purpose.SHARED), jnp.int32(1), Variables(state.params, state.stats)
        )
        for t in servers_of(task)
        if t.shared is not None
      }
      rows = jax.tree.map(lambda leaf: leaf[:slots], state.clients)
      operands = Operands(
        jnp.int32(0),
        jnp.int32(1),
        hyper,
        data,
        state.params,
        state.stats,
        sent | alike,
        rows,
        jnp.zeros(slots, jnp.int32),
      )
      body = clients_lib.run_one(close_client(task), make_visit(operands, jnp.int32(0)))[0].body
      return body, (state.params, state.stats, sent)

    up, down = jax.eval_shape(message, state)
    count = lambda tree: sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))
    client, each = close_client(task), count(up)
    if isinstance(client, Client) and client.bytes:  # sets of different classes: the mean client
      each = float(np.mean(client.bytes(np.asarray(data.class_counts))))
    return round(slots * each), slots * count(down)

  def synthetic(state):
    own = alone(state.server, mesh)
    learned = [t.synthetic(own[t.name]) for t in host_servers if t.synthetic is not None]
    return next((s for s in learned if s is not None), None)

  def diagnose(seed, state):
    report, own = {}, alone(state, mesh)
    for i, t in enumerate(servers_of(task_of(alone(data, mesh), method.hyper, 1))):
      if t.diagnose is not None:
        key = fold(stream(seed, Purpose.DIAGNOSE), i)
        report |= t.diagnose(key, own.server[t.name], own.stats)
    return report

  def evaluator(x, y):
    return make_evaluator(model, data, objective, np.asarray(x), np.asarray(y), mesh)

  return Engine(
    method,
    model,
    layout,
    init_state,
    run,
    next_stop,
    pending,
    between,
    evaluator,
    warm_up,
    bytes_per_round,
    synthetic,
    diagnose,
  )
