"""What figures and reports compute before they draw: plain numpy, without matplotlib."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np


class Curve(NamedTuple):
  """A metric over rounds: mean and standard deviation over seeds."""

  rounds: np.ndarray
  """[points]."""
  mean: np.ndarray
  """[points]."""
  std: np.ndarray
  """[points]; 0 for a single seed."""


def curve(lines: Sequence[Mapping[str, Any]], key: str = 'test/accuracy') -> Curve:
  """Averages a metric over seeds, at the rounds at which every seed that goes that far has it.

  Args:
    lines: metrics lines.
    key: the metric.

  Returns:
    The curve; a seed that diverged counts up to where it stopped.
  """
  by_round: dict[int, list[float]] = {}
  for line in lines:
    if key in line:
      by_round.setdefault(line['round'], []).append(line[key])
  values = [by_round[r] for r in sorted(by_round)]
  return Curve(
    np.array(sorted(by_round)),
    np.array([np.mean(v) for v in values]),
    np.array([np.std(v, ddof=1) if len(v) > 1 else 0.0 for v in values]),
  )


def percent(key: str) -> int:
  """Returns what a metric is multiplied by where it is shown: 100 for shares, else 1."""
  return 100 if re.search('accuracy|generalisation|_f1|precision|recall|top_pred', key) else 1


def metric_title(key: str) -> str:
  """Returns a metric's name for an axis, with its unit: 'test accuracy (%)'."""
  return re.sub('[/_]', ' ', key) + (' (%)' if percent(key) == 100 else '')


def as_images(x: np.ndarray) -> np.ndarray:
  """Turns rows of a table or sequences into grey images; images are returned as they are.

  A row becomes a column of pixels, one for each feature; a sequence an image with a line for each
  channel. Grey is 0, white and black are the largest value of either sign, up to the 99 % quantile.

  Args:
    x: [snapshots, rows, features] or [snapshots, rows, time, channels], scaled as the model sees
      them; or images [snapshots, images, height, width, channels].

  Returns:
    Images [snapshots, rows, height, width, 1] in 0..1.
  """
  if x.ndim == 5:
    return x
  wide = x[..., None] if x.ndim == 3 else np.swapaxes(x, 2, 3)  # features, or channels, go down
  most = max(float(np.quantile(np.abs(wide), 0.99)), 1e-9)
  return np.clip(0.5 + wide / (2 * most), 0, 1)[..., None]


def mosaic(
  images: np.ndarray,
  labels: np.ndarray,
  classes: Sequence[int] | np.ndarray,
  columns: int,
  background: float = 0,
) -> np.ndarray:
  """Arranges images in one picture, a row for each class and a line of one pixel between images.

  Args:
    images: [images, height, width, channels].
    labels: the class of each image, [images].
    classes: of the rows.
    columns: at most this many images in a row.
    background: the value of pixels that no image covers.

  Returns:
    [rows * (height + 1), columns * (width + 1), channels], of the images' type.
  """
  height, width = images.shape[1] + 1, images.shape[2] + 1
  shape = height * len(classes), width * columns, images.shape[3]
  canvas = np.full(shape, background, images.dtype)
  for i, c in enumerate(classes):
    for j, image in enumerate(images[labels == c][:columns]):
      canvas[i * height : (i + 1) * height - 1, j * width : (j + 1) * width - 1] = image
  return canvas
