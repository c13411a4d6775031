"""Means over seeds as texts, with their deviation or their 95 % interval."""

import numpy as np
from scipy import stats


def interval(values: np.ndarray) -> float:
  """Returns half of the 95 % interval of a mean, by Student's t.

  Args:
    values: [n], one for each seed; n is at least two.
  """
  return float(stats.t.ppf(0.975, len(values) - 1) * stats.sem(values))


def spread(values: np.ndarray) -> str:
  """Returns the mean with the standard deviation, which one value lacks.

  Args:
    values: [n], accuracies in per cent.
  """
  return f'{values.mean():.2f}' + (f' ± {values.std(ddof=1):.2f}' if len(values) > 1 else '')


def difference(values: np.ndarray) -> str:
  """Returns the signed mean with its 95 % interval, which one value lacks.

  Args:
    values: [n], differences in percentage points.
  """
  return f'{values.mean():+.2f}' + (f' ± {interval(values):.2f}' if len(values) > 1 else '')
