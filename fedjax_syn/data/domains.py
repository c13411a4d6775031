"""Data sets of several domains (MNIST and USPS, photographs and paintings).

Each domain is one client and has test metrics of its own.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image

from fedjax_syn.data.dataset import Dataset, make
from fedjax_syn.data.normalisation import UNMEASURED
from fedjax_syn.data.split import Split, check_split


class Domain(NamedTuple):
  """One domain, images of any one size."""

  name: str
  train: Split
  test: Split


def fit(x: np.ndarray, side: int, channels: int) -> np.ndarray:
  """Brings images to one size and number of channels.

  Args:
    x: uint8 [n, height, width, 1 or 3].
    side: height and width to scale to, in pixels; bilinear, over the area of a pixel where it
      shrinks.
    channels: 1 (luminance, by Pillow's weights of red, green and blue) or 3 (grey ones are
      repeated).

  Returns:
    uint8 [n, side, side, channels].
  """
  if x.shape[1:] == (side, side, channels):
    return x
  out = np.empty((len(x), side, side, channels), np.uint8)
  mode = 'L' if channels == 1 else 'RGB'
  for row, pixels in enumerate(x):
    image = Image.fromarray(pixels[..., 0] if x.shape[-1] == 1 else pixels)
    scaled = image.convert(mode).resize((side, side), Image.Resampling.BILINEAR)
    out[row] = np.asarray(scaled).reshape(side, side, channels)
  return out


def subsample(split: Split, rows: int, seed: int = 0) -> Split:
  """Draws at most `rows` rows, in their order; a seed gives the same ones always."""
  if len(split.y) <= rows:
    return split
  generator = np.random.default_rng(seed)
  return split.take(np.sort(generator.choice(len(split.y), rows, replace=False)))


def join(
  name: str, title: str, num_classes: int, domains: Sequence[Domain], side: int, channels: int
) -> Dataset:
  """Joins domains into one data set, domain by domain; see `fit`.

  Args:
    name: of the data set, as in the config.
    title: for tables and figures.
    num_classes: how many there are.
    domains: in the order of their clients.
    side: height and width of the images, in pixels.
    channels: of the images.

  Raises:
    ValueError: if the arrays are no images with labels.
  """

  def rows_of(split: str) -> tuple[Split, np.ndarray]:
    parts = [getattr(domain, split) for domain in domains]
    x = np.concatenate([fit(part.x, side, channels) for part in parts])
    y = np.concatenate([part.y for part in parts])
    numbers = np.repeat(np.arange(len(parts), dtype=np.int32), [len(part.y) for part in parts])
    return check_split(x, y, name), numbers

  (train, clients), (test, test_domains) = rows_of('train'), rows_of('test')
  names = tuple(domain.name for domain in domains)
  return make(
    name,
    title,
    train,
    test,
    num_classes,
    UNMEASURED,
    clients=clients,
    domains=names,
    test_domains=test_domains,
    client_names=names,
  )
