"""Personal models: what each client's own model is worth on its own test data, or on data like them (FedCOG, Figure 2 and A.4)."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedjax_syn.client.local import LocalClient
from fedjax_syn.data import federated
from fedjax_syn.engine.client_state import Store
from fedjax_syn.engine.clients import run_clients
from fedjax_syn.engine.layout import Layout
from fedjax_syn.engine.mesh import place, replicated
from fedjax_syn.engine.visits import Operands, close, downlink, first_round_of, servers_of, visit_of
from fedjax_syn.keys import Purpose, fold, stream
from fedjax_syn.method import NEEDS, Client, Message, Method, State, Task, Visit
from fedjax_syn.typing import Array, Hyper, Model, Params, Variables

ROWS = 500  # test rows that a block of lanes sees at once


class Personal(NamedTuple):
  """What the clients' models are worth; without `personal` hooks all of it is of the local model."""

  # [clients], personalisation: the personal model on the client's own test rows where the data say whose they
  # are; otherwise on all of them, weighted like the client's labels; nan where `present` is not
  accuracy: Array
  generalisation: Array  # [clients], the local model, all test rows alike
  difference: Array  # [clients], L2 distance local - global model, over what is not private
  present: (
    Array  # [clients], bool: holds a sample, and test rows of its own or of one of its classes
  )


class Split(NamedTuple):
  """A test split in batches, the same on every device."""

  x: Array  # uint8 [batches, batch, height, width, channels]
  y: Array  # int32 [batches, batch]
  mask: Array  # int32 [batches, batch], 0 for padding
  rows: Array  # int32 [classes]
  owner: Array | None = None  # int32 [batches, batch], the client whose row it is, -1: nobody's


def own_accuracy(hits: Array, rows: Array, counts: Array) -> Array:
  """Accuracy under a client's own label distribution: sum_c p(c) hits_c / rows_c.

  Args:
    hits: test rows that are classified correctly, [classes].
    rows: test rows, [classes].
    counts: the client's training samples, [classes].

  Returns:
    The accuracy, []. Classes without a test row count for nothing; 0 if no other is left. Source: FedCOG, A.4.
  """
  held = jnp.where(rows > 0, counts, 0)
  return jnp.sum(held * (hits / jnp.maximum(rows, 1))) / jnp.maximum(held.sum(), 1)


def count_hits(
  model: Model, data: federated.FederatedData, w: Variables, split: Split, client: Array
) -> tuple[Array, Array]:
  """Counts the test rows that a model classifies correctly.

  Args:
    model: the network.
    data: gives the normalisation.
    w: the model's variables.
    split: the test rows.
    client: whose own rows are counted apart, [].

  Returns:
    Those of each class, int32 [classes], and the client's own, int32 [] (0 if nobody says whose rows are whose).
  """

  def batch(hits, batch):
    x, y, mask, owner = batch
    logits = model.apply(w, federated.normalise(data, x), train=False).logits
    right = (jnp.argmax(logits, axis=-1) == y) * mask
    own = 0 if owner is None else jnp.sum(right * (owner == client))
    return (hits[0].at[y].add(right), hits[1] + own), None

  none = jnp.zeros_like(split.rows), jnp.zeros((), split.rows.dtype)
  return jax.lax.scan(batch, none, (split.x, split.y, split.mask, split.owner))[0]


def _accuracy(
  hits: tuple[Array, Array], split: Split, counts: Array, client: Array
) -> tuple[Array, Array]:
  """What a model is worth to a client, from `count_hits`, and whether that can be measured."""
  by_class, own = hits
  if split.owner is None:
    return own_accuracy(by_class, split.rows, counts), jnp.any((counts > 0) & (split.rows > 0))
  rows = jnp.sum(split.owner == client)
  return own / jnp.maximum(rows, 1), (rows > 0) & jnp.any(counts > 0)


def _measuring(
  method: Method, task: Task, client: LocalClient | Client, w_global: Params, split: Split
) -> LocalClient | Client:
  """The same client, but in the place of a message it brings back what its models are worth."""

  def measure(visit: Visit, local: Variables, own: Variables | None):
    client, counts = visit.shard.client, visit.shard.class_counts
    local_hits = count_hits(task.model, task.data, local, split, client)
    hits = local_hits if own is None else count_hits(task.model, task.data, own, split, client)
    accuracy, present = _accuracy(hits, split, counts, client)
    private = functools.partial(method.is_private, task.model)
    square = lambda path, a, b: jnp.zeros(()) if private(path) else jnp.sum((a - b) ** 2)
    squares = jax.tree_util.tree_map_with_path(square, local.params, w_global)
    found = Personal(
      accuracy=accuracy,
      generalisation=local_hits[0].sum() / split.rows.sum(),
      difference=jnp.sqrt(optax.tree.sum(squares)),
      present=present,
    )
    return Message(jnp.ones(()), {}), {}, found._asdict()

  if isinstance(client, LocalClient):

    def end(carry):
      own = client.personal and client.personal(carry)
      return measure(carry.visit, Variables(carry.params, carry.stats), own)

    return client._replace(end=end)

  def update(visit):
    own = client.personal and client.personal(visit)
    return measure(visit, Variables(visit.params, visit.stats), own)

  return client._replace(update=update)


def check(y: np.ndarray) -> None:
  """Refuses labels [rows, labels]: personal models are measured on test rows weighted by their one class."""
  if np.ndim(y) > 1:
    raise ValueError(f'personal_every: needs {NEEDS["one_class"]}; 0 would work')


