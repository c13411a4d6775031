"""Closes a method into jitted rounds: sample, run the clients, aggregate, let the server transforms act."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_syn.background import Background
from fedjax_syn.client import local as local_training
from fedjax_syn.data import federated
from fedjax_syn.engine import client_state, noised, refusals, traffic
from fedjax_syn.engine import clients as clients_lib
from fedjax_syn.engine.evaluate import make_evaluator
from fedjax_syn.engine.interface import Engine
from fedjax_syn.engine.layout import Layout, resolve
from fedjax_syn.engine.mesh import alone, mesh_of, place, replicated
from fedjax_syn.engine.messages import make_message
from fedjax_syn.engine.personal import make_personal
from fedjax_syn.engine.report import numbers, round_report, server_numbers
from fedjax_syn.engine.sampling import FEWEST, SAMPLERS, count_empty
from fedjax_syn.engine.together import at_one_round, make_rounds_together, reports_of
from fedjax_syn.engine.tracing import traced
from fedjax_syn.engine.visits import Operands, close, downlink, first_round_of, servers_of, visit_of
from fedjax_syn.keys import Purpose, fold, stream
from fedjax_syn.losses import objective_of
from fedjax_syn.method import LocalTraining, Method, State, Task, weighted_mean
from fedjax_syn.typing import Array, Model, Variables


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
  noise_number: int = 0,
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
    noise_number: of the method among those that see the same clients with the same seeds: where they add noise for privacy,
      each has its own, since equal noise could be subtracted, and draws its own clients, since epsilon composes so.

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
    rest = num_clients, num_classes, hyper, first_round, cohort, objective
    local = method.client if isinstance(method.client, LocalTraining) else None
    own = {'slots': slots, 'noised': method.mechanism is not None, 'local': local}
    return Task(model, objective.loss, data, *rest, **own, pull=method.pull)

  if callable(method.mechanism):
    method = method._replace(mechanism=method.mechanism(task_of(data, method.hyper, 1)))
  noisy = noised.keys(method, noise_number)
  # Work between rounds runs on one device; plain numbers are not bound to the mesh.
  host_servers = servers_of(method, task_of(data, method.hyper, 1)._replace(mesh=mesh))

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

  def initial_rows(initial, data, hyper, clients):
    client = close(method, task_of(data, hyper, 1))
    shards = jax.vmap(lambda c: federated.shard_of(data, c))(clients)
    return jax.vmap(lambda shard: client.init(initial, shard))(shards)

  def one_row():
    initial = Variables(*model.init(jax.random.key(0)))
    return initial_rows(initial, data, hyper, jnp.zeros(1, jnp.int32))

  state_bytes = client_state.total_bytes(jax.eval_shape(one_row), num_clients)
  sampled_in = lambda seed, number: sample(noisy(seed, Purpose.SAMPLE, number))
  if client_state.outgrows(layout, state_bytes):
    store = client_state.on_host(np.asarray(data.size), slots, sampled_in)
  else:
    store = client_state.on_device(num_clients)

  @functools.partial(jax.jit, out_shardings=everywhere)
  def init(seed, data, hyper, begin=None):
    task = task_of(data, hyper, 1)
    params, stats = model.init(stream(seed, Purpose.INIT)) if begin is None else begin
    messages = enrolled(seed, data, hyper)
    server = {}
    for i, t in enumerate(servers_of(method, task)):
      if t.init is not None:
        server[t.name] = t.init(fold(stream(seed, Purpose.SERVER), i), params, messages.get(t.name))
    first = jnp.arange(store.rows, dtype=jnp.int32)
    rows = initial_rows(Variables(params, stats), data, hyper, first)
    return State(jnp.zeros((), jnp.int32), params, stats, server, rows)

  def one_round(seed, state, data, hyper, first_round, across=''):
    task = task_of(data, hyper, first_round)
    servers = servers_of(method, task)
    number = state.round + 1
    sampled = sampled_in(seed, number)
    size = jnp.where(sampled < num_clients, data.size[jnp.minimum(sampled, num_clients - 1)], 0)
    rows = store.read(state.clients, sampled)
    sent, alike = downlink(servers, stream(seed, Purpose.SHARED, number), number, state)
    key = noisy(seed, Purpose.CLIENT, number)
    down = state.params, state.stats, sent | alike
    operands = Operands(key, number, hyper, data, *down, rows, sampled)

    def client_of(operands):
      return close(method, task_of(operands.data, operands.hyper, first_round))

    client = client_of(operands)
    cost = client.steps(size) if isinstance(client, local_training.LocalClient) else size
    messages, rows, metrics, efficiency = clients_lib.run_clients(
      client_of,
      visit_of,
      operands,
      cost,
      layout,
      mesh,
      uniform=method.weighting == 'uniform' and isinstance(client, local_training.LocalClient),
      every_message=method.every_message,
      across=across,
    )

    visited = jnp.where(size > 0, sampled, num_clients)  # an empty client's state stays as it is
    clients = store.write(state.clients, visited, rows)

    aggregate = method.aggregate(task) if method.aggregate else weighted_mean
    new, logged = aggregate(noisy(seed, Purpose.AGGREGATE, number), state.params, messages)
    any_weight = messages.weight.sum() > 0
    sent = messages.mean('stats') if 'stats' in messages.weighted else state.stats
    stats = jax.tree.map(lambda old, mean: jnp.where(any_weight, mean, old), state.stats, sent)
    server = dict(state.server)
    for i, t in enumerate(servers):
      if t.update is not None:
        key = fold(stream(seed, Purpose.SERVER, number), i)
        seen = noised.visible(method, messages)
        new, server[t.name] = t.update(key, number, server.get(t.name), state, new, seen)
    server = {name: value for name, value in server.items() if name in state.server}

    logged |= server_numbers(servers, server)
    metrics, size = noised.told(method, metrics, size)
    report = round_report(number, new, metrics, size, sampled, efficiency, logged)
    return State(number, new, stats, server, clients), report

  @functools.partial(jax.jit, static_argnums=5, donate_argnums=1)
  def many_rounds(seed, state, data, hyper, rounds, first_round):
    def go(loop):
      i, _, report = loop
      return (i < rounds) & (report['diverged_round'] == 0)

    one = lambda state: one_round(seed, state, data, hyper, first_round)
    one, (_, report) = traced(one, state)

    def body(loop):
      i, state, _ = loop
      return i + 1, *one(state)

    blank = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), report)
    _, state, report = jax.lax.while_loop(go, body, (jnp.int32(0), state, blank))
    return state, report

  def next_stop(done):
    return min((p for p in method.phases if p > done), default=None)

  many_rounds_together = make_rounds_together(one_round)

  def phase_of(done, rounds):
    stop = next_stop(done)
    if stop is not None and done + rounds > stop:
      raise ValueError(
        f'{rounds} rounds from round {done} cross round {stop}, where the program changes'
      )
    return first_round_of(method, done)

  def number_of(value):
    """Puts seeds or rounds on the devices: nothing reaches a program by itself, so a guard against it can hold."""
    return place(np.asarray(value, np.int32), everywhere)

  def go(together, seeds, states, rounds, first_round):
    arguments = seeds, place(states, everywhere), data, hyper, number_of(rounds)
    if (warmed := warm.get((len(states) if together else 0, first_round))) is not None:
      return warmed.result()(*arguments)
    return (many_rounds_together if together else many_rounds)(*arguments, first_round)

  def run(seed, state, rounds):
    first_round = phase_of(int(jax.device_get(state.round)), rounds)
    advance = lambda state, rounds: go(False, number_of(seed), state, rounds, first_round)
    state, report = store.run(advance, seed, state, rounds)
    return state, numbers(jax.device_get(report))

  def run_together(seeds, states, rounds):
    if len(seeds) == 1:
      state, report = run(seeds[0], states[0], rounds)
      return (state,), [report]
    if store.place == 'host':
      raise ValueError(
        f'{len(seeds)} seeds side by side: layout.seeds must say so when the engine is built'
      )
    first_round = phase_of(at_one_round(states), rounds)
    states, report = go(True, number_of(seeds), tuple(states), rounds, first_round)
    return states, reports_of(report, len(seeds))

  warm: dict[tuple[int, int], Background] = {}  # by seeds side by side (0: one alone), first round

  def warm_up(seeds=1):
    state = jax.eval_shape(init, np.int32(0), data, hyper)
    state = jax.tree.map(
      lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=everywhere), state
    )

    number = lambda shape: jax.ShapeDtypeStruct(shape, np.int32, sharding=everywhere)

    def compile_rounds(first_round):
      rest = data, hyper, number(()), first_round
      if seeds == 1:
        return many_rounds.lower(number(()), state, *rest).compile()
      several = number((seeds,)), (state,) * seeds
      return many_rounds_together.lower(*several, *rest).compile()

    for first_round in (1, *(phase + 1 for phase in method.phases)):
      key = seeds if seeds > 1 else 0, first_round
      warm[key] = Background(functools.partial(compile_rounds, first_round))

  def init_state(seed, begin=None):
    rows_of = jax.jit(initial_rows, out_shardings=everywhere)
    begun = lambda initial, clients: rows_of(initial, data, hyper, clients)
    return store.begin(init(number_of(seed), data, hyper, begin), begun)

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
    state = alone(state._replace(clients={}), mesh)._replace(clients=state.clients)
    key = fold(stream(np.int32(seed), Purpose.BETWEEN, state.round), i)
    params, own, report = t.between(key, state.server[t.name], state.params, state.stats, seconds)
    state = state._replace(params=params, server={**state.server, t.name: own})
    return state, not pending(state), report

  def bytes_per_round():
    first_round = first_round_of(method, max(method.phases, default=0))
    state = jax.eval_shape(init, jnp.int32(0), data, hyper)
    return traffic.bytes_per_round(method, task_of(data, hyper, first_round), state, slots)

  def bytes_before():
    sent = jax.eval_shape(enrolled, jnp.int32(0), data, hyper)
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(sent))

  def synthetic(state):
    own = alone(state.server, mesh)
    learned = [t.synthetic(own[t.name]) for t in host_servers if t.synthetic is not None]
    return next((s for s in reversed(learned) if s is not None), None)  # of the outermost layer

  def diagnose(seed, state):
    report, own = {}, alone(state._replace(clients={}), mesh)
    for i, t in enumerate(servers_of(method, task_of(alone(data, mesh), method.hyper, 1))):
      if t.diagnose is not None:
        key = fold(stream(seed, Purpose.DIAGNOSE), i)
        report |= t.diagnose(key, own.server[t.name], own.stats)
    return report

  def evaluator(x, y):
    return make_evaluator(model, data, objective, np.asarray(x), np.asarray(y), mesh)

  def personal(x, y, owners=None):
    return make_personal(method, task_of, data, hyper, layout, mesh, store, x, y, owners)

  if method.mechanism is not None:  # now and not in round 1: this traces what clients send
    noised.check(method, task_of(data, hyper, 1))
    bytes_per_round()
    if any(t.update is not None for t in host_servers):  # traces what the server sees
      begun = jax.eval_shape(init, np.int32(0), data, hyper)
      jax.eval_shape(lambda *a: one_round(*a, 1), np.int32(0), begun, data, hyper)

  return Engine(
    method,
    model,
    layout,
    init_state,
    run,
    run_together,
    next_stop,
    pending,
    between,
    evaluator,
    warm_up,
    bytes_per_round,
    synthetic,
    diagnose,
    personal,
    make_message(method, task_of, data, hyper),
    functools.partial(count_empty, sampled_in, FEWEST[sampler](slots), np.asarray(data.size)),
    state_bytes,
    store.place,
    bytes_before(),
  )
