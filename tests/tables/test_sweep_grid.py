"""Grids with conditions and distributions, their table and their figure."""

import math

import pytest

from fedjax_syn.tables import sweep

ITEMS = [
  'client.optimizer=sgd,adam',
  'client.lr=0.1',
  'client.momentum=0,0.9 if client.optimizer=sgd',
]


def test_a_setting_that_goes_with_another_is_in_its_cells_only():
  cells = sweep.choose(sweep.read_grid(ITEMS), 0, 0)
  assert cells == [
    {'client.optimizer': 'sgd', 'client.lr': '0.1', 'client.momentum': '0'},
    {'client.optimizer': 'sgd', 'client.lr': '0.1', 'client.momentum': '0.9'},
    {'client.optimizer': 'adam', 'client.lr': '0.1'},
  ]
  with pytest.raises(ValueError, match='must be on a --grid before it'):
    sweep.read_grid(ITEMS[::-1])


def test_values_are_drawn_from_distributions():
  grid = sweep.read_grid(['client.lr=log(1e-4,1e-1)', 'fedprox.mu=uniform(0.2,0.4)', 'a=x,y'])
  cells = sweep.choose(grid, 40, 0)
  assert len(cells) == 40 and cells[:10] == sweep.choose(grid, 10, 0)
  rates = [math.log10(float(cell['client.lr'])) for cell in cells]
  assert all(-4 <= rate <= -1 for rate in rates)
  assert sum(rate < -2.5 for rate in rates) > 8  # even in the exponent
  assert all(0.2 <= float(cell['fedprox.mu']) <= 0.4 for cell in cells)
  assert {cell['a'] for cell in cells} == {'x', 'y'}
  with pytest.raises(ValueError, match='--budget: says how many'):
    sweep.choose(grid, 0, 0)
  for wrong in ('log(0,1)', 'uniform(1,0)', 'log(a,b)'):
    with pytest.raises(ValueError, match='must be uniform'):
      sweep.choose({'client.lr': [wrong]}, 2, 0)


def test_a_table_and_a_figure_of_cells_with_different_settings(tmp_path):
  cells = sweep.choose(sweep.read_grid(ITEMS), 0, 0)
  means = (0.5, 0.7, None)
  records = [
    {'values': v, 'status': 0 if m else 3, 'mean': m, 'std': m and 0.01, 'folder': '', 'hash': ''}
    for v, m in zip(cells, means, strict=True)
  ]
  lines = sweep.table(records).splitlines()
  assert lines[0] == '| client.optimizer | client.lr | client.momentum | validation accuracy |'
  assert lines[2] == '| sgd | 0.1 | 0.9 | 70.00 ± 1.00 |'
  assert lines[4] == '| adam | 0.1 |  | diverged |'
  sweep.draw_scores(records, tmp_path / 'sweep.png')
  assert (tmp_path / 'sweep.png').stat().st_size > 1000
  sweep.draw_scores(records[2:], tmp_path / 'none.png')
  assert not (tmp_path / 'none.png').exists()
