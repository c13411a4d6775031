"""Work for clients: devices share the clients, and several devices the rows of one client.

Where a round has fewer blocks of clients than half its devices, several devices, a group, run the
same block. They repeat its local training, and share:

| work                | backends | why not on a CPU                                        |
|---------------------|----------|---------------------------------------------------------|
| FedCOG's generation | gpu, tpu | local training, which they repeat, would lose the cores |
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from fedjax_syn.core.mesh import backend_of
from fedjax_syn.core.types import PyTree

# Clients of one vmapped block of a device, at most.
LANES = {'cpu': 1, 'gpu': 32, 'tpu': 32}
GENERATION = ('gpu', 'tpu')  # the table above


class Group(NamedTuple):
  """Devices that run the same block of clients."""

  axis: str
  """Of the mesh of the round's clients."""
  size: int


def in_group(f: Callable[..., PyTree], group: Group | None, *rows: PyTree) -> PyTree:
  """Divides rows over the devices of a group, in a program of all of them.

  Args:
    f: (*rows) -> rows, none of which depends on another.
    group: of devices; None: one device.
    *rows: leaves [rows, ...], on each device the same.

  Returns:
    What f returns for all rows, on each device. Copies of the last row fill the devices' parts, and
    are dropped.
  """
  if group is None:
    return f(*rows)
  count = jax.tree.leaves(rows)[0].shape[0]
  own = -(-count // group.size)
  first = jax.lax.axis_index(group.axis) * own
  numbers = jnp.minimum(first + jnp.arange(own), count - 1)
  results = f(*jax.tree.map(lambda leaf: leaf[numbers], rows))
  gather = lambda leaf: jax.lax.all_gather(leaf, group.axis, tiled=True)[:count]
  return jax.tree.map(gather, results)


def in_blocks(
  f: Callable[[PyTree], PyTree], rows: PyTree, mesh: jax.sharding.Mesh | None
) -> PyTree:
  """Calls f for each client; blocks of clients are vmapped, as in local training.

  Args:
    f: of one client's leaves [...].
    rows: leaves [clients, ...].
    mesh: of the devices for which this is compiled; None: JAX's.

  Returns:
    What f returns, leaves [clients, ...]. Padding of the last block repeats clients and is dropped.
  """
  count = jax.tree.leaves(rows)[0].shape[0]
  backend = jax.default_backend() if mesh is None else backend_of(mesh)
  blocks = -(-count // LANES.get(backend, 32))
  lanes = -(-count // blocks)
  if lanes == 1:
    return jax.lax.map(f, rows)
  cut = lambda leaf: _filled(leaf, lanes).reshape(blocks, lanes, *leaf.shape[1:])
  results = jax.lax.map(jax.vmap(f), jax.tree.map(cut, rows))
  return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:count], results)


def over_devices(
  f: Callable[..., PyTree], mesh: jax.sharding.Mesh | None, common: PyTree, *rows: PyTree
) -> PyTree:
  """Divides clients over the devices of a mesh, in a program that runs on all of them.

  Args:
    f: (axis, common, *rows) -> leaves [clients, ...]: called on each device with its own clients;
      `axis` is that of the mesh for collectives, '' if there is one device. Padding clients, which
      divide the clients evenly, have leaves of zeros, and their results are dropped.
    mesh: of one axis; None: one device.
    common: what all clients need.
    *rows: leaves [clients, ...].

  Returns:
    What f returns for all clients, leaves [clients, ...].
  """
  if mesh is None or mesh.devices.size == 1:
    return f('', common, *rows)
  axis, count = mesh.axis_names[0], jax.tree.leaves(rows)[0].shape[0]
  divided = jax.shard_map(
    lambda common, *rows: f(axis, common, *rows),
    mesh=mesh,
    in_specs=(P(), *[P(axis)] * len(rows)),
    out_specs=P(axis),
    check_vma=False,
  )
  fill = -count % mesh.devices.size
  even = lambda leaf: jnp.pad(leaf, [(0, fill)] + [(0, 0)] * (leaf.ndim - 1))
  return jax.tree.map(lambda leaf: leaf[:count], divided(common, *jax.tree.map(even, rows)))


def _filled(leaf: jax.Array, lanes: int) -> jax.Array:
  """Repeats the last client until blocks of so many lanes are full."""
  fill = -leaf.shape[0] % lanes
  return jnp.concatenate([leaf, jnp.repeat(leaf[-1:], fill, axis=0)]) if fill else leaf
