"""What a partitioner reads."""

from typing import NamedTuple

import numpy as np


class Spec(NamedTuple):
  """What a partitioner may read; the fields are those of `partition`."""

  y: np.ndarray
  """[rows] class labels, or [rows, labels] multi-hot."""
  clients: int
  classes: int
  alpha: float
  min_size: int
  labels: int
  client_ids: np.ndarray | None
  """[rows]."""
  natural_clients: int
  """Of the data set; 0: as many as `client_ids` name."""
  seed: int = 0
  """The partition's, for a draw that is another program's."""

  @property
  def totals(self) -> np.ndarray:
    """Rows by class, int64 [classes]."""
    return np.bincount(self.y, minlength=self.classes)

  @property
  def concentration(self) -> np.ndarray:
    """Alpha for every entry, [classes, clients]."""
    return np.full((self.classes, self.clients), float(self.alpha))


def even_sizes(rows: int, parts: int) -> np.ndarray:
  """Returns the sizes [parts] of parts of `rows` rows that differ by at most one."""
  return rows // parts + (np.arange(parts) < rows % parts)
