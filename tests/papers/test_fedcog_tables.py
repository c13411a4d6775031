"""FedCOG's tables as data: what the paper reports, and what the cells are."""

import pathlib

import pytest

from fedjax_syn import config as config_lib
from fedjax_syn import papers
from fedjax_syn.config import files, identity
from fedjax_syn.papers.fedcog import cells as _fedcog_cells
from fedjax_syn.papers.fedcog import flair
from fedjax_syn.tables import cells, spec

ENTRIES = papers.entries()
ROOT = pathlib.Path(__file__).parents[2]


def config(table, row, column, scale='paper'):
  entry = ENTRIES[f'fedcog/{table}']
  (r,), (c,) = spec.select(entry.rows, [row], ''), spec.select(entry.columns, [column], '')
  return cells.Table(entry, spec.SCALES[scale], ROOT / 'W', entries=ENTRIES).configure(r, c, 0)


@pytest.mark.parametrize(
  ('table', 'row', 'column', 'pair'),
  [
    ('table1', 'scaffold', 'fmnist-niid2', (58.47, 3.05)),
    ('table1', 'fedexp', 'cifar10-niid2', (37.97, 1.75)),
    ('table1', 'fedgen', 'cifar100-niid1', (37.99, 0.23)),
    ('table1', 'fedcog', 'fmnist-niid1', (77.34, 0.07)),
    ('table1', 'feddecorr', 'average', (51.53, None)),
    ('table3', 'moon+fedcog', 'cifar10-niid1', (63.24, None)),
    ('table3', 'scaffold', 'cifar10-niid2', (46.47, None)),
    ('table2', 'moon', 'c_precision', (31.41, None)),
    ('table2', 'fedcog', 'o_f1', (51.35, None)),
    ('table3-flair', 'moon+fedcog', 'o_f1', (52.78, None)),
    ('table4', 'moon', 'time', (1276, 147)),
    ('table4', 'fedcog', 'accuracy', (65.59, None)),
    ('table5', 'fedcog-hard', 'cifar10-niid2', (51.64, None)),
    ('table1', 'vhl', 'cifar100-niid2', (28.41, 0.48)),
    ('table6', 'ditto', 'cifar10-niid1', (76.57, None)),
    ('table7', 'fedcog-steps500', 'cifar10-niid1', (64.80, None)),
    ('table8', 'fedcog', '512', (0.83, None)),
    ('table8', 'fedcog', 'training', (14.81, None)),
    ('table9', 'moon', 'tau600', (63.27, None)),
    ('table10', 'fedcog', 'share0.2', (43.44, None)),
    ('table11', 'fedprox', 'clients20', (57.08, None)),
    ('composed', 'fedcog', 'fmnist-niid2', (73.68, 0.38)),
  ],
)
def test_the_paper_s_figures(table, row, column, pair):
  assert ENTRIES[f'fedcog/{table}'].reported[row, column] == pair


@pytest.mark.parametrize('number', [1, 2, 4, 5, 6, 7, 8, 9, 10, 11])
def test_every_cell_of_the_paper_s_tables_has_its_figure(number):
  entry = ENTRIES[f'fedcog/table{number}']
  cells_of = {(r.name, c.name) for r in entry.rows for c in entry.columns}
  assert cells_of <= set(entry.reported)
  if entry.proposed and number != 4:  # FedCOG is not the fastest
    for c in entry.columns:
      best = max(entry.reported[r.name, c.name][0] for r in entry.rows)
      assert best == entry.reported['fedcog', c.name][0]


def test_the_paper_s_averages_are_those_of_its_columns():
  entry = ENTRIES['fedcog/table1']
  for r in entry.rows:
    mean = sum(entry.reported[r.name, c.name][0] for c in entry.columns) / len(entry.columns)
    assert mean == pytest.approx(entry.reported[r.name, 'average'][0], abs=0.04)


def test_table_3_has_no_figure_where_the_paper_has_none():
  entry = ENTRIES['fedcog/table3']
  assert len(entry.rows) == 10
  assert not any('fmnist' in column for _, column in entry.reported)
  assert len(entry.reported) == 20


def test_fashion_mnist_s_cells_are_the_paper_s_at_both_scales_and_the_default_config_s():
  both = [config('table1', 'fedcog', 'fmnist-niid1', scale) for scale in ('cpu', 'paper')]
  assert both[0] == both[1] and both[0].rounds == 70 and both[0].client.steps == 400
  default = files.load_config(str(ROOT / 'configs' / 'fedcog_fashion_mnist.py'))
  default.compare = ''
  assert identity.diff(config_lib.check(default), both[0]) == []


