"""FLAIR in FedCOG's Tables 2 and 3: rows, columns, and a small data set for smoke runs."""

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from fedjax_syn.papers.fedcog.cells import ROWS, SMOKE, plugged
from fedjax_syn.tables import measures
from fedjax_syn.tables.spec import Column

if TYPE_CHECKING:
  from fedjax_syn.data.dataset import Dataset

CLIENTS = 12
"""Of the small data set."""
CPU = {'rounds': 45, 'fedcog.start': 40, 'model.width': 16, 'data.clients': 50}
SMALL = {
  **SMOKE,
  'data.name': f'{__name__}:many_labels',
  'data.clients': 8,
  'client.participation': 0.5,
  'fedcog.lambda_kd': 1.0,  # with 0.01 six rounds show nothing
}
METRICS = {'c_precision': 'C-P', 'c_recall': 'C-R', 'c_f1': 'C-F1', 'o_f1': 'O-F1'}


def many_labels() -> 'Dataset':
  """Returns digits with four labels each, the bits of the digit, and neighbours on a client."""
  from fedjax_syn.data import datasets  # slow to import, and only runs need it

  digits = datasets.load('digits')
  bits = lambda split: split._replace(y=(split.y[:, None] >> np.arange(4)) & 1)
  order = np.argsort(digits.train.y, kind='stable')
  clients = np.empty(len(order), np.int32)
  clients[order] = np.arange(len(order)) * CLIENTS // len(order)
  return dataclasses.replace(
    digits,
    name='many_labels',
    title='digits, bit by bit',
    train=bits(digits.train),
    test=bits(digits.test),
    num_classes=4,
    clients=clients,
  )


def _columns(
  table: str, names: Iterable[str], rounds: int, cpu: int, smoke: int
) -> tuple[Column, ...]:
  return tuple(
    Column(
      name,
      f'FLAIR {METRICS[name]}',
      'fedcog_flair',
      {'rounds': rounds},
      {'cpu': {**CPU, 'rounds': cpu}, 'smoke': {**SMALL, 'rounds': smoke}},
      group='flair',
      shares_runs_with=(table, 'flair'),
      measure=measures.of_labels(name, last='table3' in table),
    )
    for name in names
  )


# VHL, FedReg and FedGen are made for one label per sample; the paper has no FedGen here.
TABLE2_ROWS = tuple(r for r in ROWS if r.name not in ('vhl', 'fedreg', 'fedgen'))
TABLE2 = _columns('fedcog/table2', METRICS, 405, 45, 6)
# Three rounds more than T0.
TABLE3 = _columns('fedcog/table3-flair', ('o_f1', 'c_f1'), 403, 43, 6)
TABLE3_ROWS = plugged('table2')
