"""Accuracy of each client's own model on its own test data (FedCOG, Figure 2 and A.4)."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedjax_syn.chains import TRAITS, Chain
from fedjax_syn.client.local import Carry, DirectClient, LocalClient
from fedjax_syn.core.contexts import ClientContext, Message, State, Task
from fedjax_syn.core.keys import Purpose, fold, stream
from fedjax_syn.core.mesh import place, replicated
from fedjax_syn.core.programs import bounded
from fedjax_syn.core.types import Array, Model, Variables
from fedjax_syn.data import federated
from fedjax_syn.engine.evaluate import into_batches
from fedjax_syn.engine.inputs import RoundInputs, round_inputs
from fedjax_syn.engine.placement import run_clients
from fedjax_syn.engine.static_setting import Setting

ROWS = 500  # test rows that a block of lanes sees at once


class Personal(NamedTuple):
  """How good the clients' models are, arrays [clients].

  Without `personal` hooks the personal model is the local one.
  """

  accuracy: Array
  """Of the personal model on the client's own test rows, where the data name their owners;
  otherwise on all rows, weighted like the client's labels. nan where `present` is false."""
  generalisation: Array
  """Accuracy of the local model on all test rows."""
  difference: Array
  """L2 distance between local and global model, over what is not private."""
  present: Array
  """bool: the client has samples, and test rows of its own or of one of its classes."""


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
    The accuracy, []. Classes without a test row count for nothing; 0 if no other is left. Source:
    FedCOG, A.4.
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
    Those of each class, int32 [classes], and the client's own, int32 [] (0 if nobody says whose
    rows are whose).
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


class _Local(LocalClient):
  """Clients that train as in a round, and return the quality of their models, not a message."""

  def __init__(self, task: Task, inputs: RoundInputs):
    super().__init__(task)
    self.inputs = inputs

  def steps_of(self, client: ClientContext) -> Array:
    return self.steps(client.shard.size)  # nobody waits for these models

  def end(self, carry: Carry) -> tuple[Message, dict, dict]:
    trained = Variables(carry.params, carry.stats)
    return _measure(self.task, self.inputs, carry.client, trained, self.personal(carry))


class _Direct(DirectClient):
  """Clients that do not train: they have the global model."""

  def __init__(self, task: Task, inputs: RoundInputs):
    super().__init__(task)
    self.inputs = inputs

  def update(self, client: ClientContext) -> tuple[Message, dict, dict]:
    return _measure(self.task, self.inputs, client, Variables(client.params, client.stats), None)


def _measure(
  task: Task,
  inputs: RoundInputs,
  context: ClientContext,
  local: Variables,
  own: Variables | None,
) -> tuple[Message, dict, dict]:
  client, counts, split = context.shard.client, context.shard.class_counts, inputs.split
  local_hits = count_hits(task.model, task.data, local, split, client)
  hits = local_hits if own is None else count_hits(task.model, task.data, own, split, client)
  accuracy, present = _accuracy(hits, split, counts, client)
  square = lambda path, a, b: jnp.zeros(()) if task.is_private(path) else jnp.sum((a - b) ** 2)
  squares = jax.tree_util.tree_map_with_path(square, local.params, inputs.common.params)
  measured = Personal(
    accuracy=accuracy,
    generalisation=local_hits[0].sum() / split.rows.sum(),
    difference=jnp.sqrt(optax.tree.sum(squares)),
    present=present,
  )
  return Message(jnp.ones(()), {}), {}, measured._asdict()


def check(y: np.ndarray) -> None:
  """Raises ValueError for labels [rows, labels]: test rows are weighted by their one class."""
  if np.ndim(y) > 1:
    raise ValueError(f'personal_every: needs {TRAITS["one class"]}; 0 would work')


