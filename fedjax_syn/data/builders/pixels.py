"""What image files mean: which are opened, and how their pixels become 8 bits.

docs/data.md says the same for users. Nothing here starts a program, and nothing is clipped or
wrapped.
"""

import contextlib
import io
import re
import threading
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
from PIL import (  # noqa: F401  each makes its format known; Pillow would import all that there are
  AvifImagePlugin,
  BmpImagePlugin,
  GifImagePlugin,
  Image,
  Jpeg2KImagePlugin,
  JpegImagePlugin,
  PngImagePlugin,
  PpmImagePlugin,
  QoiImagePlugin,
  TiffImagePlugin,
  WebPImagePlugin,
)

from fedjax_syn.core import texts
from fedjax_syn.data.builders import bounded
from fedjax_syn.data.scaling import bits_of, from_unit, narrow, resize_square

# Pillow decodes these formats by itself (EPS starts Ghostscript), and their first bytes name them.
FORMATS = ('PNG', 'JPEG', 'TIFF', 'BMP', 'GIF', 'PPM', 'WEBP', 'AVIF', 'JPEG2000', 'QOI')
_SIGNATURE = re.compile(
  rb'\x89PNG\r\n\x1a\n|\xff\xd8\xff|II\*\0|MM\0\*|II\+\0|MM\0\+|BM.{4}\0{4}|GIF8[79]a'
  rb'|P[1-6f]\s+(?:#|\d+\s+[\d#])'
  rb'|RIFF.{4}WEBP|.{4}ftypavi[fs]|\0\0\0\x0cjP  \r\n\x87\n|\xff\x4f\xff\x51|qoif',
  re.DOTALL,
)
_FILTERS = threading.Lock()  # of warnings: they are the process's, and images are opened in threads
_DAMAGED = 'fedjax_syn: damaged tags'  # a key of an image's info
_HEAD = 32  # bytes that tell a format
_TURNS = {  # by EXIF's orientation: what undoes it
  2: Image.Transpose.FLIP_LEFT_RIGHT,
  3: Image.Transpose.ROTATE_180,
  4: Image.Transpose.FLIP_TOP_BOTTOM,
  5: Image.Transpose.TRANSPOSE,
  6: Image.Transpose.ROTATE_270,
  7: Image.Transpose.TRANSVERSE,
  8: Image.Transpose.ROTATE_90,
}
_ORIENTATION, _WHITE_IS_ZERO, _BITS, _FORMAT, _SIGNED = 274, 262, 258, 339, 2  # of EXIF and TIFF
_SUBFILE, _REDUCED, _DNG = 254, 1, 50706  # of TIFF, whose container cameras use for raw files


class Pixels(NamedTuple):
  """One decoded image."""

  array: np.ndarray
  """[height, width, 1 or 3], uint8, or uint16 if the file has more than 8 bits."""
  top: int = 0
  """Of a file with more bits: its largest value before resizing, or what it says can be."""
  notes: tuple[str, ...] = ()
  """What was decided on the way, a phrase each."""


def is_image(path: Path) -> bool:
  """States by a file's first bytes, whatever its name, whether it is an image of `FORMATS`.

  Args:
    path: a regular file.

  Returns:
    False for everything else, cameras' raw files and what is damaged beyond recognition included.

  Raises:
    OSError: if the file cannot be read.
  """
  with path.open('rb') as file:
    head = file.read(_HEAD)
  return bool(_SIGNATURE.match(head)) and (head[:2] not in (b'II', b'MM') or _is_tiff(path, head))


def _is_tiff(path: Path, head: bytes) -> bool:
  """Returns whether a file is a TIFF, and no raw file (DNG, NEF, CR2), whose image is a preview."""
  if head[8:10] == b'CR':
    return False
  try:
    with open_image(path, ('TIFF',)) as image:
      tags = getattr(image, 'tag_v2', {})
      subfile = tags.get(_SUBFILE, 0)
      return _DNG not in tags and not (isinstance(subfile, int) and subfile & _REDUCED)
  except ValueError:
    return False


@contextlib.contextmanager
def _collect_warnings() -> Iterator[list[warnings.WarningMessage]]:
  """Collects what Pillow says of tags that it skips."""
  with _FILTERS, warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter('ignore')
    for words in ('Truncated File', 'Tag data larger', 'Tag offset', 'Corrupt EXIF'):
      warnings.filterwarnings('always', words)
    yield caught


