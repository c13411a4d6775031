"""Accuracy by round of a series: means of five rounds, differences of the same seeds, intervals."""

import json

import numpy as np
import pytest

from tools import series_cells, series_curves, series_statistics

SPEC = """
title = "Two runs"
base = []

[curves]
rounds = [5, 7]
lowest = 0

[curves.above]
a = ["b", "c"]

[runs.a]
title = "A"
settings = []

[runs.b]
title = "B"
settings = []

[runs.c]
title = "C"
settings = []
"""
# Rounds 0 to 7. Means of rounds 1 to 5 and of rounds 3 to 7: 0.3 and 0.5, then 0.5 and 0.8.
A = {'0': [0.9, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7], '10': [0, 0.5, 0.5, 0.5, 0.5, 0.5, 1, 1.5]}
B = {'0': [0.9, *[0.2] * 7], '10': [0, *[0.2] * 7]}


@pytest.fixture
def found(tmp_path):
  """A series in which the run c is not finished."""
  (tmp_path / 'series.toml').write_text(SPEC)
  for name, curves in (('a', A), ('b', B)):
    (tmp_path / f'{name}.run.json').write_text(json.dumps({'curves': curves}))
  return series_cells.load(tmp_path)


def test_means_end_with_their_round_and_leave_out_round_0(found):
  values = series_curves.means({'curves': A})
  assert values.shape == (2, 8) and np.isnan(values[:, :5]).all()
  np.testing.assert_allclose(values[:, 5], [30, 50])
  np.testing.assert_allclose(values[:, 7], [50, 80])


def test_the_table_compares_the_same_seeds(found):
  text = series_curves.table(found)
  assert '| run | round 5 | round 7 |' in text
  assert '| A | 40.00 ± 14.14 | 65.00 ± 21.21 |' in text  # 20 / sqrt 2 and 30 / sqrt 2
  assert '| B | 20.00 ± 0.00 | 20.00 ± 0.00 |' in text
  # Half the distance of two seeds, 10 and 15, times the quantile 12.706 of one degree of freedom.
  assert '| A, above B | +20.00 ± 127.06 | +45.00 ± 190.59 |' in text
  assert 'above C' not in text


def test_the_interval_of_five_values():
  # The standard error of 1 to 5 is sqrt(2.5 / 5), the quantile of four degrees of freedom 2.7764.
  assert series_statistics.interval(np.arange(1.0, 6)) == pytest.approx(2.7764 * 0.5**0.5, rel=1e-4)


def test_the_figure_has_the_finished_runs(found, tmp_path):
  series_curves.draw(found, tmp_path / 'curves.svg')
  assert '<svg' in (tmp_path / 'curves.svg').read_text()
