"""Columns of numbers of Parquet files as a table, read batch by batch into one array each part."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fedjax_syn.data import features
from fedjax_syn.data.builders import bounded

BATCH = 2**19  # numbers that are read from a file at once


def is_number(kind: pa.DataType) -> bool:
  """Says whether a column holds numbers, or lists of them."""
  if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
    kind = kind.value_type
  return pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)


class Table:
  """The features of training and of test rows."""

  def __init__(self, sizes: Sequence[int], where: str):
    """Notes the number of training and of test rows, and what a message begins with."""
    self.sizes, self.where = sizes, where
    self.arrays: list[np.ndarray] = []
    self.names: tuple[str, ...] = ()
    self.done = [0, 0]

  def fill(self, files: Sequence[Path], columns: Sequence[str], tested: np.ndarray) -> None:
    """Reads the features of a split; tested says which of its rows are test rows."""
    row, rows = 0, max(1, BATCH // len(columns))
    for path in files:
      with pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20) as file:
        for batch in file.iter_batches(rows, columns=list(columns), use_threads=False):
          block = self._block(batch, columns, path)
          of = tested[row : row + len(block)]
          for part in (0, 1):
            chosen = block[of == part]
            self.arrays[part][self.done[part] : self.done[part] + len(chosen)] = chosen
            self.done[part] += len(chosen)
          row += len(block)

  def _block(self, batch: pa.RecordBatch, columns: Sequence[str], path: Path) -> np.ndarray:
    """Returns the features of some rows, float32 [rows, features]."""
    values = {name: _values(batch.column(name), f'{path}: column {name!r}') for name in columns}
    names = tuple(
      name if block.ndim == 1 else f'{name}[{i}]'
      for name, block in values.items()
      for i in range(1 if block.ndim == 1 else block.shape[1])
    )
    if not self.arrays:
      self.names = names
      bounded.check_bytes(4 * sum(self.sizes) * len(names), self.where)
      self.arrays = [np.empty((rows, len(names)), np.float32) for rows in self.sizes]
    if names != self.names:
      raise ValueError(
        f'{path}: its lists make {len(names)} features a row, and those before {len(self.names)}'
      )
    block = np.column_stack(list(values.values()))
    return features.to_float32({str(path): block})[0][str(path)]

  def finish(self) -> list[np.ndarray]:
    """Returns the features of training and of test rows."""
    return self.arrays


def _values(column: pa.Array, where: str) -> np.ndarray:
  """Returns numbers [rows], or lists of one length [rows, length], as floats; nan where missing."""
  kind = column.type
  if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or hasattr(kind, 'list_size')):
    return column.cast(pa.float64()).to_numpy(zero_copy_only=False)
  if column.null_count:
    raise ValueError(f'{where} has a row without a list')
  flat = column.flatten()
  length, rest = divmod(len(flat), max(1, len(column)))
  sizes = {length} if hasattr(kind, 'list_size') else set(column.value_lengths().to_pylist())
  if rest or sizes != {length} or not length:
    raise ValueError(f'{where} has lists of {min(sizes)} and {max(sizes)} numbers')
  return flat.cast(pa.float64()).to_numpy(zero_copy_only=False).reshape(len(column), length)