@contextlib.contextmanager
def open_image(
  source: Path | BinaryIO, formats: tuple[str, ...] = FORMATS
) -> Iterator[Image.Image]:
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
    with _collect_warnings() as caught:
      image = Image.open(source, formats=formats)
    with image:
      if caught and image.format == 'TIFF':  # whose tags say how pixels are to be read
        raise ValueError(f'damaged tags: {caught[0].message}')
      image.info[_DAMAGED] = bool(caught)
      yield image
  except Image.UnidentifiedImageError as error:
    raise ValueError(f'not a whole image of {", ".join(formats)}') from error
  except Exception as error:  # what Pillow raises has no base class
    if isinstance(error, OSError) and error.errno:
      raise
    raise ValueError(texts.first_line(error, 200)) from error


def read_rgb(
  content: bytes, side: int = 0, formats: tuple[str, ...] = FORMATS, draft: bool = False
) -> np.ndarray:
  """Returns an image as 8-bit RGB, upright, scaled by the range of its type and stretched.

  Args:
    content: of a file.
    side: height and width to which it is scaled, in pixels; 0 takes it as it is.
    formats: as in `open_image`.
    draft: whether a JPEG file may be decoded at a half, a quarter ... of its size: no aliases.

  Returns:
    uint8 [height, width, 3].

  Raises:
    ValueError: if it is no such image, or its values have no range: floats beyond 0..1, 32-bit
      integers.
  """
  with open_image(io.BytesIO(content), formats) as image:
    if draft:
      image.draft('RGB', (side, side))
    rgb = _channels(narrow(decode(image).array, 16), 3)
    scaled = Image.fromarray(rgb).resize((side, side), Image.Resampling.BILINEAR) if side else rgb
    return np.asarray(scaled)


def read(paths: Sequence[Path], where: str, size: int = 0) -> tuple[np.ndarray, tuple[str, ...]]:
  """Reads the images of one data set, and scales them alike.

  Args:
    paths: the files.
    where: what a message begins with.
    size: as `decode`.

  Returns:
    uint8 [n, height, width, channels], one channel if all of them are grey, and what was decided
    for how many.

  Raises:
    ValueError: if a file cannot be read, or has another size than the first.
  """
  images = []
  one = f'{where}: {len(paths)} images of'
  bounded.check_bytes(len(paths) * size**2, f'{one} data.size={size}')
  for path in paths:
    try:
      with open_image(path) as image:
        images.append(decode(image, size))
    except (ValueError, MemoryError) as error:
      raise ValueError(f'{where}: {path} cannot be read ({texts.one_line(error)})') from error
    if len(images) == 1:
      height, width, channels = images[0].array.shape
      bounded.check_bytes(
        len(paths) * images[0].array.nbytes,
        f'{one} {width} x {height} pixels, {channels} channels,',
      )
    shapes = [a.array.shape[1::-1] for a in (images[0], images[-1])]
    if shapes[0] != shapes[1]:
      first, other = ('x'.join(map(str, shape)) for shape in shapes)
      raise ValueError(
        f'{where}: {paths[0]} has {first} pixels and {path} {other}; data.size=32, say, resizes '
        'all of them'
      )
  try:
    return join(images)
  except ValueError as error:
    raise ValueError(f'{where}: {error}') from error


def join(images: Sequence[Pixels], channels: int = 1) -> tuple[np.ndarray, tuple[str, ...]]:
  """Brings images of one size to 8 bits by one range, and to one number of channels.

  Args:
    images: of one data set.
    channels: the fewest to return.

  Returns:
    uint8 [n, height, width, channels], and notes.

  Raises:
    ValueError: if 16-bit values do not use their type.
  """
  notes = Counter(note for image in images for note in image.notes)
  wide = [image for image in images if image.top or image.array.dtype == np.uint16]
  top = max((image.top for image in wide), default=0)
  bits = bits_of(top)
  if bits < 16 and any(image.array.dtype == np.uint8 for image in wide):
    raise ValueError(
      f'its 16-bit colours use {bits} bits at most, and of these the upper 8 of 16 would be read: '
      'save them with 8 bits per channel'
    )
  if wide and top == 1:
    raise ValueError('its 16-bit values are 0 and 1 alone: save them with 1 or 8 bits')
  if wide:
    reason = f', as the largest value is {top}' if bits < 16 else ''
    notes[f'scaled from {bits} bits{reason}'] = len(wide)
  channels = max([3 if channels >= 3 else 1, *(image.array.shape[-1] for image in images)])
  x = np.stack([_channels(narrow(image.array, bits), channels) for image in images])
  return x, tuple(f'{note}: {count} image{"s"[: count > 1]}' for note, count in notes.items())


def _channels(array: np.ndarray, channels: int) -> np.ndarray:
  return array if array.shape[-1] == channels else np.repeat(array, channels, axis=-1)


