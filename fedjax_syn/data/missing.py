"""Missing values (NaN) of tables and sequences: refused, filled, or their rows left out."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedjax_syn.data import features

REFUSE, MEDIAN, DROP = RULES = ('', 'median', 'drop')  # values of `data.missing`


def is_missing(x: np.ndarray) -> np.ndarray:
  """Returns which rows lack a value, bool [rows]."""
  return np.isnan(x).any(axis=tuple(range(1, x.ndim)))


def medians(x: np.ndarray) -> np.ndarray:
  """Returns the median of each column's values, those that are there; nan without any.

  Args:
    x: floats [rows, features] or [rows, time, channels].

  Returns:
    [columns]; of an even number of values the mean of the two in the middle.
  """
  columns = x.reshape(-1, x.shape[-1]).T
  own = (column[~np.isnan(column)] for column in columns)
  return np.array([np.median(values) if len(values) else np.nan for values in own])


def complete(
  parts: Mapping[str, Mapping[str, Any]], rule: str, where: str
) -> tuple[dict[str, dict[str, Any]], list[str], bool]:
  """Applies the rule for missing values to the parts of a data set.

  Args:
    parts: the arrays of each part by name, all with one entry per row; the first part has the
      training rows. Other `x` than tables and sequences are left as they are.
    rule: one of `RULES`; 'median' is that of the training rows' values in the same column.
    where: what a message names.

  Returns:
    The parts, notes, and whether values were filled by statistics.

  Raises:
    ValueError: if a column has no value to take the median of, or no row is left.
  """
  out = {name: dict(part) for name, part in parts.items()}
  columns = {name: part['x'] for name, part in out.items() if features.has_columns(part['x'])}
  lacking = {name: is_missing(x) for name, x in columns.items()} if rule != REFUSE else {}
  if not any(rows.any() for rows in lacking.values()):
    return out, [], False
  notes, middle = [], medians(next(iter(columns.values()))) if rule == MEDIAN else None
  for name, rows in lacking.items():
    if not rows.any():
      continue
    if rows.all() and rule == DROP:
      raise ValueError(f'{where}: every row of {name} lacks a value, and data.missing={DROP!r}')
    if middle is None:
      out[name] = {key: np.asarray(value)[~rows] for key, value in out[name].items()}
      notes.append(f'{name}: {rows.sum()} rows that lack a value are left out')
      continue
    x = columns[name]
    holes = np.isnan(x)
    empty = holes.any(axis=tuple(range(x.ndim - 1))) & np.isnan(middle)
    if empty.any():
      raise ValueError(
        f'{where}: column {empty.argmax()} of x has no value in training rows; leave it out'
      )
    out[name]['x'] = np.where(holes, middle.astype(x.dtype), x)
    notes.append(f'{name}: {holes.sum()} missing values filled by the median of training rows')
  return out, notes, middle is not None
