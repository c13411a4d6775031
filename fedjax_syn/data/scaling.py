"""Pixels of any type become 8 bits, by the range that they have; images get another size."""

from collections.abc import Mapping

import numpy as np
from PIL import Image

BITS = (8, 10, 12, 14, 16)  # what cameras, scanners and microscopes write into 16 bits
_SLACK = 1e-6  # rounding errors of computed floats


def bits_of(top: float) -> int:
  """Returns the fewest of `BITS` that hold a value."""
  return next(bits for bits in BITS if top < 1 << bits)


def narrow(array: np.ndarray, bits: int) -> np.ndarray:
  """Returns integers 0 .. 2^bits - 1 as uint8 0..255, rounded; uint8 as it is."""
  if array.dtype == np.uint8:
    return array
  top = (1 << bits) - 1
  return ((array.astype(np.uint32) * 510 + top) // (2 * top)).astype(np.uint8)


def scale(array: np.ndarray) -> np.ndarray:
  """Returns pixels of any numeric type as uint8, by their range; see `scale_together`."""
  return scale_together({'': array})[0]['']


def scale_together(
  arrays: Mapping[str, np.ndarray],
) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
  """Scales the arrays of one data set to 8 bits, integers by one range.

  Args:
    arrays: by name; uint8; bool; floats in 0..1; integers of other types in 0..65535, whose range
      is the fewest of 8, 10, 12, 14 and 16 bits that hold them all.

  Returns:
    Arrays of uint8 and the same shapes, and what was scaled. Values are rounded, never clipped or
    wrapped.

  Raises:
    ValueError: if values lie outside, use nothing of their range, or the type is none of these.
  """
  arrays = {name: np.asarray(array) for name, array in arrays.items()}
  tops = {name: _top(name, array) for name, array in arrays.items()}
  others = {name: a.dtype for name, a in arrays.items() if a.dtype != np.uint8}
  integers = [tops[name] for name, dtype in others.items() if dtype.kind in 'iu']
  if integers and max(integers) == 1:
    raise ValueError(
      'pixels are the integers 0 and 1 alone; bool, uint8 0..255 or floats in 0..1 would work'
    )
  bits = bits_of(max(integers, default=0))
  scaled = {name: _eight_bits(name, array, bits) for name, array in arrays.items()}
  ranges = {'f': '0..1', 'b': 'no and yes'}
  kinds = {(d.name, ranges.get(d.kind, f'{bits} bits')) for d in others.values()}
  return scaled, tuple(f'pixels scaled from {kind}, {what}' for kind, what in sorted(kinds))


def from_unit(array: np.ndarray, what: str = 'pixels are') -> np.ndarray:
  """Returns floats in 0..1 as uint8 0..255, rounded.

  Args:
    array: floats of any shape.
    what: a message begins with it.

  Raises:
    ValueError: if values lie outside.
  """
  low, top = (array.min().item(), array.max().item()) if array.size else (0, 0)
  if not (low >= -_SLACK and top <= 1 + _SLACK):  # refuses NaN, too
    raise ValueError(
      f'{what} {array.dtype} {low:.6g}..{top:.6g}; floats must lie in 0..1, before any '
      'normalisation: divide 0..255 by 255'
    )
  return np.rint(array.clip(0, 1) * 255).astype(np.uint8)


def _top(name: str, array: np.ndarray) -> float:
  """Returns the largest value, after a check that the array has a range."""
  what = f'{_are(name)} {array.dtype}'
  if array.dtype.kind not in 'buif':
    raise ValueError(f'{what}; uint8 0..255 or floats in 0..1 would work')
  if array.dtype in (bool, np.uint8) or not array.size:
    return 0
  low, top = array.min().item(), array.max().item()
  if array.dtype.kind == 'f':
    if 0 < top <= 1 / 255:
      raise ValueError(
        f'{what} {low:.6g}..{top:.6g}, divided by 255 twice, it seems; floats must use 0..1'
      )
  elif low < 0 or top > 65535:
    raise ValueError(f'{what} {low}..{top}; uint8 0..255, floats in 0..1 or bool would work')
  return top


def _eight_bits(name: str, array: np.ndarray, bits: int) -> np.ndarray:
  if array.dtype.kind == 'f':
    return from_unit(array, _are(name))
  if array.dtype == bool:
    return array.astype(np.uint8) * np.uint8(255)
  return narrow(array, bits)


def _are(name: str) -> str:
  return f'pixels{" of " if name else ""}{name} are'


def resize_square(image: Image.Image, size: int) -> Image.Image:
  """Resizes the middle square of an image to `size` pixels a side; 0 changes nothing."""
  if not size or image.size == (size, size):
    return image
  side = min(image.size)
  left, top = ((n - side) // 2 for n in image.size)
  box = left, top, left + side, top + side
  return image.resize(
    (size, size), Image.Resampling.BOX if side > size else Image.Resampling.BICUBIC, box
  )


def resize_array(array: np.ndarray, size: int) -> np.ndarray:
  """As `resize_square`, for pixels [height, width, channels] of any numeric type, which is kept."""
  if not size or array.shape[:2] == (size, size) or not array.size:
    return array
  if array.dtype == np.uint8 and array.shape[-1] in (1, 3):
    one = array.shape[-1] == 1
    resized = np.asarray(resize_square(Image.fromarray(array[..., 0] if one else array), size))
    return resized[..., None] if one else resized
  channels = [
    np.asarray(resize_square(Image.fromarray(c.astype(np.float32)), size))
    for c in np.moveaxis(array, -1, 0)
  ]
  resized = np.stack(channels, -1).clip(array.min(), array.max())  # bicubic overshoots
  return (
    resized.astype(array.dtype) if array.dtype.kind == 'f' else np.rint(resized).astype(array.dtype)
  )