def decode(image: Image.Image, size: int = 0) -> Pixels:
  """Returns an image upright, with as many bits as it has.

  Args:
    image: as `open_image` gives it.
    size: side in pixels of the middle square to return; 0 returns all of it.

  Raises:
    ValueError: if its values have no range: floats beyond 0..1, 32-bit integers.
  """
  notes = []
  if getattr(image, 'is_animated', False):
    image.seek(0)
    notes.append('the first of several frames taken')
  stored = getattr(image, 'tag_v2', {})  # of TIFF
  tags = {tag: stored.get(tag) for tag in (_BITS, _WHITE_IS_ZERO, _FORMAT, _ORIENTATION)}
  raw = _raw_mode(image)
  image.load()  # PNG may say its orientation behind the pixels
  with _collect_warnings() as caught:
    image, turned = _upright(image)
  if caught or image.info.get(_DAMAGED):
    notes.append('damaged EXIF, in part ignored')
  if turned or tags[_ORIENTATION] in _TURNS:  # Pillow turns TIFF itself
    notes.append('turned upright by EXIF')
  if image.mode == 'F':
    values = from_unit(np.asarray(image))  # one dark image says nothing of the set
    values = 255 - values if tags[_WHITE_IS_ZERO] == 0 else values
    array = np.asarray(resize_square(Image.fromarray(values), size))
    return Pixels(array[..., None], 0, (*notes, 'scaled from floats in 0..1'))
  deep = ';16' in raw and not raw.startswith('BGR')  # BMP's are of 5 and 6 bits, and scaled
  if (deep or image.mode[0] == 'I') and 'transparency' in image.info:
    raise ValueError('a transparent value among 16 bits; save it with 8 bits per channel')
  if image.mode[0] == 'I':
    return _of_integers(image, size, tags, notes)
  if _SIGNED in (tags[_FORMAT] or ()):
    raise ValueError('signed 8-bit values have no range of their own')
  grey = image.mode in ('1', 'L', 'LA', 'La') or raw.startswith('LA')
  array = np.asarray(resize_square(_opaque(image, grey, notes), size))
  if image.mode in ('P', 'PA') and (array == array[..., :1]).all():
    array = array[..., 0]  # a palette of greys
  top = int(array.max()) * 256 + 255 if deep else 0
  return Pixels(array if array.ndim == 3 else array[..., None], top, tuple(notes))


def _raw_mode(image: Image.Image) -> str:
  """Returns how the file stores pixels: Pillow shortens 16-bit colours to their upper 8 bits."""
  tiles = getattr(image, 'tile', None)
  args = tiles[0][3] if tiles else ''
  return str(args[0] if isinstance(args, tuple) and args else args)


def _upright(image: Image.Image) -> tuple[Image.Image, bool]:
  try:
    orientation = image.getexif().get(_ORIENTATION)
  except Exception:  # damaged EXIF: image viewers ignore it, too
    return image, False
  if orientation not in _TURNS:
    return image, False
  turned = image.transpose(_TURNS[orientation])
  turned.info = image.info
  return turned, True


def _of_integers(image: Image.Image, size: int, tags: dict, notes: list[str]) -> Pixels:
  values = np.asarray(image).astype(np.int64)
  low, high = int(values.min()), int(values.max())
  if low < 0 or high > 65535:
    raise ValueError(f'32-bit values {low}..{high} have no range of their own')
  known = {'PPM': 65535}.get(str(image.format)) or (tags[_BITS] == (12,) and 4095)
  if tags[_WHITE_IS_ZERO] == 0:
    values, high = 65535 - values, 65535
  resized = np.asarray(resize_square(Image.fromarray(values.astype(np.float32)), size))
  array = np.rint(resized).clip(0, known or high).astype(np.uint16)  # bicubic overshoots
  return Pixels(array[..., None], known or high, tuple(notes))


def _opaque(image: Image.Image, grey: bool, notes: list[str]) -> Image.Image:
  """Returns an image as L or RGB, on white."""
  if image.mode == 'LAB':
    raise ValueError('LAB colours are not read; save it as RGB')
  if image.mode == 'CMYK':
    notes.append('converted from CMYK without a colour profile')
  if image.mode in ('LA', 'La', 'PA', 'RGBA', 'RGBa') or 'transparency' in image.info:
    layer = (image.convert('LA') if image.mode == 'La' else image).convert('RGBA')
    if np.asarray(layer)[..., 3].min() < 255:
      notes.append('laid on white where transparent')
      layer = Image.alpha_composite(Image.new('RGBA', layer.size, 'white'), layer)
    image = layer
  mode = 'L' if grey else 'RGB'
  return image if image.mode == mode else image.convert(mode)
