"""Tables [rows, features] and sequences [rows, time, channels] of floats.

Rows are kept as float32. `normalise` in `federated` takes mean and standard deviation per column
(feature or channel), which `measure` computes from training rows.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from fedjax_syn.core.texts import listed

IMAGES, TOKENS, TABLE, SEQUENCES = 'images', 'tokens', 'table', 'sequences'
KINDS = {4: IMAGES, 3: SEQUENCES, 2: TABLE}  # by the number of axes of x
CHUNK = 2**22  # values that are looked at together
_LOST = 1e-3  # the largest rounding error to float32, in standard deviations of the column


def kind_of(x: Any) -> str:
  """Returns the kind of an array's rows: 'images', 'tokens', 'table', 'sequences' or ''."""
  if x.ndim == 2 and x.dtype.kind in 'iu':
    return TOKENS
  if x.ndim in (2, 3) and not np.issubdtype(x.dtype, np.floating):
    return ''
  return KINDS.get(x.ndim, '')


def has_columns(x: np.ndarray) -> bool:
  """Returns whether rows are those of a table or sequences."""
  return kind_of(x) in (TABLE, SEQUENCES)


def called(kind: str) -> str:
  """Returns a kind as messages say it: 'these data are a table'."""
  return 'a table' if kind == TABLE else kind


def size_text(shape: tuple[int, ...], kind: str = '') -> str:
  """Returns the size of a row for messages, as '14 features'; the shape for images and tokens."""
  if kind == TABLE:
    return f'{shape[0]} features'
  if kind == SEQUENCES:
    return f'{shape[0]} steps x {shape[1]} channels'
  return ' x '.join(map(str, shape))


def _chunks(x: np.ndarray) -> Iterator[np.ndarray]:
  """Yields x in consecutive parts of a bounded size, as [values, columns] each."""
  rows = max(1, CHUNK // max(1, x[:1].size))
  for first in range(0, len(x), rows):
    yield np.asarray(x[first : first + rows]).reshape(-1, x.shape[-1])


def check_values(x: np.ndarray, where: str) -> None:
  """Refuses values that are missing or no number.

  Args:
    x: floats [rows, features] or [rows, time, channels].
    where: what the message names.

  Raises:
    ValueError: naming the first row and column.
  """
  rows = max(1, CHUNK // max(1, x[:1].size))
  for first in range(0, len(x), rows):
    wrong = ~np.isfinite(x[first : first + rows])
    if not wrong.any():
      continue
    place = np.argwhere(wrong)[0]
    value = x[first : first + rows][tuple(place)]
    at = f'row {first + place[0]}{f", step {place[1]}" if len(place) > 2 else ""}'
    raise ValueError(
      f'{where}: {at} of x has {value} in column {place[-1]}; give a number, take the row out, or '
      "fill it from training rows (data.missing='median' of arrays and CSV files does)"
    )


def to_float32(arrays: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
  """Returns floats of one data set as float32, and what was converted.

  Args:
    arrays: by name, floats [rows, ..., columns].

  Raises:
    ValueError: if a column would lose its digits, as times in seconds since 1970 do.
  """
  kinds = sorted({x.dtype.name for x in arrays.values() if x.dtype != np.float32})
  with np.errstate(over='ignore'):  # what becomes infinite is refused
    out = {name: x.astype(np.float32, copy=False) for name, x in arrays.items()}
  for name, x in arrays.items():
    if x.dtype.itemsize > 4 and x.size:
      _check_digits(x, out[name], name)
  return out, tuple(f'x converted from {kind} to float32' for kind in kinds)


def _check_digits(x: np.ndarray, rounded: np.ndarray, name: str) -> None:
  error, total, squares, count = 0.0, 0.0, 0.0, x.size // x.shape[-1]
  with np.errstate(invalid='ignore', over='ignore'):
    centre = np.nan_to_num(np.asarray(x[0], float).reshape(-1, x.shape[-1])[0])
    for part, own in zip(_chunks(x), _chunks(rounded), strict=True):
      gap = np.where(np.isfinite(part), np.abs(part - own), 0)
      error = np.maximum(error, gap.max(0))
      away = np.nan_to_num(part - centre)
      total, squares = total + away.sum(0), squares + (away**2).sum(0)
    std = np.sqrt(np.maximum(squares / count - (total / count) ** 2, 0))
  lost = np.flatnonzero((error > _LOST * std) & (std > 0))
  if lost.size:
    column = lost[0]
    raise ValueError(
      f'{name}: column {column} of x has values near {centre[column]:.6g} and a standard deviation '
      f'of {std[column]:.3g}, which float32 does not hold; subtract {centre[column]:.6g} before'
    )


def measure(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Returns what scales each column: mean and standard deviation of its training values.

  A column without other values than 0 and 1 stays as it is (mean 0, deviation 1); one whose values
  are all equal is only shifted (deviation 1).

  Args:
    x: floats [rows, features] or [rows, time, channels].

  Returns:
    float64 [columns] both.

  Raises:
    ValueError: if there is no row, or a value is missing or infinite.
  """
  if not x.size:
    raise ValueError(f'train: x is empty, its shape is {list(x.shape)}')
  count, columns = x.size // x.shape[-1], x.shape[-1]
  total, binary = np.zeros(columns), np.ones(columns, bool)
  for part in _chunks(x):
    total += part.sum(0, dtype=np.float64)
    binary &= ((part == 0) | (part == 1)).all(0)
  if not np.isfinite(total).all():
    check_values(x, 'train')
  mean, squares = total / count, np.zeros(columns)
  for part in _chunks(x):
    squares += ((part - mean) ** 2).sum(0)
  std = np.sqrt(squares / count)
  # Rounding leaves a little of equal values that float64 does not add up exactly.
  equal = std <= 1e-12 * np.abs(mean)
  std = np.where(binary | equal, 1, std)
  return np.where(binary, 0, mean), std


def channels_first(x: np.ndarray) -> bool:
  """Returns whether sequences look like [rows, channels, time]: far more channels than steps."""
  return kind_of(x) == SEQUENCES and x.shape[2] > 4 * x.shape[1]


def look_grey(x: np.ndarray) -> bool:
  """Returns whether sequences look like grey images: square, with all values in 0..1."""
  if kind_of(x) != SEQUENCES or x.shape[1] != x.shape[2] or x.shape[1] < 8:
    return False
  return bool(all(((part >= 0) & (part <= 1)).all() for part in _chunks(x)))


def constant_columns(x: np.ndarray) -> str:
  """Names the columns whose training values are all equal, as a sentence; '' for none."""
  first = np.asarray(x[0]).reshape(-1, x.shape[-1])[0]
  equal = np.ones(x.shape[-1], bool)
  for part in _chunks(x):
    equal &= (part == first).all(0)
  columns: Any = np.flatnonzero(equal).tolist()
  return f'x has one value alone in column {listed(columns)}' if columns else ''
