"""FedDualMatch's tables as data: what the paper reports, and what the cells are."""

import pathlib

import numpy as np
import pytest

from fedjax_syn import algorithms, papers
from fedjax_syn import config as config_lib
from fedjax_syn.config import files, identity
from fedjax_syn.papers.feddualmatch import cells as made
from fedjax_syn.tables import cells, spec

ENTRIES = papers.entries()
ROOT = pathlib.Path(__file__).parents[2]
METHODS = ('fedavg', 'fedprox', 'fednova', 'scaffold', 'dynafed', 'feddm', 'feddualmatch')


def config(table, row, column, scale='paper'):
  entry = ENTRIES[f'feddualmatch/{table}']
  (r,), (c,) = spec.select(entry.rows, [row], ''), spec.select(entry.columns, [column], '')
  return cells.Table(entry, spec.SCALES[scale], ROOT / 'W', entries=ENTRIES).configure(r, c, 0)


@pytest.mark.parametrize(
  ('row', 'column', 'pair'),
  [
    ('fedavg', 'mnist-0.05', (97.93, 0.02)),
    ('fednova', 'mnist-0.005', (77.97, 5.35)),
    ('scaffold', 'cifar10-0.01', (17.14, 2.11)),
    ('dynafed', 'cifar10-0.05', (57.23, 1.56)),
    ('feddm', 'mnist-0.01', (95.38, 0.12)),
    ('feddualmatch', 'cifar10-0.005', (43.75, 0.68)),
  ],
)
def test_the_paper_s_figures(row, column, pair):
  assert ENTRIES['feddualmatch/table1'].reported[row, column] == pair


def test_table_1_has_a_figure_for_every_cell():
  entry = ENTRIES['feddualmatch/table1']
  assert tuple(r.name for r in entry.rows) == METHODS
  assert {(r.name, c.name) for r in entry.rows for c in entry.columns} == set(entry.reported)
  for c in entry.columns:
    best = max(METHODS, key=lambda r: entry.reported[r, c.name][0])
    assert best == ('dynafed' if c.name.endswith('0.05') else 'feddualmatch')


def test_the_cpu_scale_of_table_1_is_all_of_mnist():
  """Every method and alpha has 20 rounds, full participation and 10 images per class.

  The width is 32, and there are 200 iterations.
  """
  for name in METHODS:
    for alpha in (0.05, 0.01, 0.005):
      c = config('table1', name, f'mnist-{alpha:g}', 'cpu')
      assert (c.data.name, c.data.alpha, c.data.clients) == ('mnist', alpha, 10)
      assert (c.rounds, c.client.participation, c.data.validation) == (20, 1.0, 0.0)
      assert (c.model.name, c.model.width) == ('convnet', 32)
      for block in (c.feddm, c.feddualmatch):
        assert block.images_per_class == 10 and block.iterations == 200
  paper = config('table1', 'feddualmatch', 'mnist-0.01')
  assert paper.model.width == 128 and paper.feddm.iterations == 1000


def test_the_default_config_is_the_table_s():
  c = files.load_config(str(ROOT / 'configs' / 'feddualmatch_mnist.py'))
  c.compare = ''
  assert identity.diff(config_lib.check(c), config('table1', 'feddualmatch', 'mnist-0.01')) == []


@pytest.mark.parametrize('scale', spec.SCALES)
def test_domains_are_one_run_and_several_measures(scale):
  entry = ENTRIES['feddualmatch/table2']
  table = cells.Table(entry, spec.SCALES[scale], ROOT / 'W', entries=ENTRIES)
  for name, (_, _, domains) in made.DOMAINS.items():
    columns = [c for c in entry.columns if c.group == name]
    assert [c.name for c in columns] == [*(f'{name}-{d}' for d in domains), name]
    runs = [table.run(made.FEDDUALMATCH, c, 0) for c in columns]
    assert len({run.folder for run in runs}) == 1
    c = runs[0].config
    assert (c.data.clients, c.data.partition) == (len(domains), 'natural')
    assert c.data.name == (f'{made.__name__}:{name}' if scale == 'smoke' else name)
    result = spec.Result('finished', lines=[{f'test/domain/{domains[1]}/accuracy': 0.5}])
    assert [column.measure.value(result, None) for column in columns[:2]] == [None, 50.0]


@pytest.mark.parametrize('name', made.DOMAINS)
def test_stand_ins_have_the_domains_of_the_real_ones(name):
  data = getattr(made, name)()
  assert data.domains == made.DOMAINS[name][2]
  assert set(data.clients) == set(data.test_domains) == set(range(len(data.domains)))
  assert len(data.train.y) == 1198 and len(data.test.y) == 599
  darkest = [data.train.x[data.clients == i].min() for i in range(len(data.domains))]
  np.testing.assert_array_equal(darkest, 20 * np.arange(len(data.domains)))


def test_ablations_and_ambiguities_change_what_they_say():
  of = lambda row: config('figure5-b', row, 'mnist-0.01', 'smoke').feddualmatch
  assert (of('feddualmatch').alignment, of('feddualmatch').matches) == ('backward', 2)
  assert (of('feddualmatch-all').alignment, of('feddualmatch-all').matches) == ('all', 2)
  for row, alignment in (('no-ggm', 'backward'), ('last-no-ggm', 'last'), ('all-no-ggm', 'all')):
    assert (of(f'feddualmatch-{row}').alignment, of(f'feddualmatch-{row}').matches) == (
      alignment,
      0,
    )
  for scale, is_plain in (('paper', 'each-stage'), ('cpu', 'in-all')):
    plain = config('ambiguities', 'feddualmatch', 'mnist-0.01', scale)
    for row in made.AMBIGUITIES[1:]:
      changed = identity.diff(plain, config('ambiguities', row.name, 'mnist-0.01', scale))
      assert len(changed) == (row.name != f'feddualmatch-{is_plain}'), row.name
      assert all(line.startswith('feddualmatch.') for line in changed), row.name


def test_sizes_of_sets_differ_at_every_scale():
  for scale in spec.SCALES:
    found = [
      config('figure5-c', r.name, 'mnist-0.01', scale).feddualmatch.images_per_class
      for r in made.IMAGES
    ]
    assert found == sorted(set(found)) or scale == 'smoke' and len(set(found)) > 2


def test_noise_in_both_forms_and_epsilon_beside_accuracy():
  entry = ENTRIES['feddualmatch/figure5-a']
  words = {r.name: config('figure5-a', r.name, 'epsilon').feddualmatch for r in entry.rows}
  assert {b.clipping for n, b in words.items() if n.startswith('feddualmatch-set')} == {'set'}
  assert words['feddualmatch-example5'].clipping == 'example'
  assert words['feddualmatch-set5-r1'].sigma_r == 1.0 and words['feddualmatch'].clip == 0
  value = entry.columns[1].measure.value
  assert value(spec.Result('finished', summary={'epsilon': 3.5}), None) == 3.5
  assert value(spec.Result('finished', summary={'epsilon': None}), None) is None


def test_the_figure_of_traffic_has_every_algorithm():
  entry = ENTRIES['feddualmatch/figure6']
  assert [r.name for r in entry.rows] == list(algorithms.names())
  up, down = (c.measure for c in entry.columns)
  result = spec.Result('finished', summary={'bytes_up': 9e6, 'bytes_down': 3e6, 'rounds': 3})
  assert (up.value(result, None), down.value(result, None)) == (3.0, 1.0)
  wide = config('figure6', 'feddualmatch', 'up')
  assert (wide.model.width, wide.data.name, wide.data.alpha) == (128, 'mnist', 0.05)