def test_the_columns_are_what_the_paper_says():
  niid1, niid2 = (config('table1', 'fedavg', f'cifar100-niid{n}') for n in (1, 2))
  assert (niid1.data.partition, niid1.data.alpha) == ('dirichlet_min', 0.1)
  assert (niid2.data.partition, niid2.data.labels) == ('labels_per_client', 10)
  assert config('table1', 'fedavg', 'cifar10-niid2').data.labels == 2
  assert niid1.model.name == 'cnn3' and niid1.data.normalisation == 'cifar100'
  assert config('table3', 'fedcog', 'cifar10-niid1').rounds == 51
  assert config('table9', 'moon', 'tau800').client.steps == 800
  assert config('table10', 'moon', 'share0.3').client.participation == 0.3
  assert config('table10', 'moon', 'share0.3').data.clients == 50
  assert config('table11', 'moon', 'clients30').data.clients == 30
  assert config('figure3-a', 'fedprox', 'cifar10-5').data.alpha == 5.0


def test_methods_have_the_values_that_the_paper_states():
  of = lambda name: getattr(config('table1', name, 'cifar10-niid1').blocks[name], FIELDS[name])
  FIELDS = {
    'fedavgm': 'momentum',
    'fedprox': 'mu',
    'moon': 'mu',
    'fedsam': 'rho',
    'fedexp': 'epsilon',
    'feddecorr': 'beta',
    'scaffold': 'correction',
    'vhl': 'align_epochs',
  }
  assert {name: of(name) for name in FIELDS} == {
    'fedavgm': 0.1,
    'fedprox': 0.01,
    'moon': 0.01,
    'fedsam': 0.5,
    'fedexp': 1e-3,
    'feddecorr': 0.01,
    'scaffold': 'step',
    'vhl': 5,
  }
  assert config('table3', 'moon+fedcog', 'cifar10-niid1').moon.mu == 0.01
  assert config('table3', 'scaffold+fedcog', 'cifar10-niid1').scaffold.correction == 'step'


def test_cifar_is_reduced_on_a_cpu_and_keeps_what_a_column_varies():
  assert config('table1', 'fedcog', 'cifar10-niid1', 'cpu').rounds == 30
  taus = [config('table9', 'fedcog', f'tau{t}', 'cpu').client.steps for t in (200, 400, 600, 800)]
  assert taus == [50, 100, 150, 200]
  one_more = config('table3', 'fedcog', 'cifar10-niid1', 'cpu')
  assert one_more.rounds == one_more.fedcog.start + 1 == 21


def test_smoke_keeps_what_the_columns_mean():
  for table in ('table1', 'table3', 'table10'):
    for c in ENTRIES[f'fedcog/{table}'].columns:
      small = config(table, 'fedcog', c.name, 'smoke')
      assert small.data.name == 'digits' and small.fedcog.start < small.rounds
      assert small.data.partition == c.settings['data.partition']
  assert config('table1', 'fedavg', 'cifar100-niid2', 'smoke').data.labels == 1  # a tenth of ten
  assert config('table10', 'moon', 'share0.4', 'smoke').data.clients == 50
  assert config('table11', 'moon', 'clients5', 'smoke').data.clients == 5
  taus = [config('table9', 'moon', f'tau{t}', 'smoke').client.steps for t in (200, 400, 600, 800)]
  assert taus == sorted(set(taus))
  steps = [
    config('table7', r.name, 'cifar10-niid1', 'smoke').fedcog.steps for r in _fedcog_cells.STEPS
  ]
  assert steps == [0, 2, 5, 8, 12]


def test_ablations_change_what_they_say():
  of = lambda row: config('table5', row, 'cifar10-niid1').fedcog
  assert (of('fedcog-noise').source, of('fedcog-noise').supervision) == ('noise', 'soft')
  assert of('fedcog-global').source == 'global' and of('fedcog-hard').supervision == 'hard'
  assert of('fedcog').source == 'global+local' and of('fedcog').supervision == 'soft'
  kd = config('figure3-c', 'fedcog-kd0.1', 'cifar10-niid1').fedcog
  assert (kd.weights, kd.lambda_kd) == ('fixed', 0.1)
  assert config('figure3-b', 'fedcog-dis10', 'cifar10-niid2').fedcog.lambda_dis == 10