def make_personal(
  method: Method,
  task_of: Callable[[federated.FederatedData, Hyper, int], Task],
  data: federated.FederatedData,
  hyper: Hyper,
  layout: Layout,
  mesh: jax.sharding.Mesh,
  store: Store,
  x: np.ndarray,
  y: np.ndarray,
  owners: np.ndarray | None = None,
) -> Callable[[int, State], Personal]:
  """Places a test split and returns a function that measures every client's personal model on it.

  The local model is trained from the current global model as in the next round, but at the rate of the round
  that was last (a schedule may end with the run), with random numbers of its own, and is not aggregated. The
  personal model is what the transforms' `personal` hooks make of it; without any it is the local model: FedAvg
  or FedProx with fine-tuning. A client that does not train locally has the global model. All clients lie on
  the devices as those of a round do; memory grows with the lanes.

  Args:
    method: the method.
    task_of: (data, hyper, first round of a phase) -> Task.
    data: the partitioned training set, on the mesh.
    hyper: numbers that change no shape, on the mesh.
    layout: a resolved layout.
    mesh: the layout's mesh.
    store: where per-client state lives; from host memory it comes a cohort at a time.
    x: uint8 [rows, height, width, channels].
    y: [rows].
    owners: int32 [rows], the client whose row it is, -1 for nobody's; None if nobody says.

  Returns:
    (seed, state) -> Personal; the state is only read. Source: FedCOG, Figure 2 and A.4.

  Raises:
    ValueError: if samples have several labels, so that no class weighs them.
  """
  check(y)
  num_clients = data.start.shape[0]
  classes = task_of(data, hyper, 1).num_classes
  everywhere = replicated(mesh)
  split = place(_cut(x, y, owners, classes, max(1, ROWS // layout.lanes)), everywhere)

  @functools.partial(jax.jit, static_argnums=6, out_shardings=everywhere)
  def measure_part(seed, state, clients, data, hyper, split, first_round):
    task = task_of(data, hyper, first_round)
    key, number = stream(seed, Purpose.PERSONAL, state.round), jnp.maximum(state.round, 1)
    sent, alike = downlink(servers_of(method, task), fold(key, 0, 1), number, state)
    down = state.params, state.stats, sent | alike
    operands = Operands(key, number, hyper, data, *down, state.clients, clients)
    size = jnp.where(clients < num_clients, data.size[jnp.minimum(clients, num_clients - 1)], 0)

    def client_of(both):
      operands, split = both
      task = task_of(operands.data, operands.hyper, first_round)
      return _measuring(method, task, close(method, task), operands.params, split)

    client = close(method, task)
    cost = client.steps(size) if isinstance(client, LocalClient) else size
    result = run_clients(
      client_of,
      lambda both, slot: visit_of(both[0], slot),
      (operands, split),
      cost,
      layout,
      mesh,
      uniform=True,
      every_message=False,
    )
    return Personal(**result.metrics)

  def personal(seed, state):
    first_round = first_round_of(method, int(state.round))

    def part(clients, rows):
      both = place((state._replace(clients=rows), clients), everywhere)
      return measure_part(np.int32(seed), *both, data, hyper, split, first_round)

    measured = [part(*some) for some in store.parts(state.clients)]
    whole = jax.tree.map(lambda *leaves: np.concatenate(leaves)[:num_clients], *measured)
    return whole._replace(accuracy=np.where(whole.present, whole.accuracy, np.nan))

  return personal


def _cut(
  x: np.ndarray, y: np.ndarray, owners: np.ndarray | None, classes: int, batch_size: int
) -> Split:
  x, y = np.asarray(x), np.asarray(y).astype(np.int32)
  batch_size = min(batch_size, len(y))
  batches = -(-len(y) // batch_size)
  fill = batches * batch_size - len(y)
  cut = lambda a: a.reshape(batches, batch_size, *a.shape[1:])
  mask = np.concatenate([np.ones(len(y), np.int32), np.zeros(fill, np.int32)])
  padded = (np.concatenate([a, np.repeat(a[:1], fill, axis=0)]) for a in (x, y))
  rows = np.bincount(y, minlength=classes).astype(np.int32)
  nobody = np.full(fill, -1, np.int32)
  owner = None if owners is None else cut(np.concatenate([owners, nobody]).astype(np.int32))
  return Split(*map(cut, padded), cut(mask), rows, owner)


def report(measured: Personal) -> dict[str, float]:
  """Sums up personal models over the clients that have data.

  Args:
    measured: arrays [clients].

  Returns:
    'personal/test/accuracy', its standard deviation over the clients (they are all there are: ddof 0) and
    the mean of its worst tenth (rounded up) as '..._std' and '..._worst_decile', 'personal/generalisation'
    and 'personal/difference'. What is not finite is left out: one client whose model diverges in here ends no run.
  """
  present = np.asarray(measured.present, bool)
  if not present.any():
    return {}
  own, generalisation, difference = (
    np.asarray(a, float)[present]
    for a in (measured.accuracy, measured.generalisation, measured.difference)
  )
  values = {
    'test/accuracy': own.mean(),
    'test/accuracy_std': own.std(),
    'test/accuracy_worst_decile': np.sort(own)[: -(-own.size // 10)].mean(),
    'generalisation': generalisation.mean(),
    'difference': difference.mean(),
  }
  return {f'personal/{name}': float(value) for name, value in values.items() if np.isfinite(value)}
