"""Training rows in host memory: those of some clients, copied one client after the other."""

from typing import NamedTuple

import numpy as np

from fedjax_syn.data.federated import FederatedData


class Rows(NamedTuple):
  """Rows of some clients in arrays of a fixed length; zeros beyond the last row."""

  x: np.ndarray
  """uint8 [rows, height, width, channels], or tokens, int32 [rows, length]."""
  y: np.ndarray
  """int32 [rows], or multi-hot [rows, labels]."""


def most_rows(size: np.ndarray, clients: int) -> int:
  """Returns the rows that any so many clients have together, at most; at least 1.

  Args:
    size: samples of all clients, [all].
    clients: how many of them.
  """
  return max(1, int(np.sort(size)[-clients:].sum(dtype=np.int64)))


def sizes_of(data: FederatedData, clients: np.ndarray) -> np.ndarray:
  """Returns the samples of some clients, int32 [n]; 0 for a number beyond the last client."""
  size = np.asarray(data.size)
  return np.where(clients < len(size), size[np.minimum(clients, len(size) - 1)], 0)


def counts_of(data: FederatedData, clients: np.ndarray) -> np.ndarray:
  """Returns the samples of some clients by class, int32 [n, classes]; see `sizes_of`."""
  counts = np.asarray(data.class_counts)
  rows = counts[np.minimum(clients, len(counts) - 1)]
  return np.where((clients < len(counts))[:, None], rows, 0)


def starts_of(size: np.ndarray) -> np.ndarray:
  """Returns where each client's rows begin in `copy`, int32 [n]; size [n]."""
  return (np.cumsum(size) - size).astype(np.int32)


def copy(data: FederatedData, clients: np.ndarray, size: np.ndarray, rows: int) -> Rows:
  """Copies the rows of some clients; of a memory map no other page is read.

  Args:
    data: in host memory.
    clients: their numbers, [n].
    size: the samples of each, [n]; 0 for one whose rows are not copied.
    rows: length of the result, at least the sum of `size`.

  Returns:
    The rows, client by client.
  """
  x, y, order = np.asarray(data.x), np.asarray(data.y), np.asarray(data.order)
  start = np.asarray(data.start)
  first = start[np.minimum(clients, len(start) - 1)].astype(np.int64)
  total = int(size.sum())
  index = order[np.repeat(first - starts_of(size), size) + np.arange(total)]
  out = Rows(np.zeros((rows, *x.shape[1:]), x.dtype), np.zeros((rows, *y.shape[1:]), y.dtype))
  out.x[:total], out.y[:total] = x[index], y[index]
  return out
