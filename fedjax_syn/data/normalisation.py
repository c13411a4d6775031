"""Normalisations: of pixels scaled to 0..1, the papers' constants by name, or computed; of columns.

`fedjax_syn.data.federated.normalise` applies them, inside the programs.
"""

from typing import Any, NamedTuple

import numpy as np

from fedjax_syn.data import features


class Normalisation(NamedTuple):
  """Mean and standard deviation: a pixel p in 0..1, or a value p, becomes (p - mean) / std.

  There is one of each per channel of images and sequences, and per feature of tables.
  """

  name: str
  mean: tuple[float, ...]
  std: tuple[float, ...]


_CONSTANTS = (
  # DynaFed uses these for CIFAR-10 and CIFAR-100, FedCOG for CIFAR-10.
  Normalisation('cifar10', (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
  Normalisation('cifar100', (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),  # FedCOG
  Normalisation('cinic10', (0.4789, 0.4723, 0.4305), (0.2421, 0.2383, 0.2587)),  # DynaFed
  Normalisation('mnist', (0.1307,), (0.3081,)),  # DynaFed, for Fashion-MNIST too
  Normalisation('half', (0.5,), (0.5,)),  # FedCOG's Fashion-MNIST
  Normalisation('digits', (0.3061,), (0.3763,)),  # of the 1,198 training rows
  Normalisation('unit', (0.0,), (1.0,)),
)

# A single constant holds for any number of channels. None: computed from the training pixels.
NORMALISATIONS: dict[str, Normalisation | None] = {c.name: c for c in _CONSTANTS} | {'auto': None}

# 'auto' before it is measured: `datasets.load` measures the rows that are left for training, once.
UNMEASURED = Normalisation('auto', (0.0,), (1.0,))
CHUNK = 2**22  # pixels that are counted together


def constants_for(normalisation: Any, x: np.ndarray) -> Normalisation:
  """Returns constants with one entry per column, after a check that they are for these rows.

  Args:
    normalisation: a name of NORMALISATIONS, or constants.
    x: training rows: images, uint8; a table or sequences, float32; tokens, which have none.

  Raises:
    ValueError: if it is neither, or for another range or number of columns.
  """
  kind = features.kind_of(x)
  if isinstance(normalisation, str):
    check_name(normalisation)
    if kind != features.IMAGES and normalisation not in ('auto', 'unit'):
      raise ValueError(
        f'data.normalisation={normalisation!r} is for images, and these data are '
        f'{features.called(kind)}; use ""'
      )
    constants = NORMALISATIONS['unit' if kind == features.TOKENS else normalisation] or measure(x)
  elif isinstance(normalisation, Normalisation):
    constants = normalisation
    check_constants(constants, kind)
  else:
    raise ValueError(
      f'normalisation={normalisation!r} must be Normalisation(name, mean, std), or one of '
      f'{", ".join(NORMALISATIONS)}'
    )
  return constants if kind == features.TOKENS else _per_column(constants, x.shape[-1], kind)


def check_name(name: str) -> None:
  """Refuses a name that is none of `NORMALISATIONS`.

  Raises:
    ValueError: naming those that are.
  """
  if name not in NORMALISATIONS:
    raise ValueError(
      f'data.normalisation={name!r} is unknown; known are {", ".join(NORMALISATIONS)}'
    )


def measure(x: np.ndarray) -> Normalisation:
  """Returns mean and standard deviation per column of training rows.

  Args:
    x: images, uint8 [n, height, width, channels], exact from their histograms; tables and
      sequences as in `features.measure`.

  Returns:
    The normalisation called 'auto'.

  Raises:
    ValueError: if there is no row, or all pixels of a channel are equal, or a value is missing.
  """
  if features.has_columns(x):
    mean, std = features.measure(x)
    return Normalisation('auto', tuple(mean.tolist()), tuple(std.tolist()))
  if not x.size:
    raise ValueError(f'train: x is empty, its shape is {list(x.shape)}')
  levels = np.arange(256) / 255
  counts = np.zeros((x.shape[-1], 256), np.int64)
  rows = max(1, CHUNK // x[0].size)  # what counts them takes eight times their bytes
  for first in range(0, len(x), rows):
    part = x[first : first + rows]
    channels = (part[..., c].ravel() for c in range(x.shape[-1]))
    counts += np.stack([np.bincount(channel, minlength=256) for channel in channels])
  share = counts / counts.sum(1, keepdims=True)  # [channels, 256]
  mean = share @ levels
  std = np.sqrt((share * (levels - mean[:, None]) ** 2).sum(1))
  if not std.all():
    raise ValueError(
      f'data.normalisation="auto": all training pixels of channel {int(std.argmin())} are equal; '
      'use "unit"'
    )
  return Normalisation('auto', tuple(mean.tolist()), tuple(std.tolist()))


def check_constants(normalisation: Normalisation, kind: str = features.IMAGES) -> None:
  """Refuses constants that are not finite, or for images not for pixels in 0..1.

  Args:
    normalisation: the constants.
    kind: of the rows, as `features.kind_of` names it.

  Raises:
    ValueError: if a deviation is not positive, or for images a mean lies outside of 0..1 or a
      deviation above 10.
  """
  name, mean, std = (np.asarray(value) for value in normalisation)
  given = f'normalisation {str(name)!r} has mean {mean.tolist()} and std {std.tolist()}'
  if not (np.isfinite(mean).all() and np.isfinite(std).all() and (std > 0).all()):
    raise ValueError(f'{given}; a finite mean and a positive std per column would work')
  if kind == features.IMAGES and not (((mean >= 0) & (mean <= 1)).all() and (std <= 10).all()):
    raise ValueError(f'{given}; they are of pixels scaled to 0..1: divide those of 0..255 by 255')


def _per_column(normalisation: Normalisation, columns: int, kind: str) -> Normalisation:
  """Returns the constants with one entry per column; a single constant serves all columns."""
  name, mean, std = normalisation
  if len(mean) not in (1, columns):
    what = {features.TABLE: 'features', features.IMAGES: 'channels'}.get(kind, 'channels')
    rows = 'images' if kind == features.IMAGES else 'data'
    use = '"auto", "half" or "unit"' if kind == features.IMAGES else '"auto" or "unit"'
    raise ValueError(
      f'data.normalisation={name!r} is for {len(mean)} {what}, but the {rows} have {columns}; '
      f'use {use}'
    )
  repeat = columns if len(mean) == 1 else 1
  return Normalisation(name, mean * repeat, std * repeat)


def parse(value: Any, where: str, kind: str = features.IMAGES) -> str | Normalisation:
  """Reads a normalisation from JSON: a name, or {"mean": [...], "std": [...]} per channel.

  Args:
    value: what the JSON holds.
    where: the file, for the message.
    kind: of the rows, as `features.kind_of` names it.

  Returns:
    A name of NORMALISATIONS, or the constants under the name 'own'.

  Raises:
    ValueError: if it is neither.
  """
  if isinstance(value, str) and value in NORMALISATIONS:
    return value
  try:
    mean, std = (np.array(value[key], np.float64) for key in ('mean', 'std'))
    good = mean.ndim == 1 and mean.size and mean.shape == std.shape and (std > 0).all()
  except (TypeError, KeyError, ValueError, IndexError):
    good = False
  if not good or not np.isfinite([mean, std]).all():
    raise ValueError(
      f'{where}: normalisation={value!r} must be one of {", ".join(NORMALISATIONS)}, or '
      '{"mean": [...], "std": [...]} with a positive std per channel'
    )
  constants = Normalisation('own', tuple(mean.tolist()), tuple(std.tolist()))
  try:
    check_constants(constants, kind)
  except ValueError as error:
    raise ValueError(f'{where}: {error}') from error
  return constants
