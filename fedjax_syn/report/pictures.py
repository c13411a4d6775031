"""Learned sets as pictures inside a page: one PNG per snapshot, as data URIs."""

import base64
import io
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from fedjax_syn.plotting.numbers import as_images, mosaic

ROWS, COLUMNS = 20, 10  # classes, and images of each, that are shown at most
PIXELS = 48  # images with more a side are thinned out
BYTES = 400_000  # of a set's pictures, if one of these qualities (None: without loss) suffices
QUALITIES = (None, 80, 50, 20, 5)


class Montage(NamedTuple):
  """A learned set along its synthesis."""

  iterations: list[int]
  """Of each snapshot."""
  pictures: list[str]
  """A data URI for each snapshot: a row of images for each class."""
  classes: list[int]
  """Of the rows."""
  all_classes: int
  """How many the set has."""
  columns: int
  """Images in a row."""
  width: int
  """Of a picture, in pixels."""
  height: int
  """Of a picture, in pixels."""


def montage(learned: Mapping[str, np.ndarray]) -> Montage:
  """Arranges a learned set, a class a row, an image at the same position in every snapshot.

  Args:
    learned: as in synthetic.npz: 'x' [snapshots, images, height, width, channels] as the model
      sees them, or rows of a table or sequences (see `as_images`), 'y' [snapshots, images,
      classes], 'iterations' [snapshots], 'mean' and 'std' per channel.

  Returns:
    The pictures.
  """
  labels = learned['y'][-1].argmax(axis=-1)
  present = np.unique(labels)
  classes = present[:ROWS]
  columns = min(COLUMNS, max(int(np.sum(labels == c)) for c in classes))
  x = as_images(learned['x'])
  thin = -(-max(x.shape[2:4]) // PIXELS)
  x = x[:, :, ::thin, ::thin]
  images = learned['x'].ndim == 5
  shown = np.clip(x * learned['std'] + learned['mean'] if images else x, 0, 1)
  shown = (255 * shown + 0.5).astype(np.uint8)[..., : 3 if shown.shape[-1] >= 3 else 1]
  # What no image covers shows the page's own colour.
  opaque = np.concatenate([shown, np.full_like(shown[..., :1], 255)], axis=-1)
  canvases = [mosaic(images, labels, classes, columns) for images in opaque]
  height, width = canvases[0].shape[:2]
  iterations = [int(i) for i in learned['iterations']]
  for quality in QUALITIES:
    pictures = [data_uri(canvas, quality) for canvas in canvases]
    if sum(map(len, pictures)) <= BYTES:
      break
  return Montage(iterations, pictures, classes.tolist(), len(present), columns, width, height)


def data_uri(pixels: np.ndarray, quality: int | None = None) -> str:
  """Returns a picture inside a URI.

  Args:
    pixels: uint8 [height, width, 2 or 4]; the last channel is opacity.
    quality: of a WebP, 1 to 100; None: a PNG.
  """
  from PIL import Image

  buffer, image = io.BytesIO(), Image.fromarray(pixels)
  if quality is None:
    image.save(buffer, 'png', optimize=True)
    return as_uri(buffer.getvalue())
  image.convert('RGBA').save(buffer, 'webp', quality=quality)
  return as_uri(buffer.getvalue(), 'webp')


def as_uri(content: bytes, kind: str = 'png') -> str:
  """Returns a picture's file inside a URI."""
  return f'data:image/{kind};base64,{base64.b64encode(content).decode()}'
