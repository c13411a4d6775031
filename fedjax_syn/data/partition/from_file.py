"""A partition from a file: the client of each training row, or the rows of each client."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np

PREFIX = 'file:'
FORMS = (
  'must hold the client of each training row, or as .json the rows of each client, in .npz (its'
  ' array clients, or the only one), .json or .csv (its column client, or the only one)'
)


class _Unfit(ValueError):
  """The file can be read and says something else."""


def owners(path: Path, rows: int, clients: int) -> np.ndarray:
  """Reads the client of every training row.

  Args:
    path: of the file.
    rows: of the training set.
    clients: how many there are, 0 .. clients - 1.

  Returns:
    int64 [rows], -1 for a row of nobody.

  Raises:
    ValueError: if the file cannot be read or does not fit.
  """
  where = f'data.partition={PREFIX}{path}'
  if not path.is_file():
    raise ValueError(f'{where}: no such file')
  try:
    content = _content(path)
  except _Unfit as error:
    raise ValueError(f'{where}: {error}') from error
  except Exception as error:  # whatever the readers make of a damaged file
    raise ValueError(f'{where}: {FORMS} ({type(error).__name__}: {error})') from error
  if isinstance(content, list) and content and all(isinstance(c, list) for c in content):
    if len(content) != clients:
      raise ValueError(
        f'{where}: has {len(content)} clients; data.clients={len(content)} would work'
      )
    owner, parts = np.full(rows, -1), [_whole(where, part) for part in content]
    taken = np.concatenate(parts)
    if taken.size and (taken.min() < 0 or taken.max() >= rows):
      raise ValueError(f'{where}: names rows {taken.min()} to {taken.max()} of 0 to {rows - 1}')
    if len(np.unique(taken)) < len(taken):
      raise ValueError(f'{where}: gives a row to two clients')
    for number, part in enumerate(parts):
      owner[part] = number
  else:
    owner = _whole(where, content)
  if len(owner) != rows:
    raise ValueError(f'{where}: has {len(owner)} rows, and the training set {rows}')
  if owner.min() < -1 or owner.max() >= clients:
    raise ValueError(
      f'{where}: clients must be 0 to {clients - 1}, and -1 for nobody, but are {owner.min()} to'
      f' {owner.max()} (data.clients={clients})'
    )
  return owner


def _content(path: Path) -> Any:
  if path.suffix == '.npz':
    with np.load(path, allow_pickle=False) as file:
      names = file.files
      if 'clients' not in names and len(names) != 1:
        raise _Unfit(f'has arrays {", ".join(names)}; one must be called clients')
      return file['clients' if 'clients' in names else names[0]]
  if path.suffix == '.json':
    return json.loads(path.read_text())
  if path.suffix == '.csv':
    with path.open(newline='') as file:
      table = [line for line in csv.reader(file) if line]
    header = [] if table[0][0].lstrip('-').isdigit() and 'client' not in table[0] else table.pop(0)
    column = header.index('client') if 'client' in header else 0
    if len(table[0]) > 1 and 'client' not in header:
      raise _Unfit(f'has columns {", ".join(header)}; one must be called client')
    return [int(line[column]) for line in table]
  raise _Unfit(f'is none of .npz, .json and .csv; {FORMS}')


def _whole(where: str, numbers: Any) -> np.ndarray:
  array = np.asarray(numbers)
  if array.ndim == 1 and not array.size:
    return np.zeros(0, np.int64)
  if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
    raise ValueError(f'{where}: {FORMS}; got {array.dtype}{list(array.shape)}')
  return array.astype(np.int64)
