"""Data sets made of several domains (MNIST and USPS, photographs and paintings): one client, one test metric each."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image

from fedjax_syn.data.builders.split import Split, check_split


class Domain(NamedTuple):
  """One domain, images of any one size."""

  name: str
  train: Split
  test: Split


class Joined(NamedTuple):
  """Several domains, brought to one size and number of channels, one after the other."""

  train: Split
  test: Split
  clients: np.ndarray  # int32 [training rows], the number of the row's domain
  test_domains: np.ndarray  # int32 [test rows]
  names: tuple[str, ...]


def fit(x: np.ndarray, side: int, channels: int) -> np.ndarray:
  """Brings images to one size and number of channels.

  Args:
    x: uint8 [n, height, width, 1 or 3].
    side: height and width to scale to, in pixels; bilinear, over the area of a pixel where it shrinks.
    channels: 1 (luminance, by Pillow's weights of red, green and blue) or 3 (grey ones are repeated).

  Returns:
    uint8 [n, side, side, channels].
  """
  out = np.empty((len(x), side, side, channels), np.uint8)
  mode = 'L' if channels == 1 else 'RGB'
  for row, pixels in enumerate(x):
    image = Image.fromarray(pixels[..., 0] if x.shape[-1] == 1 else pixels)
    scaled = image.convert(mode).resize((side, side), Image.Resampling.BILINEAR)
    out[row] = np.asarray(scaled).reshape(side, side, channels)
  return out


def some(split: Split, rows: int, seed: int = 0) -> Split:
  """Draws at most so many rows, the same ones always, in their order."""
  if len(split.y) <= rows:
    return split
  chosen = np.sort(np.random.default_rng(seed).choice(len(split.y), rows, replace=False))
  return Split(split.x[chosen], split.y[chosen])


def join(domains: Sequence[Domain], side: int, channels: int, where: str) -> Joined:
  """Puts domains together; see `fit`.

  Args:
    domains: in the order of their clients.
    side: of the images, in pixels.
    channels: of the images.
    where: what a message names.

  Returns:
    All rows, domain by domain, in their order.

  Raises:
    ValueError: if the arrays are no images with labels.
  """

  def together(name: str) -> tuple[Split, np.ndarray]:
    splits = [getattr(domain, name) for domain in domains]
    x = np.concatenate([fit(split.x, side, channels) for split in splits])
    y = np.concatenate([split.y for split in splits])
    numbers = np.repeat(np.arange(len(splits)), [len(split.y) for split in splits])
    return check_split(x, y, where), numbers.astype(np.int32)

  (train, clients), (test, test_domains) = together('train'), together('test')
  return Joined(train, test, clients, test_domains, tuple(domain.name for domain in domains))
