"""The clients' data: one array, one flat order, and where each client's rows are.

They lie on the devices, or as numpy arrays in host memory: then `host_rows` copies those of a
round's clients to the devices. `normalise` makes numbers of pixels, inside the programs.
"""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_syn.core.programs import Once, loop
from fedjax_syn.core.types import Array, PRNGKey, PyTree, Shard
from fedjax_syn.data import partition as partition_lib

if TYPE_CHECKING:  # the tables of data sets need no jax, and this module not them
  from fedjax_syn.data.dataset import Dataset

BUCKET = 64  # the bound on a client's size is a multiple, so that similar partitions share programs


class Proxy(NamedTuple):
  """The server's own samples: no client has them, and they are no test data."""

  x: Array
  """uint8 [rows, height, width, channels]."""
  y: Array
  """int32 [rows], or multi-hot [rows, labels]; -1 if they are not those of the data set."""


class FederatedData(NamedTuple):
  """A partitioned training set; a pytree of arrays that jitted rounds take as an argument."""

  x: Array
  """uint8 [rows, height, width, channels]; tokens: int32 [rows, length]; a table: float32 [rows,
  features]; sequences: float32 [rows, time, channels]."""
  y: Array
  """int32 [rows], or multi-hot [rows, labels]."""
  order: Array
  """int32 [rows], rows of x client by client."""
  start: Array
  """int32 [clients]."""
  size: Array
  """int32 [clients]."""
  class_counts: Array
  """int32 [clients, classes]."""
  positions: Array
  """int32 [bound], 0, 1, ...: its length is the static bound on a client's size."""
  mean: Array
  """float32 [channels], or [features] of a table."""
  std: Array
  """As `mean`."""
  proxy: Proxy | None = None
  clients: Array | None = None
  """int32 [clients], whose rows these are, where they are those of a round; a number from that of
  all clients on is nobody's. None: the rows of clients 0, 1, ..."""


