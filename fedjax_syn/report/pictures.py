"""Learned sets as pictures inside a page: one PNG per snapshot, as data URIs."""

import base64
import io
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

ROWS, COLUMNS = 20, 10  # classes, and images of each, that are shown at most
PIXELS = 64  # images with more a side are thinned out


class Montage(NamedTuple):
  """A learned set along its synthesis."""

  iterations: list[int]  # of each snapshot
  pictures: list[str]  # a data URI for each snapshot: a row of images for each class
  classes: list[int]  # of the rows
  all_classes: int  # how many the set has
  columns: int  # images in a row
  width: int  # of a picture, in pixels
  height: int


def montage(learned: Mapping[str, np.ndarray]) -> Montage:
  """Lays a learned set out, a class a row, an image at the same place in every snapshot.

  Args:
    learned: as in synthetic.npz: 'x' [snapshots, images, height, width, channels] as the model sees them, 'y'
      [snapshots, images, classes], 'iterations' [snapshots], 'mean' and 'std' per channel.

  Returns:
    The pictures.
  """
  labels = learned['y'][-1].argmax(axis=-1)
  found = np.unique(labels)
  classes = found[:ROWS]
  columns = min(COLUMNS, max(int(np.sum(labels == c)) for c in classes))
  thin = -(-max(learned['x'].shape[2:4]) // PIXELS)
  x = learned['x'][:, :, ::thin, ::thin]
  shown = np.clip(x * learned['std'] + learned['mean'], 0, 1)
  shown = (255 * shown + 0.5).astype(np.uint8)[..., : 3 if shown.shape[-1] >= 3 else 1]
  height, width = shown.shape[2] + 1, shown.shape[3] + 1  # a line between images
  pictures = []
  for images in shown:
    canvas = np.zeros((height * len(classes), width * columns, shown.shape[-1] + 1), np.uint8)
    for i, c in enumerate(classes):
      for j, image in enumerate(images[labels == c][:columns]):
        y, x = i * height, j * width
        canvas[y : y + height - 1, x : x + width - 1] = opaque(image)
    pictures.append(data_uri(canvas))
  iterations = [int(i) for i in learned['iterations']]
  return Montage(
    iterations,
    pictures,
    classes.tolist(),
    len(found),
    columns,
    width * columns,
    height * len(classes),
  )


def opaque(image: np.ndarray) -> np.ndarray:
  """Adds a channel of 255: what is not covered by images shows the page's own colour."""
  return np.concatenate([image, np.full_like(image[..., :1], 255)], axis=-1)


def data_uri(pixels: np.ndarray) -> str:
  """Returns uint8 [height, width, 2 or 4], the last channel opacity, as a PNG inside a URI."""
  from PIL import Image

  buffer = io.BytesIO()
  Image.fromarray(pixels).save(buffer, 'png', optimize=True)
  return as_uri(buffer.getvalue())


def as_uri(png: bytes) -> str:
  """Returns a PNG file inside a URI."""
  return 'data:image/png;base64,' + base64.b64encode(png).decode()
