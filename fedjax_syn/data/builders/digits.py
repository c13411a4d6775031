"""The 1,797 handwritten digits (8x8) that scikit-learn carries: no download, no folder."""

import hashlib

import numpy as np

from fedjax_syn.data.builders.split import Split, check_split, stratified
from fedjax_syn.data.domains import Domain

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
  y = digits.target.astype(np.int32)
  order = np.array(sorted(range(len(x)), key=lambda row: hashlib.sha256(x[row].tobytes()).digest()))
  test = stratified(y, TEST_ROWS, order)
  return check_split(x[~test], y[~test], 'digits', 10), check_split(x[test], y[test], 'digits', 10)


def styles() -> list[Domain]:
  """Deals the digits to three made-up domains: as they are, inverted, and faint on a grey ground.

  Nothing here is a domain of its own right; it is what a data set of several domains can be tried on where no
  other is at hand. Every third row, in the order of `read`, goes to the same domain.

  Returns:
    The domains 'plain', 'inverted' and 'faint', 8 x 8 pixels.
  """
  looks = {'plain': lambda x: x, 'inverted': lambda x: 255 - x, 'faint': lambda x: 96 + x // 4}
  splits = read()
  return [
    Domain(name, *(check_split(look(x[i::3]), y[i::3], name, 10) for x, y in splits))
    for i, (name, look) in enumerate(looks.items())
  ]
