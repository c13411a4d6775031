"""Where per-client state is between rounds: on the devices or in host memory.

The two differ in where rows are stored, not in what is computed: a round reads the rows of the
clients that it has sampled and writes those of the clients that have samples.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_syn.core.contexts import State
from fedjax_syn.core.types import Array, PyTree, Variables
from fedjax_syn.engine.layout import Layout

Advance = Callable[[State, int], tuple[State, Any]]  # (state, rounds) -> (state, report)
Sample = Callable[[np.int32], np.ndarray]  # round -> who is sampled [cohort]
Sizes = Callable[[], np.ndarray]  # () -> samples of every client, [clients]


@dataclasses.dataclass(frozen=True)
class OnDevice:
  """Every device keeps the rows of all clients."""

  place: ClassVar[str] = 'device'
  num_clients: int
  cohort_size: int

  @property
  def rows(self) -> int:
    """Rows of `State.clients` inside a program."""
    return self.num_clients

  def read(self, clients: PyTree, sampled: Array) -> PyTree:
    """Returns the cohort's rows, leaves [cohort, ...]; traced."""
    return _take(clients, jnp.minimum(sampled, self.num_clients - 1))

  def write(self, clients: PyTree, trained: Array, rows: PyTree) -> PyTree:
    """Returns the clients with new rows; traced.

    Args:
      clients: leaves [clients, ...].
      trained: client numbers [cohort]; a row whose number is that of all clients is not written.
      rows: leaves [cohort, ...].
    """
    put = lambda kept, new: kept.at[trained].set(new, mode='drop')
    return jax.tree.map(put, clients, rows)

  def begin(self, state: State, rows_of: Callable[[Variables, Array], PyTree]) -> State:
    """Returns the state at round 0, given that of the first `rows` clients."""
    return state

  def run(
    self, advance: Advance, sample: Sample, size: Sizes, state: State, rounds: int
  ) -> tuple[State, Any]:
    """Runs rounds; see `OnHost.run`."""
    return advance(state, rounds)

  def parts(self, clients: PyTree) -> Iterator[tuple[Any, PyTree]]:
    """Yields client numbers [n] and their rows, all clients in parts that fit a device."""
    yield jnp.arange(self.num_clients, dtype=jnp.int32), clients


@dataclasses.dataclass(frozen=True)
class OnHost:
  """Host memory has all rows, numpy arrays changed in place; programs have a cohort's rows."""

  place: ClassVar[str] = 'host'
  num_clients: int
  cohort_size: int

  @property
  def rows(self) -> int:
    """Rows of `State.clients` inside a program."""
    return self.cohort_size

  def read(self, clients: PyTree, sampled: Array) -> PyTree:
    """Returns the cohort's rows, which are all that a program has."""
    return clients

  def write(self, clients: PyTree, trained: Array, rows: PyTree) -> PyTree:
    """Returns the cohort's new rows; `run` puts those of clients with samples into host memory."""
    return rows

  def begin(self, state: State, rows_of: Callable[[Variables, Array], PyTree]) -> State:
    """Returns the state at round 0.

    Args:
      state: with the rows of the first `rows` clients.
      rows_of: (w^0, client numbers [cohort]) -> their rows.
    """
    blank = lambda leaf: np.empty((self.num_clients, *leaf.shape[1:]), leaf.dtype)
    if not jax.tree.leaves(state.clients):
      return state
    clients = jax.tree.map(blank, state.clients)
    initial = Variables(state.params, state.stats)
    for ids in chunks(self.num_clients, self.cohort_size):
      rows = rows_of(initial, np.minimum(ids, self.num_clients - 1))
      _put(clients, ids, rows, ids < self.num_clients)
    return state._replace(clients=clients)

  def run(
    self, advance: Advance, sample: Sample, size: Sizes, state: State, rounds: int
  ) -> tuple[State, Any]:
    """Runs rounds one by one, each with its cohort's rows.

    Args:
      advance: (state with the cohort's rows, rounds) -> (state, report).
      sample: round -> who is sampled [cohort], as inside the round.
      size: () -> samples of every client, [clients].
      state: its clients' rows are numpy arrays, changed in place.
      rounds: how many.

    Returns:
      The state, and the last round's report.
    """
    clients, report, sizes = jax.tree.map(_own, state.clients), None, size()
    for _ in range(rounds):
      number = np.int32(jax.device_get(state.round)) + np.int32(1)
      sampled = sample(number)
      ids = np.minimum(sampled, self.num_clients - 1)
      state, report = advance(state._replace(clients=_take(clients, ids)), 1)
      _put(clients, ids, state.clients, (sampled < self.num_clients) & (sizes[ids] > 0))
      if jax.device_get(report['diverged_round']):
        break
    return state._replace(clients=clients), report

  def parts(self, clients: PyTree) -> Iterator[tuple[Any, PyTree]]:
    """Yields client numbers [cohort] and their rows; numbers beyond the last are padding."""
    for ids in chunks(self.num_clients, self.cohort_size):
      yield ids, _take(clients, np.minimum(ids, self.num_clients - 1))


Store = OnDevice | OnHost
STORES: dict[str, type[Store]] = {store.place: store for store in (OnDevice, OnHost)}


def total_bytes(row: PyTree, num_clients: int) -> int:
  """Counts the bytes of all clients' state.

  Args:
    row: shapes of one client's.
    num_clients: all of them.

  Returns:
    Bytes; each device holds that many, unless they are in host memory.
  """
  leaves = jax.tree.leaves(row)
  return num_clients * sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves)


def outgrows(layout: Layout, state_bytes: int) -> bool:
  """Returns whether per-client state is larger than the layout's budget for it.

  Args:
    layout: with a budget, or 0 for none.
    state_bytes: of one seed.

  Raises:
    ValueError: if it is and several seeds are side by side: their rounds are one program that has
      all rows.
  """
  budget, seeds = layout.client_state_bytes, layout.seeds
  if not 0 < budget < seeds * state_bytes:
    return False
  if seeds > 1:
    raise ValueError(
      f'layout.client_state_bytes={budget}: {seeds} seeds have {seeds * state_bytes} bytes, and'
      ' those that are side by side have them on the device; layout.seeds=1 or a larger budget'
      ' would work'
    )
  return True


def chunks(num_clients: int, size: int) -> Iterator[np.ndarray]:
  """Yields the numbers of all clients in parts [size]; those beyond the last are nobody."""
  for start in range(0, num_clients, size):
    ids = np.arange(start, start + size, dtype=np.int32)
    yield np.minimum(ids, num_clients)


def _take(clients: PyTree, ids: Array | np.ndarray) -> PyTree:
  return jax.tree.map(lambda leaf: leaf[ids], clients)


def _put(clients: PyTree, ids: np.ndarray, rows: PyTree, chosen: np.ndarray) -> None:
  """Writes the chosen of the rows, leaves [cohort, ...], into `clients`, leaves [clients, ...]."""

  def put(kept, new):
    kept[ids[chosen]] = jax.device_get(new)[chosen]

  jax.tree.map(put, clients, rows)


def _own(leaf: Array) -> np.ndarray:
  """An array that can be written to; what a checkpoint or the device gave is copied, once."""
  return leaf if isinstance(leaf, np.ndarray) and leaf.flags.writeable else np.array(leaf)
