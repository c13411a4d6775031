"""The middle square of an image or of an array of pixels, at another size."""

import numpy as np
from PIL import Image


def fit(image: Image.Image, size: int) -> Image.Image:
  """Cuts the middle square out of an image and resizes it to `size` pixels a side; 0 leaves it as it is."""
  if not size or image.size == (size, size):
    return image
  side = min(image.size)
  left, top = ((n - side) // 2 for n in image.size)
  box = left, top, left + side, top + side
  return image.resize(
    (size, size), Image.Resampling.BOX if side > size else Image.Resampling.BICUBIC, box
  )


def fit_array(array: np.ndarray, size: int) -> np.ndarray:
  """As `fit`, for pixels [height, width, channels] of any numeric type, which is kept."""
  if not size or array.shape[:2] == (size, size) or not array.size:
    return array
  if array.dtype == np.uint8 and array.shape[-1] in (1, 3):
    one = array.shape[-1] == 1
    resized = np.asarray(fit(Image.fromarray(array[..., 0] if one else array), size))
    return resized[..., None] if one else resized
  channels = [
    np.asarray(fit(Image.fromarray(c.astype(np.float32)), size)) for c in np.moveaxis(array, -1, 0)
  ]
  resized = np.stack(channels, -1).clip(array.min(), array.max())  # bicubic overshoots
  return (
    resized.astype(array.dtype) if array.dtype.kind == 'f' else np.rint(resized).astype(array.dtype)
  )
