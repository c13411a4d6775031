"""Augmentation inside jit: crop and flip of client batches; differentiable siamese augmentation.

Differentiable siamese augmentation (DSA; Zhao and Bilen, 2021) picks one of six groups of
operations per call. A call makes one draw of uniform numbers, which the groups turn into their
parameters: the program stays small, and the same key replays the same call, under `jax.checkpoint`
too.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedjax_syn.core.types import Array, PRNGKey
from fedjax_syn.data import image_ops

Augment = Callable[..., Array]  # (key, x, black=0.0) -> x


class Limits(NamedTuple):
  """How far DSA goes; the values of the authors' released code."""

  brightness: float = 0.5  # adds U(-b, b), in normalised units
  saturation: float = 2.0  # scales the distance from grey by U(0, s)
  contrast: float = 0.5  # scales the distance from the image's mean by U(1 - c, 1 + c)
  crop: float = 0.125  # shifts by up to this part of the side
  cutout: float = 0.5  # the window's side as a part of the image's
  flip: float = 0.5  # probability
  scale: float = 1.2  # reads each axis at U(1 / s, s) times the distance from the centre
  rotate: float = 15.0  # turns by U(-r, r) degrees


class Group(NamedTuple):
  """One group of DSA: how uniform numbers become parameters, and the operation on one image."""

  params: Callable[[Array, tuple[int, ...], Limits], Array]  # (u [3], image shape, limits)
  apply: Callable[[Array, Array], Array]  # (params, x [height, width, channels]) -> x


def colour_params(u: Array, shape: tuple[int, ...], limits: Limits) -> Array:
  """Returns brightness, saturation and contrast [3]."""
  del shape
  low = jnp.array([-limits.brightness, 0, 1 - limits.contrast], u.dtype)
  high = jnp.array([limits.brightness, limits.saturation, 1 + limits.contrast], u.dtype)
  return low + u * (high - low)


def crop_params(u: Array, shape: tuple[int, ...], limits: Limits) -> Array:
  """Returns the shift of rows and columns, int [2]."""
  return _shifts(u, jnp.array([_pixels(side, limits.crop) for side in shape[:2]]))


def cutout_params(u: Array, shape: tuple[int, ...], limits: Limits) -> Array:
  """Returns the window's first row and column, and those behind it, int [4].

  Its centre lies anywhere in the image, so that windows reach over the edge and are cut there.
  """
  sides = jnp.array([_pixels(side, limits.cutout) for side in shape[:2]])
  centre = jnp.floor(u[:2] * (jnp.array(shape[:2]) + 1 - sides % 2)).astype(jnp.int32)
  first = centre - sides // 2
  return jnp.concatenate([first, first + sides])


def flip_params(u: Array, shape: tuple[int, ...], limits: Limits) -> Array:
  """Returns whether to mirror, bool []."""
  del shape
  return u[0] < limits.flip


def scale_params(u: Array, shape: tuple[int, ...], limits: Limits) -> Array:
  """Returns the factors of rows and columns [2]."""
  del shape
  return 1 / limits.scale + u[:2] * (limits.scale - 1 / limits.scale)


def rotate_params(u: Array, shape: tuple[int, ...], limits: Limits) -> Array:
  """Returns the angle [] in radians."""
  del shape
  return jnp.deg2rad(limits.rotate * (2 * u[0] - 1))


GROUPS: dict[str, Group] = {
  'colour': Group(colour_params, image_ops.colour),
  'crop': Group(crop_params, image_ops.shift),
  'cutout': Group(cutout_params, image_ops.cutout),
  'flip': Group(flip_params, image_ops.mirror),
  'scale': Group(scale_params, image_ops.scale),
  'rotate': Group(rotate_params, image_ops.rotate),
}


