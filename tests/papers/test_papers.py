"""The papers' tables as data: what they report, and that every cell can be run at every scale."""

import pathlib

import pytest

from fedjax_syn import config as config_lib
from fedjax_syn import papers
from fedjax_syn.config import files, identity
from fedjax_syn.tables import cells, spec

ENTRIES = papers.entries()
ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.parametrize(
  ('table', 'row', 'column', 'pair'),
  [
    ('table1', 'fedavg', 'fmnist-0.01', (74.50, 1.32)),
    ('table1', 'abavg', 'cifar10-0.04', (57.25, 3.42)),
    ('table1', 'dynafed', 'cinic10-0.16', (59.80, 0.10)),
    ('table2', 'fedbe', 'cifar100-0.08', (33.91, 0.79)),
    ('table3', 'feddf', 'epochs10-0.01', (39.85, 3.79)),
    ('table3', 'scaffold', 'epochs5-0.04', (55.46, 1.25)),
    ('table4', 'fedmix', 'cinic10-0.01', (79.0, 7.8)),
    ('table4-mlp', 'dynafed', 'mlp-0.04', (22.0, 1.0)),
    ('table5', 'dynafed', 'mlp-0.01', (73.89, 0.24)),
    ('table5', 'fedgen', 'convnet-0.04', (86.60, 1.08)),
    ('table6', 'fedprox', 'cifar10-20%-0.16', (69.99, 1.08)),
    ('composed', 'scaffold', 'mlp-0.04', (78.09, 1.35)),
  ],
)
def test_the_paper_s_figures(table, row, column, pair):
  assert ENTRIES[f'dynafed/{table}'].reported[row, column] == pair


@pytest.mark.parametrize('name', [f'dynafed/table{n}' for n in range(1, 7)])
def test_every_cell_of_the_paper_s_tables_has_its_figure(name):
  entry = ENTRIES[name]
  assert {(r.name, c.name) for r in entry.rows for c in entry.columns} == set(entry.reported)
  assert all(
    entry.measure.best([entry.reported[r.name, c.name][0] for r in entry.rows])
    == entry.reported['dynafed', c.name][0]
    for c in entry.columns
  )


@pytest.mark.parametrize(
  'scale', [pytest.param(s, marks=[pytest.mark.slow] * (s == 'smoke')) for s in spec.SCALES]
)
def test_every_cell_can_be_run_and_shared_folders_hold_the_same_run(scale, tmp_path):
  configs, shared = {}, 0
  for entry in ENTRIES.values():
    table = cells.Table(entry, spec.SCALES[scale], tmp_path, entries=ENTRIES)
    for r in entry.rows:
      for c in entry.columns:
        run = table.run(r, c, 0)
        assert run.config.algorithm == (r.algorithm or r.name) and run.config.compare == ''
        if (other := configs.setdefault(run.folder, run.config)) is not run.config:
          shared += 1
          same = other == run.config or identity.hash8(other) == identity.hash8(run.config)
          assert same, run.folder
  assert shared > 0


def test_smoke_keeps_what_the_columns_mean(tmp_path):
  def config(table, row, column):
    entry = ENTRIES[f'dynafed/{table}']
    (r,), (c,) = spec.select(entry.rows, [row], ''), spec.select(entry.columns, [column], '')
    return cells.Table(entry, spec.SCALES['smoke'], tmp_path).configure(r, c, 0)

  assert config('table1', 'fedavg', 'cifar10-0.16').data.alpha == 0.16
  assert config('table3', 'fedavg', 'epochs5-0.01').client.epochs == 5
  assert config('table6', 'fedavg', 'cifar10-20%-0.01').client.participation == 0.2
  assert config('table5', 'fedavg', 'mlp-0.01').model.name == 'mlp'
  assert config('table5', 'fedavg', 'convnet-0.01').model.name == 'convnet'
  assert config('figure5-right', 'dynafed-ipc30', 'cifar10-0.04').dynafed.images_per_class == 30
  lengths = [
    config('figure5-left', r.name, 'cifar10-0.01').dynafed.length
    for r in ENTRIES['dynafed/figure5-left'].rows[2:]
  ]
  assert lengths == [2, 3, 4, 5]
  for r in ENTRIES['dynafed/table1'].rows:
    assert config('table1', r.name, 'cinic10-0.04').data.name == 'digits'


def test_the_mlp_s_cells_are_the_paper_s_at_both_scales_and_the_default_config_s():
  entry = ENTRIES['dynafed/table5']
  mlp, row = entry.columns[0], entry.rows[-1]
  both = [cells.Table(entry, spec.SCALES[s], ROOT).configure(row, mlp, 0) for s in ('cpu', 'paper')]
  assert both[0] == both[1] and both[0].rounds == 200 and both[0].dynafed.iterations == 1000
  config = files.load_config(str(ROOT / 'configs' / 'dynafed_fashion_mnist.py'))
  config.compare = ''
  assert identity.diff(config_lib.check(config), both[0]) == []


def test_at_their_own_rates_methods_differ_from_table_5_in_nothing_else():
  plain, own = ENTRIES['dynafed/table5'], ENTRIES['dynafed/table5-rates']
  for scale, changed in (('paper', ['client.lr']), ('smoke', [])):
    for a, b in zip(plain.rows, own.rows, strict=True):
      of = lambda entry, row: cells.Table(entry, spec.SCALES[scale], ROOT).configure(
        row, entry.columns[0], 0
      )
      differing = [line.split(':')[0] for line in identity.diff(of(plain, a), of(own, b))]
      assert differing == (changed if a.name != 'fedmix' else []), (a.name, differing)


def test_tuned_settings_hold_where_numbers_mean_something():
  r = spec.Row('fedprox', 'FedProx', tuned={'': {'client.lr': 0.1}, 'b': {'fedprox.mu': 0.5}})
  a, b = (spec.Column('c', 'c', 'x', {'client.lr': 1.0}, group=group) for group in 'ab')
  paper, smoke = spec.SCALES['paper'], spec.SCALES['smoke']
  assert spec.settings_of(r, a, paper)['client.lr'] == 0.1
  assert 'fedprox.mu' not in spec.settings_of(r, a, paper)
  assert spec.settings_of(r, b, paper)['fedprox.mu'] == 0.5
  assert spec.settings_of(r, b, smoke)['client.lr'] == 1.0


def test_a_composition_has_the_tuned_settings_of_its_parts():
  tuned = {
    'fedprox': {'': {'fedprox.mu': 0.1, 'client.lr': 1.0}, 'g': {'client.lr': 2.0}},
    'dynafed': {'': {'client.lr': 3.0}},
    'fedprox+dynafed': {'g': {'fedprox.mu': 0.2}},
  }
  assert spec.tuned(tuned, 'fedprox') == tuned['fedprox']
  assert spec.tuned(tuned, 'fedprox+dynafed') == {
    '': {'fedprox.mu': 0.1, 'client.lr': 3.0},
    'g': {'client.lr': 2.0, 'fedprox.mu': 0.2},
  }
  assert spec.tuned(tuned, 'fedmix') == {}
