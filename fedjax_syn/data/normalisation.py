"""Normalisations of pixels scaled to 0..1: the papers' constants by name, or computed."""

from collections.abc import Mapping
from types import MappingProxyType
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
NORMALISATIONS: Mapping[str, Normalisation | None] = MappingProxyType(
  {constants.name: constants for constants in _CONSTANTS} | {'auto': None}
)

# 'auto' before it is measured: `datasets.load` does that once, of the rows that are left for training.
UNMEASURED = Normalisation('auto', (0.0,), (1.0,))


def normalise_by(name: str, x: np.ndarray) -> Normalisation:
  """Returns the named normalisation for the given training images.

  Args:
    name: a key of NORMALISATIONS.
    x: training images, uint8 [n, height, width, channels]; tokens [n, length] are left as they are.

  Returns:
    The constants, one per channel.

  Raises:
    ValueError: if the name is unknown or its constants are for another number of channels.
  """
  if name not in NORMALISATIONS:
    raise ValueError(
      f'data.normalisation={name!r} is unknown; known are {", ".join(NORMALISATIONS)}'
    )
  if x.ndim == 2:
    if name not in ('auto', 'unit'):
      raise ValueError(
        f'data.normalisation={name!r} is for images, and these data are tokens; use ""'
      )
    return NORMALISATIONS['unit']
  return per_channel(NORMALISATIONS[name] or measure(x), x.shape[-1])


def constants_for(normalisation: Any, x: np.ndarray) -> Normalisation:
  """Returns constants with one entry per channel, once it is known that they are for pixels in 0..1.

  Args:
    normalisation: a name of NORMALISATIONS, or constants.
    x: training images, uint8 [n, height, width, channels]; tokens [n, length].

  Raises:
    ValueError: if it is neither, or for another range or number of channels.
  """
  if isinstance(normalisation, str):
    return normalise_by(normalisation, x)
  if not isinstance(normalisation, Normalisation):
    raise ValueError(
      f'normalisation={normalisation!r} must be Normalisation(name, mean, std), or one of {", ".join(NORMALISATIONS)}'
    )
  check_constants(normalisation)
  return per_channel(normalisation, x.shape[-1]) if x.ndim == 4 else normalisation


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
  share = np.stack(
    [np.bincount(x[..., c].ravel(), minlength=256) for c in range(x.shape[-1])]
  )  # [channels, 256]
  share = share / share.sum(1, keepdims=True)
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
      f'normalisation {str(name)!r} has mean {mean.tolist()} and std {std.tolist()}; they are of pixels scaled to 0..1:'
      ' divide those of 0..255 by 255'
    )


def per_channel(normalisation: Normalisation, channels: int) -> Normalisation:
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
    good = mean.ndim == 1 and mean.shape == std.shape and np.isfinite([mean, std]).all()
    good = good and mean.size and (std > 0).all()
  except (TypeError, KeyError, ValueError, IndexError):
    good = False
  if not good:
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
