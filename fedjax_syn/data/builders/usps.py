"""USPS's two files in LIBSVM's layout (Hull, 1994): scanned digits of 16 x 16 pixels, values -1 to 1."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fedjax_syn.data.archives import Arrays

SIDE = 16
FILES = ('usps.bz2', 'usps.t.bz2')


def parse(paths: Mapping[str, Path]) -> tuple[Arrays, Arrays]:
  """Reads lines of `label index:value ...`, where the label 1 stands for the digit 0.

  Args:
    paths: of the two files.

  Returns:
    Training and test images, uint8 [n, 16, 16, 1], values -1..1 rounded to 0..255, and labels [n].

  Raises:
    ValueError: if a file is not in that layout.
  """
  from sklearn.datasets import load_svmlight_file  # slow to import

  def read(file: str) -> Arrays:
    values, labels = load_svmlight_file(str(paths[file]), n_features=SIDE * SIDE)
    pixels = np.rint((values.toarray() + 1) * 127.5).clip(0, 255).astype(np.uint8)
    return pixels.reshape(-1, SIDE, SIDE, 1), labels.astype(np.int32) - 1

  return read(FILES[0]), read(FILES[1])
