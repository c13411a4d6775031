"""What image files and arrays of pixels mean: which files are opened, and how their values become 8 bits.

docs/data.md says the same for users. Nothing here starts a program, and no value is clipped or wrapped.
"""

import contextlib
import re
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
from PIL import Image, ImageOps

# Formats that Pillow decodes by itself and that say in their first bytes what they are. EPS starts Ghostscript.
_WANTED = (
  *('PNG', 'JPEG', 'MPO', 'TIFF', 'BMP', 'GIF', 'PPM', 'WEBP', 'AVIF', 'JPEG2000', 'QOI', 'SGI'),
)
Image.init()
FORMATS = tuple(name for name in _WANTED if name in Image.OPEN)
_SIGNATURE = re.compile(
  rb'\x89PNG\r\n\x1a\n|\xff\xd8\xff|(?:II\*\0|MM\0\*|II\+\0|MM\0\+)|BM.{4}\0{4}|GIF8[79]a|P[1-6f]\s+[\d#]'
  rb'|RIFF.{4}WEBP|.{4}ftypavi[fs]|\0\0\0\x0cjP  \r\n\x87\n|\xff\x4f\xff\x51|qoif|\x01\xda[\0\x01][\x01\x02]',
  re.DOTALL,
)
_HEAD = 32  # bytes that tell a format
BITS = (8, 10, 12, 14, 16)  # what cameras, scanners and microscopes write into 16 bits
BACKGROUND = 255  # white, behind what is transparent


class Pixels(NamedTuple):
  """One decoded image."""

  array: np.ndarray  # [height, width, 1 or 3], uint8, or uint16 if the file has more than 8 bits
  top: int  # the largest value in the file, before resizing; 0 where 8 bits are all there is
  notes: tuple[str, ...]  # what was decided on the way, one phrase each


def is_image(path: Path) -> bool:
  """Says whether the first bytes of a file are those of an image of `FORMATS`; its name does not matter.

  Args:
    path: a regular file that can be read.

  Returns:
    False for everything else, damaged beyond recognition included.

  Raises:
    OSError: if the file cannot be read.
  """
  with path.open('rb') as file:
    return bool(_SIGNATURE.match(file.read(_HEAD)))


@contextlib.contextmanager
def open_image(source: Path | BinaryIO, formats: Sequence[str] = FORMATS) -> Iterator[Image.Image]:
  """Opens an image of known formats; its pixels are read when they are asked for.

  Args:
    source: a path or an open file.
    formats: Pillow's names of the formats that may be opened.

  Yields:
    The image as it is stored: `decode` turns it upright.

  Raises:
    ValueError: if it, or what the body of the `with` does to it, fails on its content.
    OSError: if the file cannot be read.
  """
  try:
    with warnings.catch_warnings():
      warnings.simplefilter('error', Image.DecompressionBombWarning)
      image = Image.open(source, formats=formats)
    with image:
      yield image
  except Image.UnidentifiedImageError as error:
    raise ValueError(f'no whole image of {", ".join(formats)}') from error
  except Exception as error:  # what Pillow raises has no base class
    if isinstance(error, OSError) and error.errno:
      raise
    lines = str(error).splitlines() or [type(error).__name__]
    raise ValueError(lines[0][:200]) from error


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


def to_array(image: Image.Image, size: int = 0) -> np.ndarray:
  """Returns an image as uint8 [height, width, 1 or 3], upright, scaled by the range of its type.

  Args:
    image: as Pillow opened it.
    size: side in pixels of the middle square to return; 0 returns all of it.

  Returns:
    One channel where the file is grey, three otherwise.

  Raises:
    ValueError: if its values have no range: floats beyond 0..1, 32-bit integers.
  """
  return narrow(decode(image, size).array, 16)


def decode(image: Image.Image, size: int = 0) -> Pixels:
  """Returns an image upright, with its own number of bits; see `to_array`."""
  notes = ()
  if getattr(image, 'is_animated', False):
    image.seek(0)
    notes += ('the first of several frames taken',)
  image.load()
  if image.getexif().get(0x0112, 1) in range(2, 9):
    notes += ('turned upright by EXIF',)
  image = ImageOps.exif_transpose(image)
  if image.mode == 'F':
    return Pixels(_resized(scale(np.asarray(image)), size), 0, (*notes, 'scaled from floats'))
  if image.mode.startswith('I'):
    values = np.asarray(image)
    if values.min() < 0 or values.max() > 65535:
      raise ValueError(f'32-bit values {values.min()}..{values.max()} have no range of their own')
    wide = np.asarray(fit(Image.fromarray(values.astype(np.float32)), size))
    array = np.clip(np.rint(wide), 0, 65535).astype(np.uint16)[..., None]
    return Pixels(array, int(values.max()), notes)
  clear = 'A' in image.mode or 'a' in image.mode or 'transparency' in image.info
  grey = image.mode in ('1', 'L', 'LA', 'La')
  if clear:
    layer = image.convert('RGBA')
    page = Image.new('RGBA', layer.size, (BACKGROUND,) * 3 + (255,))
    if layer.getextrema()[3][0] < 255:
      notes += ('laid on white where transparent',)
    image = Image.alpha_composite(page, layer)
  array = np.asarray(fit(image.convert('L' if grey else 'RGB'), size))
  return Pixels(array if array.ndim == 3 else array[..., None], 0, notes)


def _resized(pixels: np.ndarray, size: int) -> np.ndarray:
  return np.asarray(fit(Image.fromarray(pixels), size))[..., None]


def bits_of(top: int) -> int:
  """Returns the fewest of `BITS` that hold a value."""
  return next(bits for bits in BITS if top < 1 << bits)


def narrow(array: np.ndarray, bits: int) -> np.ndarray:
  """Returns integers 0 .. 2^bits - 1 as uint8 0..255, rounded; uint8 as it is."""
  if array.dtype == np.uint8:
    return array
  top = (1 << bits) - 1
  return ((array.astype(np.uint32) * 510 + top) // (2 * top)).astype(np.uint8)


def scale(array: np.ndarray) -> np.ndarray:
  """Returns pixels of any numeric type as uint8, by the range that they have.

  Args:
    array: uint8; bool; floats in 0..1; integers of other types in 0..65535, whose range is the fewest of 8,
      10, 12, 14 and 16 bits that hold them.

  Returns:
    uint8 of the same shape; values are rounded, never clipped or wrapped.

  Raises:
    ValueError: if the values lie outside, or the type is none of these.
  """
  array = np.asarray(array)
  if array.dtype == np.uint8 or not array.size:
    return array.astype(np.uint8, copy=False)
  if array.dtype == bool:
    return array.astype(np.uint8) * np.uint8(255)
  low, high = (array.min(), array.max()) if array.dtype.kind in 'iuf' else (0, 0)
  if array.dtype.kind == 'f':
    if not (low >= -1e-6 and high <= 1 + 1e-6):  # NaN too
      raise ValueError(
        f'pixels are {array.dtype} {low:.6g}..{high:.6g}; floats must lie in 0..1, or hand uint8 0..255'
      )
    return np.rint(np.clip(array, 0, 1) * 255).astype(np.uint8)
  if array.dtype.kind not in 'iu':
    raise ValueError(f'pixels are {array.dtype}; uint8 0..255 or floats in 0..1 would work')
  if low < 0 or high > 65535 or high <= 1:
    raise ValueError(
      f'pixels are {array.dtype} {low}..{high}; hand uint8 0..255, floats in 0..1, or bool'
    )
  return narrow(array, bits_of(int(high)))
