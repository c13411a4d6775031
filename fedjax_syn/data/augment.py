"""Augmentation inside jit: crop and flip of client batches; differentiable siamese augmentation.

Differentiable siamese augmentation (DSA; Zhao and Bilen, 2021) picks one of six groups of
operations per call. A call makes one draw of uniform numbers, which the groups turn into their
parameters: the program stays small, and the same key replays the same call, under `jax.checkpoint`
too.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp

from fedjax_syn.core.types import Array, PRNGKey
from fedjax_syn.data import image_ops


class Augment(Protocol):
  """An augmentation of a batch; the same key replays it."""

  def __call__(self, key: PRNGKey, x: Array, black: Array | float = 0.0) -> Array:
    """Returns x [batch, height, width, channels] changed; `black` [] or [channels] fills edges."""


class Group(NamedTuple):
  """One group of DSA: how uniform numbers become parameters, and the operation on one image."""

  params: Callable[[Array, tuple[int, ...]], Array]
  """(u [3], image shape) -> params."""
  apply: Callable[[Array, Array], Array]
  """(params, x [height, width, channels]) -> x."""


# How far DSA goes; the values of the authors' released code.
BRIGHTNESS = 0.5  # adds U(-b, b), in normalised units
SATURATION = 2.0  # scales the distance from grey by U(0, s)
CONTRAST = 0.5  # scales the distance from the image's mean by U(1 - c, 1 + c)
CROP = 0.125  # shifts by up to this part of the side
CUTOUT = 0.5  # the window's side as a part of the image's
FLIP = 0.5  # probability
SCALE = 1.2  # reads each axis at U(1 / s, s) times the distance from the centre
ROTATE = 15.0  # turns by U(-r, r) degrees


def colour_params(u: Array, shape: tuple[int, ...]) -> Array:
  """Returns brightness, saturation and contrast [3]."""
  low = jnp.array([-BRIGHTNESS, 0, 1 - CONTRAST], u.dtype)
  high = jnp.array([BRIGHTNESS, SATURATION, 1 + CONTRAST], u.dtype)
  return low + u * (high - low)


def crop_params(u: Array, shape: tuple[int, ...]) -> Array:
  """Returns the shift of rows and columns, int [2]."""
  return _shifts(u, jnp.array([_pixels(side, CROP) for side in shape[:2]]))


def cutout_params(u: Array, shape: tuple[int, ...]) -> Array:
  """Returns the window's first row and column, and those behind it, int [4].

  Its centre lies anywhere in the image, so that windows reach over the edge and are cut there.
  """
  sides = jnp.array([_pixels(side, CUTOUT) for side in shape[:2]])
  centre = jnp.floor(u[:2] * (jnp.array(shape[:2]) + 1 - sides % 2)).astype(jnp.int32)
  start = centre - sides // 2
  return jnp.concatenate([start, start + sides])


GROUPS: dict[str, Group] = {
  'colour': Group(colour_params, image_ops.colour),
  'crop': Group(crop_params, image_ops.shift),
  'cutout': Group(cutout_params, image_ops.cutout),
  'flip': Group(lambda u, shape: u[0] < FLIP, image_ops.mirror),
  'scale': Group(lambda u, shape: 1 / SCALE + u[:2] * (SCALE - 1 / SCALE), image_ops.scale),
  'rotate': Group(lambda u, shape: jnp.deg2rad(ROTATE * (2 * u[0] - 1)), image_ops.rotate),
}


def dsa(key: PRNGKey, x: Array, operations: tuple[str, ...] = tuple(GROUPS)) -> Array:
  """Applies one group of operations, picked uniformly, with parameters drawn for each image.

  The pick is one `jax.lax.switch`, of which one branch runs. Under vmap over keys XLA runs all
  branches and selects one, at the sum of their costs.

  Args:
    key: the same key gives the same group and parameters.
    x: [batch, height, width, channels], normalised.
    operations: the groups to pick from; () leaves x as it is. Leave out 'flip' for digits.

  Returns:
    [batch, height, width, channels].

  Raises:
    ValueError: for an unknown or repeated group.
  """
  _check(operations)
  if not operations:
    return x
  u = jax.random.uniform(key, (1 + x.shape[0], 3), jnp.float32)

  def branch(group: Group) -> Callable[[Array, Array], Array]:
    return jax.vmap(lambda u, x: group.apply(group.params(u, x.shape), x).astype(x.dtype))

  pick = jnp.floor(u[0, 0] * len(operations)).astype(jnp.int32)
  return jax.lax.switch(pick, [branch(GROUPS[name]) for name in operations], u[1:], x)


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
  """Crops every image at random from a padded copy, and mirrors it with probability 1/2.

  Args:
    key: one draw for the batch, different for each image.
    x: [batch, height, width, channels].
    padding: pixels on each side; images are shifted by -padding..padding.
    flip: whether images are mirrored left to right.
    fill: what lies around an image, [] or [channels]; black is -mean / std on normalised images.

  Returns:
    [batch, height, width, channels].
  """

  def apply(u: Array, x: Array) -> Array:
    down, right = _shifts(u, padding)
    columns = jnp.arange(x.shape[1])
    if flip:
      columns = jnp.where(u[2] < 0.5, columns[::-1], columns)
    return image_ops.read(jnp.arange(x.shape[0]) + down, columns + right, x, fill)

  return jax.vmap(apply)(jax.random.uniform(key, (x.shape[0], 3), jnp.float32), x)


# By `client.augment`; 'crop_flip' pads an eighth of the side, 4 pixels for 28 and 32.
AUGMENTATIONS: dict[str, Augment | None] = {
  'none': None,
  'crop_flip': lambda key, x, black=0.0: crop_flip(key, x, _pixels(x.shape[1], 1 / 8), True, black),
  'crop': lambda key, x, black=0.0: crop_flip(key, x, _pixels(x.shape[1], 1 / 8), False, black),
  'flip': lambda key, x, black=0.0: crop_flip(key, x, 0, True, black),
  'dsa': lambda key, x, black=0.0: dsa(key, x),
  'dsa_no_flip': lambda key, x, black=0.0: dsa(key, x, tuple(g for g in GROUPS if g != 'flip')),
}


def _check(operations: tuple[str, ...]) -> None:
  if not set(operations) <= set(GROUPS) or len(set(operations)) < len(operations):
    raise ValueError(
      f'augmentation {"_".join(operations)!r}: use each of {", ".join(GROUPS)} once at most'
    )


def _pixels(side: int, part: float) -> int:
  return int(side * part + 0.5)


def _shifts(u: Array, most: Array | int) -> Array:
  """Turns uniform numbers into shifts -most..most of rows and columns, int [2]."""
  return jnp.floor(u[:2] * (2 * most + 1)).astype(jnp.int32) - most
