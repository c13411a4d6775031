"""Small arrays of a tree as one vector, so that what is done to each of them is compiled once.

An optimizer is three or four kernels for every array, and most arrays of a network with norms and
biases are small: their kernels take longer to compile than to run.
"""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp

from fedjax_syn.core.types import Array, PyTree

SMALL = 1024  # numbers


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Packed:
  """A tree whose small arrays are parts of one vector for each type."""

  large: list[Array]
  """More than `SMALL` numbers each, in the order of the tree."""
  small: dict[str, Array]
  """[numbers] by type, in the order of the tree."""
  structure: Any = dataclasses.field(metadata={'static': True})
  shapes: tuple[Any, ...] = dataclasses.field(metadata={'static': True})
  """Shape and name of the type of every array."""


def pack(tree: PyTree) -> Packed:
  """Puts a tree's small arrays into vectors.

  Args:
    tree: arrays [...] of any shapes.

  Returns:
    Vectors [numbers], one for each type, and the large arrays [...] as they are.
  """
  leaves, structure = jax.tree.flatten(tree)
  small: dict[str, list[Array]] = {}
  for leaf in leaves:
    if leaf.size <= SMALL:
      small.setdefault(leaf.dtype.name, []).append(leaf.reshape(-1))
  return Packed(
    [leaf for leaf in leaves if leaf.size > SMALL],
    {kind: jnp.concatenate(parts) for kind, parts in small.items()},
    structure,
    tuple((leaf.shape, leaf.dtype.name) for leaf in leaves),
  )


def unpack(packed: Packed) -> PyTree:
  """Undoes `pack`.

  Args:
    packed: with any numbers; what an optimizer makes of a packed tree too.

  Returns:
    The tree, arrays [...] of its former shapes with the numbers in `packed`.
  """
  large, used, leaves = iter(packed.large), dict.fromkeys(packed.small, 0), []
  for shape, kind in packed.shapes:
    size = math.prod(shape)
    if size > SMALL:
      leaves.append(next(large))
    else:
      first = used[kind]
      used[kind] += size
      leaves.append(packed.small[kind][first : first + size].reshape(shape))
  return jax.tree.unflatten(packed.structure, leaves)
