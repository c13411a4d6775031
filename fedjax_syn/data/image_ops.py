"""Operations on one image, as functions of their parameters: differentiable in the image, and pure.

Images are [height, width, channels]. Geometry is in pixels about the image's centre, which for
square images is the convention of aligned corners; what moves in from outside is zero, unless said
otherwise.
"""

import jax
import jax.numpy as jnp

from fedjax_syn.core.types import Array


def brightness(amount: Array, x: Array) -> Array:
  """Adds an amount [] to every value."""
  return x + amount


def saturation(factor: Array, x: Array) -> Array:
  """Scales [] the distance of every pixel from its own grey: 0 is grey, 1 changes nothing."""
  grey = x.mean(-1, keepdims=True)
  return (x - grey) * factor + grey


def contrast(factor: Array, x: Array) -> Array:
  """Scales [] the distance of every value from the image's mean: 0 is flat, 1 changes nothing."""
  mean = x.mean()
  return (x - mean) * factor + mean


def colour(params: Array, x: Array) -> Array:
  """Changes brightness, saturation and contrast in this order, by params [3]."""
  return contrast(params[2], saturation(params[1], brightness(params[0], x)))


def mirror(flag: Array, x: Array) -> Array:
  """Mirrors left to right if the flag [] is set."""
  return jnp.where(flag, x[:, ::-1], x)


def shift(offset: Array, x: Array, fill: Array | float = 0.0) -> Array:
  """Reads x[i + offset[0], j + offset[1]], outside `fill` ([] or [channels]); offset int [2]."""
  height, width, _ = x.shape
  i, j = jnp.arange(height) + offset[0], jnp.arange(width) + offset[1]
  inside = _inside(i, height)[:, None] & _inside(j, width)
  moved = x[jnp.clip(i, 0, height - 1)][:, jnp.clip(j, 0, width - 1)]
  return jnp.where(inside[..., None], moved, jnp.asarray(fill, x.dtype))


def read(rows: Array, columns: Array, x: Array, fill: Array | float = 0.0) -> Array:
  """Reads x[rows[i], columns[j]], outside `fill` ([] or [channels]): int [height], int [width].

  It multiplies by matrices of zeros and ones, which is exact. After a gather, the next convolution
  would read every pixel again for each position of its kernel, which doubled the time of a local
  step.
  """
  height, width, _ = x.shape
  across = (columns[:, None] == jnp.arange(width)).astype(x.dtype)
  down = (rows[:, None] == jnp.arange(height)).astype(x.dtype)
  moved = jnp.einsum('jw,hwc->hjc', across, x, precision='highest')
  moved = jnp.einsum('ih,hjc->ijc', down, moved, precision='highest')
  inside = _inside(rows, height)[:, None] & _inside(columns, width)
  return jnp.where(inside[..., None], moved, jnp.asarray(fill, x.dtype))


def cutout(box: Array, x: Array) -> Array:
  """Blanks rows box[0]..box[2]-1 of columns box[1]..box[3]-1; int [4], may reach outside."""
  i, j = jnp.arange(x.shape[0])[:, None], jnp.arange(x.shape[1])
  cut = (i >= box[0]) & (i < box[2]) & (j >= box[1]) & (j < box[3])
  return jnp.where(cut[..., None], 0, x)


def scale(factors: Array, x: Array) -> Array:
  """Reads at factors [2] times the distance from the centre: below 1 enlarges; bilinear.

  It is separable: two small matrix products, whose adjoints are products as well.
  """

  def weights(factor, side):  # [side, side]: how much of source pixel k goes to pixel i
    source = _centre(side) + factor * (jnp.arange(side) - _centre(side))
    return jax.nn.relu(1 - jnp.abs(source[:, None] - jnp.arange(side))).astype(x.dtype)

  rows, cols = weights(factors[0], x.shape[0]), weights(factors[1], x.shape[1])
  return jnp.einsum('ih,hwc,jw->ijc', rows, x, cols, precision=jax.lax.Precision.HIGHEST)


def rotate(angle: Array, x: Array) -> Array:
  """Turns counter-clockwise about the centre by an angle [] in radians; bilinear."""
  height, width, _ = x.shape
  i, j = jnp.arange(height)[:, None] - _centre(height), jnp.arange(width) - _centre(width)
  sin, cos = jnp.sin(angle), jnp.cos(angle)
  row, col = _centre(height) + cos * i + sin * j, _centre(width) - sin * i + cos * j
  top, left = jnp.floor(row).astype(jnp.int32), jnp.floor(col).astype(jnp.int32)
  out = jnp.zeros_like(x)
  for r, c in ((top, left), (top, left + 1), (top + 1, left), (top + 1, left + 1)):
    weight = (1 - jnp.abs(row - r)) * (1 - jnp.abs(col - c))
    weight = jnp.where(_inside(r, height) & _inside(c, width), weight, 0).astype(x.dtype)
    out += weight[..., None] * x[jnp.clip(r, 0, height - 1), jnp.clip(c, 0, width - 1)]
  return out


def _centre(side: int) -> float:
  return (side - 1) / 2


def _inside(index: Array, side: int) -> Array:
  return (index >= 0) & (index < side)
