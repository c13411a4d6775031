"""The devices of a run as a mesh with one axis, 'lanes', and how values get onto it."""

import jax
import numpy as np

from fedjax_syn.core import processes
from fedjax_syn.core.types import PyTree


def mesh_of(devices: int) -> jax.sharding.Mesh:
  """Returns the mesh of so many devices; with several processes each gives equally many."""
  by_turns = sorted(jax.devices(), key=lambda d: (_rank(d), d.process_index))
  return jax.sharding.Mesh(np.array(by_turns[:devices]), ('lanes',))


def _rank(device: jax.Device) -> int:
  """The device's place among those of its process."""
  own = sorted(d.id for d in jax.devices() if d.process_index == device.process_index)
  return own.index(device.id)


def replicated(mesh: jax.sharding.Mesh) -> jax.sharding.NamedSharding:
  """Every device holds everything."""
  return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())


def place(tree: PyTree, sharding: jax.sharding.NamedSharding) -> PyTree:
  """Puts values that every process holds onto a sharding; each device takes its own part.

  Args:
    tree: arrays, equal in all processes.
    sharding: over a mesh of all processes.

  Returns:
    The same values as global arrays.
  """
  if not processes.is_distributed():
    return jax.device_put(tree, sharding)

  def one(leaf):
    if isinstance(leaf, jax.Array) and leaf.sharding == sharding:
      return leaf
    values = np.asarray(leaf)
    return jax.make_array_from_callback(values.shape, sharding, lambda index: values[index])

  return jax.tree.map(one, tree)


def alone(tree: PyTree, mesh: jax.sharding.Mesh) -> PyTree:
  """Returns replicated values on one device of this process, so that no work is repeated."""
  if not processes.is_distributed():
    return jax.device_put(tree, jax.sharding.SingleDeviceSharding(mesh.devices.flat[0]))
  mine = jax.local_devices()[0]
  return jax.tree.map(lambda leaf: jax.device_put(np.asarray(leaf), mine), tree)
