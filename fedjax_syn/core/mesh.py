"""The devices of a run as a mesh with one axis, 'lanes', and how values get onto it."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_syn.core import processes
from fedjax_syn.core.types import PyTree


def mesh_of(devices: int, among: Sequence[jax.Device] = ()) -> jax.sharding.Mesh:
  """Returns the mesh of so many devices; with several processes each gives equally many.

  Args:
    devices: how many.
    among: of which devices; () is all of JAX's. Programs can be compiled, but not run, for devices
      that are not there.

  Returns:
    The mesh.
  """
  among = among or jax.devices()

  def rank(device):  # its place among those of its process
    own = sorted(d.id for d in among if d.process_index == device.process_index)
    return own.index(device.id)

  by_turns = sorted(among, key=lambda d: (rank(d), d.process_index))
  return jax.sharding.Mesh(np.array(by_turns[:devices]), ('lanes',))


def backend_of(mesh: jax.sharding.Mesh) -> str:
  """Returns 'cpu', 'gpu' or 'tpu'."""
  platform = mesh.devices.flat[0].platform
  return {'cuda': 'gpu', 'rocm': 'gpu'}.get(platform, platform)


def is_present(mesh: Any) -> bool:
  """Returns whether programs can run on a mesh; for others they can only be compiled."""
  return mesh.devices.flat[0] in jax.devices()


def _only_shapes(tree: PyTree, mesh: Any) -> bool:
  """Returns whether nothing can be placed: values are shapes, or the devices are not there."""
  if not is_present(mesh):
    return True
  return any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(tree))


def shapes_on(sharding: jax.sharding.Sharding, tree: PyTree) -> PyTree:
  """Returns the shapes and types of a tree, with a sharding."""
  shape = lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)
  return jax.tree.map(shape, tree)


def zeros_like(leaf: jax.Array) -> jax.Array:
  """Returns zeros that lie where an array does, without a program."""
  part = lambda index: np.zeros(leaf.sharding.shard_shape(leaf.shape), leaf.dtype)
  return jax.make_array_from_callback(leaf.shape, leaf.sharding, part)


def replicated(mesh: jax.sharding.Mesh) -> jax.sharding.NamedSharding:
  """Every device holds everything."""
  return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())


def place(tree: PyTree, sharding: jax.sharding.NamedSharding) -> PyTree:
  """Puts values that every process holds onto a sharding; each device takes its own part.

  Args:
    tree: arrays, equal in all processes; or shapes.
    sharding: over a mesh of all processes.

  Returns:
    The same values as global arrays; shapes with the sharding for shapes, and if the
    devices are not there.
  """
  if _only_shapes(tree, sharding.mesh):
    return shapes_on(sharding, tree)
  if not processes.is_distributed():
    return jax.device_put(tree, sharding)

  def one(leaf):
    if isinstance(leaf, jax.Array) and leaf.sharding == sharding:
      return leaf
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
      placed = one(jax.random.key_data(leaf))
      return jax.random.wrap_key_data(placed, impl=jax.random.key_impl(leaf))
    values = np.asarray(leaf)
    return jax.make_array_from_callback(values.shape, sharding, lambda index: values[index])

  return jax.tree.map(one, tree)


def alone(tree: PyTree, mesh: jax.sharding.Mesh) -> PyTree:
  """Returns replicated values on one device of this process, so that no work is repeated."""
  first = jax.sharding.SingleDeviceSharding(mesh.devices.flat[0])
  if _only_shapes(tree, mesh):
    return shapes_on(first, tree)
  if not processes.is_distributed():
    return jax.device_put(tree, first)
  mine = jax.local_devices()[0]
  return jax.tree.map(lambda leaf: jax.device_put(np.asarray(leaf), mine), tree)
