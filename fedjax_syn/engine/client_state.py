"""Where per-client state lives between rounds: on the devices, or in host memory, whence a round gets its cohort's rows.

The two differ in where rows are stored, not in what is computed: a round reads the rows of the clients that it has
sampled and writes those of the clients that have samples.
"""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_syn.engine.layout import Layout
from fedjax_syn.method import State
from fedjax_syn.typing import Array, PyTree, Variables


class Store(NamedTuple):
  """How a round gets at per-client state."""

  place: str  # 'device' or 'host'
  rows: int  # of `State.clients` inside a program: those of all clients, or of a cohort
  # (clients, sampled [slots]) -> the cohort's rows, leaves [slots, ...]; traced
  read: Callable[[PyTree, Array], PyTree]
  # (clients, visited [slots], rows) -> clients; `visited` is the number of clients where nothing is written; traced
  write: Callable[[PyTree, Array, PyTree], PyTree]
  # (state of the first `rows` clients, (w^0, client numbers) -> their rows) -> State
  begin: Callable[[State, Callable], State]
  # ((state, rounds) -> (state, report), seed, state, rounds) -> the same for all clients
  run: Callable
  # (clients) -> (client numbers [n], their rows), all clients in parts that fit the device
  parts: Callable[[PyTree], Iterator[tuple[Array, PyTree]]]


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
  """Says whether per-client state is larger than the layout's budget for it.

  Args:
    layout: with a budget, or 0 for none.
    state_bytes: of one seed.

  Raises:
    ValueError: if it is and several seeds are side by side: their rounds are one program that has all rows.
  """
  budget, seeds = layout.client_state_bytes, layout.seeds
  if not 0 < budget < seeds * state_bytes:
    return False
  if seeds > 1:
    raise ValueError(
      f'layout.client_state_bytes={budget}: {seeds} seeds have {seeds * state_bytes} bytes, and those that are side'
      ' by side have them on the device; layout.seeds=1 or a larger budget would work'
    )
  return True


def on_device(num_clients: int) -> Store:
  """Keeps every client's rows on every device."""

  def write(clients, visited, rows):
    put = lambda kept, new: kept.at[visited].set(new, mode='drop')
    return jax.tree.map(put, clients, rows)

  return Store(
    place='device',
    rows=num_clients,
    read=lambda clients, sampled: _take(clients, jnp.minimum(sampled, num_clients - 1)),
    write=write,
    begin=lambda state, rows_of: state,
    run=lambda advance, seed, state, rounds: advance(state, rounds),
    parts=lambda clients: iter([(jnp.arange(num_clients, dtype=jnp.int32), clients)]),
  )


def on_host(size: np.ndarray, slots: int, sample: Callable[[Array, Array], Array]) -> Store:
  """Keeps rows in host memory, as numpy arrays that rounds change in place.

  Args:
    size: [clients], samples of each client.
    slots: sampled clients in a round.
    sample: (seed, round) -> who they are, [slots], as inside the round.

  Returns:
    A store whose programs see `slots` rows, in the order of sampling.
  """
  num_clients = len(size)
  sample = jax.jit(sample)

  def chunks():
    for start in range(0, num_clients, slots):
      ids = np.arange(start, start + slots, dtype=np.int32)
      yield np.minimum(ids, num_clients)  # the last one is filled up with nobody

  def begin(state, rows_of):
    blank = lambda leaf: np.empty((num_clients, *leaf.shape[1:]), leaf.dtype)
    clients = jax.tree.map(blank, state.clients)
    initial = Variables(state.params, state.stats)
    for ids in chunks():
      _put(clients, ids, rows_of(initial, np.minimum(ids, num_clients - 1)), ids < num_clients)
    return state._replace(clients=clients)

  def run(advance, seed, state, rounds):
    clients, report = jax.tree.map(_own, state.clients), {}
    for _ in range(rounds):
      number = np.int32(jax.device_get(state.round)) + np.int32(1)
      sampled = jax.device_get(sample(*jax.device_put((np.int32(seed), number))))
      ids = np.minimum(sampled, num_clients - 1)
      state, report = advance(state._replace(clients=_take(clients, ids)), 1)
      _put(clients, ids, state.clients, (sampled < num_clients) & (size[ids] > 0))
      if jax.device_get(report['diverged_round']):
        break
    return state._replace(clients=clients), report

  def parts(clients):
    for ids in chunks():
      yield ids, _take(clients, np.minimum(ids, num_clients - 1))

  return Store(
    place='host',
    rows=slots,
    read=lambda rows, sampled: rows,
    write=lambda clients, visited, rows: rows,
    begin=begin,
    run=run,
    parts=parts,
  )


def _take(clients: PyTree, ids: Array) -> PyTree:
  return jax.tree.map(lambda leaf: leaf[ids], clients)


def _put(clients: PyTree, ids: np.ndarray, rows: PyTree, chosen: np.ndarray) -> None:
  """Writes the chosen of the rows, leaves [slots, ...], into `clients`, leaves [clients, ...]."""

  def put(kept, new):
    kept[ids[chosen]] = jax.device_get(new)[chosen]

  jax.tree.map(put, clients, rows)


def _own(leaf: Array) -> np.ndarray:
  """An array that can be written to; what a checkpoint or the device gave is copied, once."""
  return leaf if isinstance(leaf, np.ndarray) and leaf.flags.writeable else np.array(leaf)
