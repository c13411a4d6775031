"""Digit-Five (Peng et al., 2019): MNIST, MNIST-M, SVHN, SynthDigits and USPS, as its folder of MATLAB files.

The published folder `Digit-Five` has mnist_data.mat (55,000 + 10,000), mnistm_with_label.mat (the same numbers),
svhn_train_32x32.mat and svhn_test_32x32.mat (73,257 + 26,032), syn_number.mat (25,000 + 9,000) and usps_28x28.mat (7,438
+ 1,860). As the domain adaptation papers do, at most 25,000 training and 9,000 test rows of a domain are used;
here always the same ones, drawn once for all.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fedjax_syn.data.builders.arrays import first_line
from fedjax_syn.data.builders.scaling import scale
from fedjax_syn.data.builders.split import Split, check_split
from fedjax_syn.data.domains import Domain, some

FOLDER = 'Digit-Five'
FILES = (
  'mnist_data.mat',
  'mnistm_with_label.mat',
  'svhn_train_32x32.mat',
  'svhn_test_32x32.mat',
  'syn_number.mat',
  'usps_28x28.mat',
)
DOMAINS = ('mnist', 'mnist_m', 'svhn', 'synth_digits', 'usps')
TRAIN, TEST = 25000, 9000  # at most, of a domain


def locate(data_dir: Path) -> Path | None:
  """Returns the folder with the files, or None.

  Raises:
    ValueError: if it has only a part of them.
  """
  for home in (data_dir / FOLDER, data_dir / 'digit_five' / FOLDER, data_dir / 'digit_five'):
    missing = [file for file in FILES if not (home / file).is_file()]
    if not missing:
      return home
    if len(missing) < len(FILES):
      raise ValueError(f'{home} has only a part of digit_five: {", ".join(missing)} is missing')
  return None


def parse(home: Path) -> list[Domain]:
  """Reads the files of the folder.

  Args:
    home: from `locate`.

  Returns:
    The domains in the order of DOMAINS, images of 28 or 32 pixels a side as they come.

  Raises:
    ValueError: if a file is not as published.
  """
  read = lambda parse, file: _named(parse, home / file)
  return [
    Domain(name, some(train, TRAIN), some(test, TEST))
    for name, (train, test) in (
      ('mnist', read(_mnist, FILES[0])),
      ('mnist_m', read(_mnist_m, FILES[1])),
      ('svhn', (read(_street, FILES[2]), read(_street, FILES[3]))),
      ('synth_digits', read(_synth, FILES[4])),
      ('usps', read(_usps, FILES[5])),
    )
  ]


def _named(parse: Callable[[Path], Any], path: Path) -> Any:
  """Parses one file; whatever its arrays' shapes and types make numpy raise names it."""
  try:
    return parse(path)
  except Exception as error:
    reason = first_line(error)
    if str(path) in reason:
      raise
    raise ValueError(f'{path}: its arrays are not as published: {reason}') from error


def _mnist(path: Path) -> tuple[Split, Split]:
  content = _load(path, 'train_28', 'test_28', 'label_train', 'label_test')
  pixels = lambda name: _bytes(content[name].reshape(-1, 28, 28, 1), path)
  return tuple(
    check_split(pixels(f'{s}_28'), content[f'label_{s}'].argmax(1), str(path), 10)
    for s in ('train', 'test')
  )


def _mnist_m(path: Path) -> tuple[Split, Split]:
  content = _load(path, 'train', 'test', 'label_train', 'label_test')
  return tuple(
    check_split(_bytes(content[s], path), content[f'label_{s}'].argmax(1), str(path), 10)
    for s in ('train', 'test')
  )


def _street(path: Path) -> Split:
  """SVHN's own layout: X [32, 32, 3, n], y [n, 1] with 10 for the digit 0."""
  content = _load(path, 'X', 'y')
  x = _bytes(np.moveaxis(content['X'], -1, 0), path)
  return check_split(x, content['y'].ravel().astype(int) % 10, str(path), 10)


def _synth(path: Path) -> tuple[Split, Split]:
  content = _load(path, 'train_data', 'test_data', 'train_label', 'test_label')
  return tuple(
    check_split(
      _bytes(content[f'{s}_data'], path), content[f'{s}_label'].ravel().astype(int), str(path), 10
    )
    for s in ('train', 'test')
  )


def _usps(path: Path) -> tuple[Split, Split]:
  """A cell array of two rows: images [n, 1, 28, 28] in 0..1 and labels [n, 1]."""
  (cells,) = _load(path, 'dataset').values()
  if cells.shape != (2, 2):
    raise ValueError(f'{path}: dataset must be 2 x 2 cells, got {list(cells.shape)}')
  return tuple(
    check_split(_bytes(np.moveaxis(x, 1, -1), path), y.ravel().astype(int), str(path), 10)
    for x, y in cells
  )


def _bytes(x: np.ndarray, path: Path) -> np.ndarray:
  """Pixels as uint8: what lies in 0..255 is rounded, what lies in 0..1 scaled, and everything else refused."""
  if x.dtype.kind in 'iuf' and x.size and x.min() >= 0 and 1 < x.max() <= 255:
    return np.rint(x).astype(np.uint8)
  try:
    return scale(x)
  except ValueError as error:
    raise ValueError(f'{path}: {error}') from error


def _load(path: Path, *names: str) -> dict[str, Any]:
  from scipy.io import loadmat  # slow to import

  try:
    content = loadmat(path)
  except Exception as error:  # whatever a damaged file makes the reader raise
    raise ValueError(f'{path} cannot be read as a MATLAB file') from error
  missing = [name for name in names if name not in content]
  if missing:
    raise ValueError(f'{path} has no variable {", ".join(missing)}, only {sorted(content)}')
  return {name: content[name] for name in names}