def from_partition(
  dataset: 'Dataset', partition: partition_lib.Partition, placement: str = 'device'
) -> FederatedData:
  """Joins a data set and a partition of its training rows.

  Args:
    dataset: the data set; only its training split and normalisation are used.
    partition: order [rows of clients], start [clients] and size [clients].
    placement: 'device', or 'host': numpy arrays; those of the data set are not copied.

  Returns:
    The arrays, on the default device or in host memory.

  Raises:
    ValueError: if no client has a sample.
  """
  if partition.size.max(initial=0) == 0:
    raise ValueError('data.partition: no client has a sample; lower data.clients')
  counts = partition_lib.class_counts(partition, dataset.train.y, dataset.num_classes)
  (x, y), order, proxy = dataset.train, partition.order, dataset.proxy
  if len(order) < len(y) and placement == 'device':  # other rows stay on the host or on disk
    rows = np.sort(order)
    x, y, order = x[rows], y[rows], np.searchsorted(rows, order)
  own: Any = proxy and (np.asarray(proxy.x), np.asarray(proxy.y, np.int32))
  leaves: dict[str, Any] = {
    'x': np.asarray(x),
    'y': np.asarray(y, np.int32),
    'order': np.asarray(order, np.int32),
    'start': np.asarray(partition.start, np.int32),
    'size': np.asarray(partition.size, np.int32),
    'class_counts': np.asarray(counts, np.int32),
    'positions': np.arange(-(-int(partition.size.max()) // BUCKET) * BUCKET, dtype=np.int32),
    'mean': np.array(dataset.normalisation.mean, np.float32),
    'std': np.array(dataset.normalisation.std, np.float32),
  }
  data = FederatedData(**leaves, proxy=own and Proxy(*own))
  return data if placement == 'host' else jax.tree.map(jnp.asarray, data)


def placement_of(data: FederatedData) -> str:
  """Returns where the rows are: 'device' or 'host'."""
  return 'host' if isinstance(data.x, np.ndarray) else 'device'


def normalise(data: FederatedData, x: Array) -> Array:
  """Returns what a model sees: (x / 255 - mean) / std of uint8, (x - mean) / std of floats, tokens.

  Args:
    data: the partitioned training set.
    x: pixels, uint8 [..., channels]; floats [..., channels or features]; tokens, int32.

  Raises:
    ValueError: if the type is another one, whose range is unknown.
  """
  if x.dtype == jnp.int32:
    return x
  per_channel = lambda v: jnp.expand_dims(v, tuple(range(x.ndim - 1)))
  if x.ndim < 4 and jnp.issubdtype(x.dtype, jnp.floating):
    # Centred first: of large values the difference is exact where a product would be rounded.
    return (x.astype(data.mean.dtype) - per_channel(data.mean)) * per_channel(1 / data.std)
  if x.dtype != jnp.uint8:
    raise ValueError(f'pixels are {x.dtype}; a Dataset, or data.scaling.scale(x), makes them uint8')
  scale, shift = per_channel(1 / (255 * data.std)), per_channel(data.mean / data.std)
  return x.astype(data.mean.dtype) * scale - shift


def shard_of(data: FederatedData, client: Array) -> Shard:
  """Returns one client's shard; a client whose rows are not here has no samples."""
  if data.clients is None:
    exists = client < data.start.shape[0]
    row = jnp.minimum(client, data.start.shape[0] - 1)
  else:
    same = data.clients == client
    exists, row = same.any(), jnp.argmax(same)
  return Shard(
    client=client,
    start=data.start[row],
    size=jnp.where(exists, data.size[row], 0),
    class_counts=jnp.where(exists, data.class_counts[row], 0),
  )


def nobody(data: FederatedData) -> int:
  """Returns the number of a client whose rows are not here."""
  return data.start.shape[0] if data.clients is None else np.iinfo(np.int32).max


def take(data: FederatedData, shard: Shard, positions: Array) -> tuple[Array, Array]:
  """Reads samples of one client.

  Args:
    data: the partitioned training set.
    shard: the client.
    positions: [batch], 0 .. size - 1; others are clipped into the array and must be masked.

  Returns:
    Normalised images [batch, height, width, channels] (or tokens [batch, length]) and labels
    [batch] (multi-hot: [batch, labels]).
  """
  flat = jnp.minimum(shard.start + positions, data.order.shape[0] - 1)
  rows = data.order[flat]
  return normalise(data, data.x[rows]), data.y[rows]


def draw(data: FederatedData, key: PRNGKey, count: int) -> FederatedData:
  """Draws rows of all clients, with replacement; not traced.

  Args:
    data: the partitioned training set, on the device or in host memory.
    key: of the draw.
    count: how many.

  Returns:
    Data of these rows alone, x [count, ...] and y [count, ...], on the device; no clients.
  """
  if placement_of(data) == 'host':
    rows = jax.device_get(_row_numbers(key, count, data.order.shape[0]))
    numbers = np.sort(data.order)[rows]  # rows of clients that take part
    x, y = jax.device_put((np.asarray(data.x)[numbers], np.asarray(data.y)[numbers]))
  else:
    x, y = _drawn_rows(data.x, data.y, key, count, data.order.shape[0])
  nothing: Any = dict.fromkeys(('order', 'start', 'size', 'class_counts', 'positions', 'proxy'))
  return data._replace(x=x, y=y, **nothing)


@functools.partial(Once, static_argnums=(1, 2))
def _row_numbers(key: PRNGKey, count: int, rows: int) -> Array:
  return jax.random.randint(key, (count,), 0, rows)


@functools.partial(Once, static_argnums=(3, 4))
def _drawn_rows(x: Array, y: Array, key: PRNGKey, count: int, rows: int) -> tuple[Array, Array]:
  drawn = jax.random.randint(key, (count,), 0, rows)
  return x[drawn], y[drawn]


def all_clients(data: FederatedData) -> Shard:
  """Returns one shard of every client's rows."""
  return Shard(
    client=jnp.int32(-1),
    start=jnp.int32(0),
    size=data.size.sum(),
    class_counts=data.class_counts.sum(axis=0),
  )


def batch(
  data: FederatedData, shard: Shard, index: Array, batch_size: int
) -> tuple[Array, Array, Array]:
  """Reads one batch of a pass through a shard, in its own order.

  Args:
    data: the partitioned training set.
    shard: the client.
    index: [], 0 .. ceil(size / batch_size) - 1.
    batch_size: the last batch is padded to it.

  Returns:
    Normalised images [batch, height, width, channels], labels [batch] and mask [batch], 0 for
    padding.
  """
  positions = index * batch_size + jnp.arange(batch_size, dtype=jnp.int32)
  x, y = take(data, shard, positions)
  return x, y, (positions < shard.size).astype(data.mean.dtype)


def sum_batches(
  data: FederatedData, shard: Shard, batch_size: int, function: Callable[..., PyTree]
) -> PyTree:
  """Sums a function of the batches of a shard.

  Args:
    data: the partitioned training set.
    shard: the client.
    batch_size: see `batch`.
    function: (images, labels, mask) -> arrays; see `batch`.

  Returns:
    The sums, structure of what `function` returns; zeros for an empty shard.
  """
  value = lambda index: function(*batch(data, shard, index, batch_size))
  zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), jax.eval_shape(value, jnp.int32(0)))
  add = lambda index, total: jax.tree.map(jnp.add, total, value(index))
  with loop(f'rows_of_client_by_{batch_size}'):
    return jax.lax.fori_loop(0, -(-shard.size // batch_size), add, zeros)


def first_rows(data: FederatedData, shard: Shard, rows: int = 128) -> tuple[Array, Array, Array]:
  """Reads a client's first samples, for numbers that are only logged; as `batch`."""
  return batch(data, shard, jnp.int32(0), rows)
