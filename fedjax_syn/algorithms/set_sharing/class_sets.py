"""Sets of images by class, padded where a client has no images of a class (FedDM, FedDualMatch)."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedjax_syn.core.programs import loop
from fedjax_syn.core.types import Array, PyTree


class ClassSet(NamedTuple):
  """A client's distilled set; absent classes are zeros."""

  x: Array  # [classes, images per class, height, width, channels], normalised pixels
  present: Array  # [classes], bool


def over_present(present: Array, body: Callable[[Array, PyTree], PyTree], start: PyTree) -> PyTree:
  """Folds a function over the present classes; absent ones cost no time.

  Args:
    present: [classes], bool.
    body: (class number [], carry) -> carry.
    start: the first carry.

  Returns:
    The last carry.
  """
  order = jnp.argsort(~present, stable=True).astype(jnp.int32)  # present classes first
  with loop('classes'):
    return jax.lax.fori_loop(0, present.sum(), lambda i, carry: body(order[i], carry), start)


def gather(sets: ClassSet) -> tuple[Array, Array, Array, Array]:
  """Lists the images of several clients' sets.

  Args:
    sets: leaves [clients, ...].

  Returns:
    Images [n, ...], padding included; labels [n]; the rows of the images, present ones first, [n];
    the number of present images, [].
  """
  clients, classes, per_class = sets.x.shape[:3]
  x = sets.x.reshape(-1, *sets.x.shape[3:])
  y = jnp.tile(jnp.repeat(jnp.arange(classes, dtype=jnp.int32), per_class), clients)
  valid = jnp.repeat(sets.present.reshape(-1), per_class)
  return x, y, jnp.argsort(~valid, stable=True).astype(jnp.int32), valid.sum()


def bytes_of(present: Any, per_class: int, shape: tuple[int, ...]) -> Any:
  """Returns the bytes of the images in float32, and one byte for each class's presence.

  Args:
    present: [..., classes], bool.
    per_class: images per class.
    shape: of an image, or of a row of a table or sequences.

  Returns:
    [...].
  """
  images = present.sum(axis=-1) * per_class
  return images * math.prod(shape) * 4 + present.shape[-1]
