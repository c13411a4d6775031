"""Digit-Five (Peng et al., 2019): MNIST, MNIST-M, SVHN, SynthDigits and USPS, as MATLAB files.

The published folder `Digit-Five` has mnist_data.mat (55,000 + 10,000), mnistm_with_label.mat (the
same numbers), svhn_train_32x32.mat and svhn_test_32x32.mat (73,257 + 26,032), syn_number.mat
(25,000 + 9,000) and usps_28x28.mat (7,438 + 1,860). As the domain adaptation papers do, at most
25,000 training and 9,000 test rows of a domain are used; here always the same ones.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fedjax_syn.core.texts import first_line
from fedjax_syn.data.domains import Domain, subsample
from fedjax_syn.data.scaling import scale
from fedjax_syn.data.split import Split, check_split

FOLDER = 'Digit-Five'
PARTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
  # By domain: file and variables of images and labels, of the training and of the test split.
  'mnist': (
    ('mnist_data.mat', 'train_28', 'label_train'),
    ('mnist_data.mat', 'test_28', 'label_test'),
  ),
  'mnist_m': (
    ('mnistm_with_label.mat', 'train', 'label_train'),
    ('mnistm_with_label.mat', 'test', 'label_test'),
  ),
  'svhn': (('svhn_train_32x32.mat', 'X', 'y'), ('svhn_test_32x32.mat', 'X', 'y')),
  'synth_digits': (
    ('syn_number.mat', 'train_data', 'train_label'),
    ('syn_number.mat', 'test_data', 'test_label'),
  ),
  'usps': (('usps_28x28.mat', 'dataset'), ('usps_28x28.mat', 'dataset')),
}
LAYOUTS: dict[str, Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]] = {
  # Images to [n, height, width, channels], labels to [n].
  'mnist': lambda x, y: (x.reshape(-1, 28, 28, 1), y.argmax(1)),
  'mnist_m': lambda x, y: (x, y.argmax(1)),
  'svhn': lambda x, y: (np.moveaxis(x, -1, 0), y.ravel().astype(int) % 10),  # 10 is the digit 0
  'synth_digits': lambda x, y: (x, y.ravel().astype(int)),
  'usps': lambda x, y: (np.moveaxis(x, 1, -1), y.ravel().astype(int)),
}
DOMAINS = tuple(PARTS)
FILES = tuple(dict.fromkeys(file for parts in PARTS.values() for file, *_ in parts))
ROWS = 25000, 9000  # at most, of a domain


def locate(data_dir: Path) -> Path | None:
  """Returns the folder with the files, or None.

  Raises:
    ValueError: if it has only a part of them.
  """
  for folder in (data_dir / FOLDER, data_dir / 'digit_five' / FOLDER, data_dir / 'digit_five'):
    missing = [file for file in FILES if not (folder / file).is_file()]
    if not missing:
      return folder
    if len(missing) < len(FILES):
      raise ValueError(f'{folder} has only a part of digit_five: {", ".join(missing)} is missing')
  return None


def parse(folder: Path) -> list[Domain]:
  """Reads the files of the folder.

  Args:
    folder: from `locate`.

  Returns:
    The domains in the order of DOMAINS, images of 28 or 32 pixels a side as they come.

  Raises:
    ValueError: if a file is not as published.
  """
  return [
    Domain(
      domain,
      *(
        subsample(_read(domain, split, folder / file, variables), ROWS[split])
        for split, (file, *variables) in enumerate(parts)
      ),
    )
    for domain, parts in PARTS.items()
  ]


def _read(domain: str, split: int, path: Path, variables: list[str]) -> Split:
  """Reads one split; whatever its arrays' shapes and types make numpy raise names the file."""
  arrays = _load(path, variables)
  try:
    if len(arrays) == 1:  # USPS: a cell array of images and labels for each split
      if arrays[0].shape != (2, 2):
        raise ValueError(f'dataset must be 2 x 2 cells, got {list(arrays[0].shape)}')
      arrays = list(arrays[0][split])
    x, y = LAYOUTS[domain](*arrays)
    return check_split(_bytes(x), y, domain, 10)
  except Exception as error:
    raise ValueError(f'{path}: its arrays are not as published: {first_line(error)}') from error


def _bytes(x: np.ndarray) -> np.ndarray:
  """Returns pixels as uint8: 0..255 are rounded, 0..1 scaled, and others refused."""
  if x.dtype.kind in 'iuf' and x.size and x.min() >= 0 and 1 < x.max() <= 255:
    return np.rint(x).astype(np.uint8)
  return scale(x)


def _load(path: Path, names: list[str]) -> list[Any]:
  from scipy.io import loadmat, whosmat  # slow to import

  try:
    content = loadmat(path, variable_names=names)
  except Exception as error:  # whatever a damaged file makes the reader raise
    raise ValueError(f'{path} cannot be read as a MATLAB file') from error
  missing = [name for name in names if name not in content]
  if missing:
    variables = sorted(name for name, *_ in whosmat(path))
    raise ValueError(f'{path} has no variable {", ".join(missing)}, only {variables}')
  return [content[name] for name in names]