def dsa(
  key: PRNGKey,
  x: Array,
  operations: tuple[str, ...] = tuple(GROUPS),
  per_sample: bool = True,
  limits: Limits = Limits(),  # noqa: B008
) -> Array:
  """Applies one group of operations, picked uniformly: differentiable siamese augmentation.

  The pick is one `jax.lax.switch`, of which one branch runs. Where keys are mapped over by vmap,
  XLA runs all branches and selects, at the sum of their costs.

  Args:
    key: the same key gives the same group and parameters.
    x: [batch, height, width, channels], normalised.
    operations: the groups to pick from; () leaves x as it is. Leave out 'flip' for digits.
    per_sample: draws parameters for each image; otherwise one set for the batch.
    limits: how far each operation goes.

  Returns:
    [batch, height, width, channels].

  Raises:
    ValueError: for an unknown or repeated group.
  """
  _check(operations)
  if not operations:
    return x
  rows = x.shape[0] if per_sample else 1
  u = jax.random.uniform(key, (1 + rows, 3), jnp.float32)

  def branch(group: Group):
    def apply(u, x):
      return group.apply(group.params(u, x.shape, limits), x).astype(x.dtype)

    return jax.vmap(apply)

  pick = jnp.floor(u[0, 0] * len(operations)).astype(jnp.int32)
  draws = jnp.broadcast_to(u[1:], (x.shape[0], 3))
  return jax.lax.switch(pick, [branch(GROUPS[name]) for name in operations], draws, x)


def parse_strategy(strategy: str) -> tuple[str, ...]:
  """Splits 'colour_crop_cutout_flip_scale_rotate', or a part of it, into groups; '' means none.

  Args:
    strategy: names of groups joined by underscores.

  Returns:
    What `dsa` takes as `operations`.

  Raises:
    ValueError: for an unknown or repeated group.
  """
  operations = tuple(strategy.split('_')) if strategy else ()
  _check(operations)
  return operations


def crop_flip(
  key: PRNGKey, x: Array, padding: int = 4, flip: bool = True, fill: Array | float = 0.0
) -> Array:
  """Crops every image at random out of its padded self, and mirrors every other one.

  Args:
    key: one draw for the batch, different for each image.
    x: [batch, height, width, channels].
    padding: pixels on each side; images are shifted by -padding..padding.
    flip: whether images are mirrored left to right, with probability 1/2.
    fill: what lies around an image, [] or [channels]; black is -mean / std on normalised images.

  Returns:
    [batch, height, width, channels].
  """

  def apply(u, x):
    down, right = _shifts(u, padding)
    columns = jnp.arange(x.shape[1])
    if flip:
      columns = jnp.where(u[2] < 0.5, columns[::-1], columns)
    return image_ops.read(jnp.arange(x.shape[0]) + down, columns + right, x, fill)

  return jax.vmap(apply)(jax.random.uniform(key, (x.shape[0], 3), jnp.float32), x)


AUGMENTATIONS: dict[str, Augment | None] = {
  'none': None,
  'crop_flip': lambda key, x, black=0.0: crop_flip(key, x, _eighth(x), True, black),
  'crop': lambda key, x, black=0.0: crop_flip(key, x, _eighth(x), False, black),
  'flip': lambda key, x, black=0.0: crop_flip(key, x, 0, True, black),
  'dsa': lambda key, x, black=0.0: dsa(key, x),
  'dsa_no_flip': lambda key, x, black=0.0: dsa(key, x, tuple(g for g in GROUPS if g != 'flip')),
}


def resolve_augment(name: str) -> Augment | None:
  """Returns the augmentation that `client.augment` names.

  Args:
    name: a key of `AUGMENTATIONS`; 'crop_flip' pads an eighth of the side, 4 pixels for 28 and 32.

  Returns:
    (key, x [batch, height, width, channels], black=0.0) -> x, or None for 'none'.

  Raises:
    ValueError: for an unknown name.
  """
  if name not in AUGMENTATIONS:
    raise ValueError(f'client.augment = {name!r} is none of {", ".join(AUGMENTATIONS)}')
  return AUGMENTATIONS[name]


def _check(operations: tuple[str, ...]) -> None:
  if not set(operations) <= set(GROUPS) or len(set(operations)) < len(operations):
    raise ValueError(
      f'augmentation {"_".join(operations)!r}: use each of {", ".join(GROUPS)} once at most'
    )


def _pixels(side: int, part: float) -> int:
  return int(side * part + 0.5)


def _eighth(x: Array) -> int:
  return _pixels(x.shape[1], 0.125)


def _shifts(u: Array, most: Array | int) -> Array:
  """Turns uniform numbers into shifts -most..most of rows and columns, int [2]."""
  return jnp.floor(u[:2] * (2 * most + 1)).astype(jnp.int32) - most
