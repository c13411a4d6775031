"""The 1,797 handwritten digits (8x8) that scikit-learn carries: no download, no folder."""

import hashlib
from pathlib import Path

import numpy as np

from fedjax_syn.data import domains
from fedjax_syn.data.dataset import Dataset, make
from fedjax_syn.data.domains import Domain
from fedjax_syn.data.split import Split, check_split, smallest_digests

TEST_ROWS = 599  # a third of the 1,797


def read() -> tuple[Split, Split]:
  """Returns the training (1,198 rows) and test (599 rows) split of the digits.

  The test rows are a stratified choice that depends on the pixels alone: within a class those with
  the smallest SHA-256 of their pixels. So it is the same everywhere, whatever the seed and the
  version of numpy, and equal images would come to lie side by side.

  Returns:
    Two splits, x uint8 [n, 8, 8, 1] with the pixels 0..16 scaled to 0..255, y int32 [n].
  """
  from sklearn.datasets import load_digits  # takes a second to import: only when asked for

  digits = load_digits()
  x = np.round(digits.images * (255 / 16)).astype(np.uint8)[..., None]
  digests = [hashlib.sha256(row.tobytes()).digest() for row in x]
  test = smallest_digests(digits.target, TEST_ROWS / len(x), digests)
  rows = Split(x, digits.target)
  train, test_rows = (check_split(*rows.take(own), 'digits', 10) for own in (~test, test))
  return train, test_rows


def load(name: str, data_dir: Path) -> Dataset:
  """Returns the digits; no folder is read."""
  return make(name, 'digits', *read(), 10, 'digits')


def load_styles(name: str, data_dir: Path) -> Dataset:
  """Returns the digits as three made-up domains: as they are, inverted, and faint on a grey ground.

  They serve to try data sets of several domains where no other is at hand. Every third row, in the
  order of `read`, goes to the same domain. No folder is read.
  """
  styles = {'plain': lambda x: x, 'inverted': lambda x: 255 - x, 'faint': lambda x: 96 + x // 4}
  splits = read()
  parts = [
    Domain(style, *(Split(change(x[i::3]), y[i::3]) for x, y in splits))
    for i, (style, change) in enumerate(styles.items())
  ]
  return domains.join(name, 'digits in three made-up styles', 10, parts, 8, 1)