@bounded
@functools.partial(jax.jit, static_argnums=(0, 1))
def measure_clients(
  setting: Setting,
  first_round: int,
  chain: Chain,
  seed: Array,
  state: State,
  clients: Array,
  data: federated.FederatedData,
  split: Split,
) -> Personal:
  """Measures some clients' personal models.

  The local model is trained from the current global model as in the next round, but at the rate of
  the round that was last (a schedule may end with the run), with random numbers of its own, and is
  not aggregated. The personal model is what the layers' `personal` hooks make of it; without any it
  is the local model: FedAvg or FedProx with fine-tuning. A client that does not train locally has
  the global model. All clients lie on the devices as those of a round do; memory grows with the
  lanes.

  Args:
    setting: of the engine.
    first_round: of the static phase.
    chain: the method.
    seed: the run's, [].
    state: with the rows of these clients, leaves [clients, ...].
    clients: their numbers, [clients]; a number beyond the last is filling.
    data: the partitioned training set, on the mesh.
    split: test rows, on the mesh.

  Returns:
    Arrays [clients]. Source: FedCOG, Figure 2 and A.4.
  """
  task = setting.task(chain, data, first_round)
  key, number = stream(seed, Purpose.PERSONAL, state.round), jnp.maximum(state.round, 1)
  inputs = round_inputs(task, key, fold(key, 0, 1), number, state, clients)
  measuring = _Local if chain.trains_locally else _Direct
  result = run_clients(
    lambda inputs: measuring(setting.clients_task(inputs.chain, inputs.data, first_round), inputs),
    inputs._replace(split=split),
    setting.sizes(data, clients),
    setting.layout,
    setting.clients_mesh,
    uniform=True,
    keep_messages=False,
  )
  measured = Personal(**result.metrics)
  return jax.lax.with_sharding_constraint(measured, replicated(setting.mesh))


def measure_all(
  setting: Setting,
  chain: Chain,
  rows_of: Callable[[np.ndarray, int], federated.FederatedData],
  everywhere: jax.sharding.NamedSharding,
  split: Split,
  seed: int,
  state: State,
) -> Personal:
  """Measures every client's personal model; the state is only read.

  Args:
    setting: of the engine.
    chain: the method.
    rows_of: (client numbers [n], first round of the phase) -> data that have their rows.
    everywhere: the sharding of what all devices hold.
    split: test rows, on the mesh.
    seed: the run's.
    state: where the run stands.

  Returns:
    numpy arrays [clients]; accuracy is nan where nothing can be measured.
  """
  first_round = chain.first_round(int(state.round))

  def part(clients, rows):
    both = place((state._replace(clients=rows), clients), everywhere)
    data = rows_of(np.asarray(clients), first_round)
    return measure_clients(setting, first_round, chain, np.int32(seed), *both, data, split)

  measured = [part(*some) for some in setting.clients.parts(state.clients)]
  join = lambda *leaves: np.concatenate(leaves)[: setting.num_clients]
  whole = jax.tree.map(join, *measured)
  return whole._replace(accuracy=np.where(whole.present, whole.accuracy, np.nan))


def make_split(x: np.ndarray, y: np.ndarray, owners: np.ndarray | None, setting: Setting) -> Split:
  """Cuts a test split into batches and places it on the mesh.

  Args:
    x: uint8 [rows, height, width, channels].
    y: [rows].
    owners: int32 [rows], the client whose row it is, -1 for nobody's; None if nobody says.
    setting: of the engine.

  Returns:
    The split.

  Raises:
    ValueError: if samples have several labels, so that no class weighs them.
  """
  check(y)
  y = np.asarray(y, np.int32)
  cut = into_batches(len(y), max(1, ROWS // setting.layout.lanes))
  rows = np.bincount(y, minlength=setting.num_classes).astype(np.int32)
  owner = None if owners is None else cut(np.asarray(owners, np.int32), constant_values=-1)
  split: Any = cut(x, mode='edge'), cut(y), cut(np.ones(len(y), np.int32)), rows, owner
  return place(Split(*split), replicated(setting.mesh))


def spread(accuracy: np.ndarray) -> dict[str, float]:
  """Returns mean, standard deviation (ddof 0) and mean of the worst tenth (rounded up) by name.

  Args:
    accuracy: of each client; nan for one that cannot be measured.
  """
  own = accuracy[~np.isnan(accuracy)]
  worst = np.sort(own)[: -(-own.size // 10)]
  values = {'': own.mean(), '_std': own.std(), '_worst_decile': worst.mean()}
  return {f'test/accuracy{name}': float(value) for name, value in values.items()}


def report(measured: Personal) -> dict[str, float]:
  """Sums up personal models over the clients that have data.

  Args:
    measured: arrays [clients].

  Returns:
    'personal/test/accuracy', its standard deviation over the clients (they are all there are: ddof
    0) and the mean of its worst tenth (rounded up) as '..._std' and '..._worst_decile',
    'personal/generalisation' and 'personal/difference'. What is not finite is left out: one client
    whose model diverges in here ends no run.
  """
  present = np.asarray(measured.present, bool)
  if not present.any():
    return {}
  own, generalisation, difference = (
    np.asarray(a, float)[present]
    for a in (measured.accuracy, measured.generalisation, measured.difference)
  )
  values = {
    **spread(own),
    'generalisation': generalisation.mean(),
    'difference': difference.mean(),
  }
  return {f'personal/{name}': float(value) for name, value in values.items() if np.isfinite(value)}
