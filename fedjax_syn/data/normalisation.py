"""Normalisations of pixels scaled to 0..1: the papers' constants by name, or computed.

`fedjax_syn.data.federated.normalise` applies them, inside the programs.
"""

from typing import Any, NamedTuple

import numpy as np


class Normalisation(NamedTuple):
  """Mean and standard deviation per channel: a pixel p in 0..1 becomes (p - mean) / std."""

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
  """Returns constants with one entry per channel, after a check that they are for pixels in 0..1.

  Args:
    normalisation: a name of NORMALISATIONS, or constants.
    x: training images, uint8 [n, height, width, channels]; tokens [n, length], which have none.

  Raises:
    ValueError: if it is neither, or for another range or number of channels.
  """
  if isinstance(normalisation, str):
    check_name(normalisation)
    if x.ndim == 2 and normalisation not in ('auto', 'unit'):
      raise ValueError(
        f'data.normalisation={normalisation!r} is for images, and these data are tokens; use ""'
      )
    constants = NORMALISATIONS['unit' if x.ndim == 2 else normalisation] or measure(x)
  elif isinstance(normalisation, Normalisation):
    constants = normalisation
    check_constants(constants)
  else:
    raise ValueError(
      f'normalisation={normalisation!r} must be Normalisation(name, mean, std), or one of '
      f'{", ".join(NORMALISATIONS)}'
    )
  return constants if x.ndim == 2 else _per_channel(constants, x.shape[-1])


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
  """Returns mean and standard deviation per channel of images, exact from their histograms.

  Args:
    x: uint8 [n, height, width, channels].

  Returns:
    The normalisation called 'auto'.

  Raises:
    ValueError: if there is no image, or all pixels of a channel are equal.
  """
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


def check_constants(normalisation: Normalisation) -> None:
  """Refuses constants that are not for pixels in 0..1.

  Raises:
    ValueError: if a mean lies outside of 0..1, or a deviation outside of 0 < std <= 10.
  """
  name, mean, std = (np.asarray(value) for value in normalisation)
  if not ((mean >= 0) & (mean <= 1)).all() or not ((std > 0) & (std <= 10)).all():
    raise ValueError(
      f'normalisation {str(name)!r} has mean {mean.tolist()} and std {std.tolist()}; they are of '
      'pixels scaled to 0..1: divide those of 0..255 by 255'
    )


def _per_channel(normalisation: Normalisation, channels: int) -> Normalisation:
  """Returns the constants with one entry per channel; a single constant serves all channels."""
  name, mean, std = normalisation
  if len(mean) not in (1, channels):
    raise ValueError(
      f'data.normalisation={name!r} is for {len(mean)} channels, but the images have {channels}; '
      'use "auto", "half" or "unit"'
    )
  repeat = channels if len(mean) == 1 else 1
  return Normalisation(name, mean * repeat, std * repeat)


def parse(value: Any, where: str) -> str | Normalisation:
  """Reads a normalisation from JSON: a name, or {"mean": [...], "std": [...]} per channel.

  Args:
    value: what the JSON holds.
    where: the file, for the message.

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
    check_constants(constants)
  except ValueError as error:
    raise ValueError(f'{where}: {error}') from error
  return constants
