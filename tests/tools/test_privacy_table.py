"""The table of what sets give away, from stored numbers."""

import json

from tools import privacy_table
from tools.series_cells import load

SPEC = """
title = "Two methods"
base = []

[runs.fedavg]
title = "FedAvg"
settings = []

[runs.dynafed]
title = "DynaFed"
settings = []
"""


def seed(auc):
  attack = lambda value: {'auc': value, 'std_error': 0.01}
  return {
    'images': 100,
    'nearest': {'share_nearer': 0.25},
    'membership': {
      'distance': attack(auc),
      'distance, noise': attack(0.5),
      'loss': attack(0.51),
      'loss, network before training': attack(0.5),
    },
    'accuracy_from_scratch': 0.5,
  }


def test_accuracy_bytes_and_attacks_stand_beside_each_other(tmp_path):
  (tmp_path / 'series.toml').write_text(SPEC)
  run = {'test_accuracy': {'mean_last_5': {'per_seed': [0.5, 0.7]}}, 'bytes_up': 2_500_000}
  for name in ('fedavg', 'dynafed'):
    (tmp_path / f'{name}.run.json').write_text(json.dumps(run))
  numbers = {'steps': 5, 'seeds': [seed(0.6), seed(0.62)]}
  (tmp_path / 'dynafed.privacy.json').write_text(json.dumps(numbers))
  text = privacy_table.table(load(tmp_path))
  assert '| FedAvg | 60.0 ± 14.1 | 2.50 |  |  |  |  |  |' in text
  assert '| 100 | 25.0 ± 0.0 % | 0.610 ± 0.014 (0.500 ± 0.000) | 0.510 ± 0.000' in text
