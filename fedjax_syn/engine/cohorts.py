"""Where training rows are, and what programs get: all of them, or those of a round's clients.

Who is sampled follows from the seed and the round. Where rows are in host memory, those of the next
round are therefore copied to the devices in a thread while a round is computed. With several
devices each gets the rows of the clients in its own queue, and each process reads only those of its
devices.
"""

import functools
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from fedjax_syn.chains import Chain
from fedjax_syn.client.local import bind
from fedjax_syn.core.background import under_same_settings
from fedjax_syn.core.mesh import is_present, place, replicated
from fedjax_syn.core.types import Array, PyTree, Variables
from fedjax_syn.data import host_rows
from fedjax_syn.data.federated import FederatedData, placement_of
from fedjax_syn.engine import inspection, rounds
from fedjax_syn.engine.client_state import chunks
from fedjax_syn.engine.placement import queues_of, schedule
from fedjax_syn.engine.static_setting import Setting

InitialRows = Callable[[Variables, Any], PyTree]
"""(w^0, client numbers [n]) -> their state, leaves [n, ...]."""


class DeviceRows:
  """Every device has all rows.

  Attributes:
    data: what programs get.
    whole: all clients' data, for what is not traced.
  """

  def __init__(self, setting: Setting, data: FederatedData):
    """Places the data on the devices."""
    self.setting = setting
    self.data = self.whole = place(data, replicated(setting.mesh))

  def of_round(self, seed: int, number: int) -> FederatedData:
    """Returns what the program of a round gets."""
    return self.data

  def sampled(self, seed: int, number: int) -> np.ndarray:
    """Returns the clients of a round in host memory, int32 [cohort]."""
    return inspection.sampled_on_host(self.setting, seed, number)

  def of_clients(self, clients: np.ndarray, first_round: int) -> FederatedData:
    """Returns data with the rows of a cohort, each where the queue of its client is."""
    return self.data

  def everywhere(self, clients: np.ndarray) -> FederatedData:
    """Returns data with the rows of some clients, on every device."""
    return self.data

  def sizes(self) -> np.ndarray:
    """Returns the samples of every client, int32 [clients]."""
    return np.asarray(self.whole.size)

  def initial_rows(self, chain: Chain) -> InitialRows:
    """Returns what makes the state of some clients at round 0."""
    return functools.partial(rounds.rows_of, self.setting, chain, self.data)

  def set_up(self, chain: Chain, seed: Array) -> dict[str, PyTree] | None:
    """Returns None: the messages before round 1 are computed together with the first state."""
    return None


class Cohort(NamedTuple):
  """The clients of a round and their rows."""

  clients: np.ndarray
  """int32 [cohort]; the number of all clients is nobody."""
  data: FederatedData
  """On the devices; leaves of clients are [cohort, ...]."""


TRIED = 8  # rounds whose queues tell how many rows a device needs
Key = tuple[int, int]  # seed, round