def test_the_composition_stands_beside_its_parts_and_shares_their_rounds():
  """FedAvg starts from FedCOG at T0 = 50, and DynaFed from the two together at 50.

  Neither starts at L = 20.
  """
  entry = ENTRIES['fedcog/composed']
  assert [r.name for r in entry.rows] == ['fedavg', 'fedcog', 'dynafed', 'fedcog+dynafed']
  table = cells.Table(entry, spec.SCALES['paper'], ROOT / 'W', entries=ENTRIES)
  begins = {}
  for r in entry.rows:
    run = table.run(r, entry.columns[0], 0)
    begins[r.name] = '/'.join(pathlib.Path(run.config.start_from).parts[-5:])
    assert run.config.rounds == 70 and run.config.client.steps == 400
  assert begins == {
    'fedavg': 'fedcog/fmnist-niid1/seed0/checkpoints/50',
    'fedcog': '',
    'dynafed': 'fedcog+dynafed/fmnist-niid1/seed0/checkpoints/50',
    'fedcog+dynafed': '',
  }


@pytest.mark.parametrize('scale', ['cpu', 'paper'])
def test_pairs_of_table_3_share_the_rounds_before_t0(scale):
  """Both runs of a pair continue from one checkpoint.

  On Fashion-MNIST they share 5 x 50 rounds and run 5 x 2 x 1 of their own.
  """
  entry = ENTRIES['fedcog/table3']
  table = cells.Table(entry, spec.SCALES[scale], ROOT / 'W', entries=ENTRIES)
  for c in entry.columns:
    ends = set()
    for without, plugged in zip(entry.rows[::2], entry.rows[1::2], strict=True):
      a, b = (table.run(r, c, 0) for r in (without, plugged))
      assert b.config.algorithm in (f'{without.name}+fedcog', 'fedcog')
      shared = pathlib.Path(a.config.start_from)
      if without.name == 'fedavg':  # in table1's run, which continues
        assert b.config.start_from == a.config.start_from and '/table1/fedcog/' in str(shared)
      else:
        assert shared.parts[:-2] == b.folder.parts and not b.config.start_from
      assert a.config.rounds == b.config.rounds == int(shared.name) + 1
      ends.add(int(shared.name))
    assert ends == {50 if scale == 'paper' or c.name.startswith('fmnist') else 20}


def test_dynafed_around_fedcog_is_a_word():
  both = config('composed', 'fedcog+dynafed', 'fmnist-niid2')
  assert (
    both.algorithm == 'fedcog+dynafed' and both.dynafed.length == 20 and both.fedcog.start == 50
  )


def test_local_models_are_measured_where_the_three_methods_part():
  entry = ENTRIES['fedcog/figure2']
  for scale in spec.SCALES:
    table = cells.Table(entry, spec.SCALES[scale], ROOT / 'W', entries=ENTRIES)
    for r in entry.rows:
      run = table.run(r, entry.columns[0], 0)
      start = int(pathlib.Path(run.config.start_from).name)
      assert run.warm_start_from.row.name == 'fedcog' and '/table1/fedcog/' in run.config.start_from
      assert run.config.personal_every == start == run.config.rounds - 1


def test_flair_s_columns_are_one_run():
  entry = ENTRIES['fedcog/table2']
  table = cells.Table(entry, spec.SCALES['paper'], ROOT / 'W', entries=ENTRIES)
  runs = [table.run(entry.rows[-1], c, 0) for c in entry.columns]
  assert len({run.folder for run in runs}) == 1
  assert (runs[0].config.rounds, runs[0].config.fedcog.start) == (405, 400)
  assert runs[0].config.data.clients * runs[0].config.client.participation == 10
  pairs = ENTRIES['fedcog/table3-flair']
  run = cells.Table(pairs, spec.SCALES['paper'], ROOT / 'W', entries=ENTRIES).run(
    pairs.rows[0], pairs.columns[0], 0
  )
  assert '/table2/fedcog/flair/' in run.config.start_from and run.config.rounds == 403


def test_the_small_data_set_has_the_bits_of_its_digits():
  from fedjax_syn.data import datasets

  small, digits = flair.many_labels(), datasets.load('digits')
  assert (small.train.y @ [1, 2, 4, 8] == digits.train.y).all() and small.num_classes == 4
  assert len(set(small.clients.tolist())) == flair.CLIENTS
  held = [set(digits.train.y[small.clients == c].tolist()) for c in range(flair.CLIENTS)]
  assert all(len(digits_of) <= 3 for digits_of in held)