class HostRows:
  """The devices get the rows of a round's clients, read while the round before is computed.

  Attributes:
    most: the most rows that a cohort can have.
    rows: length of the arrays of rows on each device. On one device any cohort fits. On several it
      is a quarter more than the fullest queue of some rounds needs; if a round needs more, it
      grows, which compiles the round's program again.
    data: as of a round in which nobody takes part; programs are compiled for its shapes.
    whole: all clients' data, numpy arrays.
  """

  def __init__(self, setting: Setting, chain: Chain, data: FederatedData):
    """Begins without rows.

    Args:
      setting: of the engine.
      chain: the method, its fields plain numbers.
      data: the partitioned training set, in host memory.
    """
    self.setting, self.chain, self.whole = setting, chain, data
    self.most = host_rows.most_rows(np.asarray(data.size), setting.cohort_size)
    same = (data.positions, data.mean, data.std, data.proxy)
    self._same = place(same, replicated(setting.mesh))
    self._orders: dict[int, Array] = {}
    self._schedules: dict[int, Callable[[np.ndarray], tuple[Array, ...]]] = {}
    self.rows = self.most
    if setting.mesh.devices.size > 1:
      draw = functools.partial(inspection.sampled_on_host, setting, 0)
      tried = [self._queues(draw(number), 1) for number in range(1, 1 + TRIED)]
      self.rows = self._enough(max(self._longest(*one) for one in tried))
    nobody = np.full(setting.cohort_size, setting.num_clients, np.int32)
    self.data = self._of_clients(nobody, 1)
    self._current: tuple[Key, Cohort] | None = None
    self._next: tuple[Key, Future[Cohort]] | None = None
    self._thread = ThreadPoolExecutor(1, 'rows of the next round')

  def of_round(self, seed: int, number: int) -> FederatedData:
    """Returns what the program of a round gets, and begins to read that of the next round."""
    return self._cohort(seed, number).data

  def sampled(self, seed: int, number: int) -> np.ndarray:
    """Returns the clients of a round, int32 [cohort]."""
    return self._cohort(seed, number).clients

  def _cohort(self, seed: int, number: int) -> Cohort:
    key = seed, number
    if self._current is not None and self._current[0] == key:
      return self._current[1]
    ready = self._next[1].result() if self._next is not None and self._next[0] == key else None
    self._current = key, ready or self._read(key)
    work = under_same_settings(functools.partial(self._read, (seed, number + 1)))
    self._next = (seed, number + 1), self._thread.submit(work)
    return self._current[1]

  def of_clients(self, clients: np.ndarray, first_round: int) -> FederatedData:
    """Returns the rows of a cohort, each where the queue of its client is.

    Args:
      clients: numbers [cohort]; those beyond the last are nobody.
      first_round: of the static phase.
    """
    if self._next is not None:  # the length is the same in all processes
      self._next[1].result()
    return self._of_clients(clients, first_round)

  def _of_clients(self, clients: np.ndarray, first_round: int) -> FederatedData:
    mesh, queues = self.setting.clients_mesh, self.setting.layout.devices
    if mesh.devices.size == 1:
      return self.everywhere(clients, self.rows)
    size, queue = self._queues(clients, first_round)
    if (needed := self._longest(size, queue)) > self.rows:
      self.rows = self._enough(needed)
    start = np.zeros(len(size), np.int32)
    own = {q: np.where(queue == q, size, 0) for q in range(queues)}
    for q, sizes in own.items():
      start = np.where(queue == q, host_rows.starts_of(sizes), start)
    parts = {
      q: host_rows.copy(self.whole, clients, own[q], self.rows)
      for q, group in enumerate(mesh.devices.reshape(queues, -1))  # of one device, mostly
      if any(device.process_index == jax.process_index() for device in group)
    }

    def joined(name):
      shape = (queues * self.rows, *getattr(self.whole, name).shape[1:])
      part = lambda index: getattr(parts[(index[0].start or 0) // self.rows], name)
      sharding = NamedSharding(mesh, P('lanes'))
      if not is_present(mesh):
        return jax.ShapeDtypeStruct(shape, getattr(self.whole, name).dtype, sharding=sharding)
      return jax.make_array_from_callback(shape, sharding, part)

    return self._data(joined('x'), joined('y'), start, size, clients)

  def everywhere(self, clients: np.ndarray, rows: int = 0) -> FederatedData:
    """Returns the rows of some clients, all of them on every device.

    Args:
      clients: numbers [n]; those beyond the last are nobody.
      rows: length of the arrays; 0: enough for any n clients.
    """
    size = host_rows.sizes_of(self.whole, clients)
    rows = rows or host_rows.most_rows(np.asarray(self.whole.size), len(clients))
    copied = host_rows.copy(self.whole, clients, size, rows)
    x, y = place(tuple(copied), replicated(self.setting.mesh))
    return self._data(x, y, host_rows.starts_of(size), size, clients)

  def set_up(self, chain: Chain, seed: Array) -> dict[str, PyTree]:
    """Returns what all clients send before round 1, by layer, leaves [clients, ...].

    Args:
      chain: the method, traced, on the mesh.
      seed: the run's, on the mesh.
    """
    setting = self.setting
    if not self.chain.having('setup', setting.task(self.chain, self.whole, 1)):
      return {}
    parts = [
      jax.device_get(rounds.set_up_some(setting, chain, seed, self.everywhere(clients, self.most)))
      for clients in chunks(setting.num_clients, setting.cohort_size)
    ]
    join = lambda *leaves: np.concatenate(leaves)[: setting.num_clients]
    return place(jax.tree.map(join, *parts), replicated(setting.mesh))

  def sizes(self) -> np.ndarray:
    """Returns the samples of every client, int32 [clients]."""
    return np.asarray(self.whole.size)

  def initial_rows(self, chain: Chain) -> InitialRows:
    """Returns what makes the state of some clients at round 0; their rows are read if need be.

    Args:
      chain: the method, traced, on the mesh.
    """
    initial = functools.partial(self.setting.initial_rows, chain)
    rows = self.most if reads_rows(initial, self.data) else 0

    def data(clients):
      _, first = np.unique(clients, return_index=True)  # a repeated client has its rows once
      once = np.full_like(clients, self.setting.num_clients)
      once[first] = clients[first]
      if rows:
        return self.everywhere(once, rows)
      size = host_rows.sizes_of(self.whole, once)
      return self._data(self.data.x, self.data.y, 0 * size, size, once)

    return lambda w, clients: rounds.rows_of(self.setting, chain, data(clients), w, clients)

  def _data(
    self, x: Array, y: Array, start: np.ndarray, size: np.ndarray, clients: np.ndarray
  ) -> FederatedData:
    counts, everywhere = host_rows.counts_of(self.whole, clients), replicated(self.setting.mesh)
    index = place((start, size, counts, clients), everywhere)
    rows = x.shape[0] // (1 if x.sharding == everywhere else self.setting.layout.devices)
    if rows not in self._orders:
      self._orders[rows] = place(np.arange(rows, dtype=np.int32), everywhere)
    positions, mean, std, proxy = self._same
    index, order = (*index[:3], positions, mean, std, proxy, index[3]), self._orders[rows]
    return FederatedData(x, y, order, *index)

  def _read(self, key: Key) -> Cohort:
    clients = inspection.sampled_on_host(self.setting, *key)
    return Cohort(clients, self._of_clients(clients, self.chain.first_round(key[1] - 1)))

  def _enough(self, needed: int) -> int:
    return min(self.most, needed + needed // 4 + 1)

  def _longest(self, size: np.ndarray, queue: np.ndarray) -> int:
    return int(np.bincount(queue, size, self.setting.layout.devices).max())

  def _queues(self, clients: np.ndarray, first_round: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns samples and device of each client of a cohort, [cohort]; `placement.schedule`."""
    setting, size = self.setting, host_rows.sizes_of(self.whole, clients)
    if first_round not in self._schedules:
      client = bind(setting.task(self.chain, self.whole, first_round))
      arguments = queues_of(setting.layout, setting.clients_mesh)
      planned = lambda size: schedule(client.steps(size), *arguments)[:3]
      self._schedules[first_round] = jax.jit(planned)
    on_host = jax.device_put(size.astype(np.int32), inspection.host_device())
    table, queue, count = map(np.asarray, self._schedules[first_round](on_host))
    device = np.zeros(len(size), np.int32)
    for d, blocks in enumerate(queue):
      members = table[blocks[: count[d]]].ravel()
      device[members[members < len(size)]] = d
    return size, device


def make_rows(setting: Setting, chain: Chain, data: FederatedData) -> DeviceRows | HostRows:
  """Returns the rows of an engine where the data say that they are; see `HostRows`."""
  if placement_of(data) == 'host':
    return HostRows(setting, chain, data)
  return DeviceRows(setting, data)


def reads_rows(function: Callable[[FederatedData], Any], data: FederatedData) -> bool:
  """Returns whether a function of the data may read their rows, and not only their index."""

  def of_rows(x, y):
    return function(data._replace(x=x, y=y))

  shape = lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
  traced = jax.make_jaxpr(of_rows)(shape(data.x), shape(data.y)).jaxpr
  read = {id(v) for equation in traced.eqns for v in equation.invars}
  return any(id(v) in read for v in traced.invars)
