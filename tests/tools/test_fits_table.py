"""The tables of docs/clusters.md: rows by hand, and the page shows what the files say."""

from tools import fits_table


def test_rows_by_hand():
  program = {
    'program': 'rounds 1 to 20',
    'unit': 'a round',
    'compiles': True,
    'temporaries': 458 << 20,
    'total': 1 << 30,
    'operations': 70.5e9,
    'bytes': 3.15e9,
    'collectives': {'all-reduce': 2 << 20},
    'least_seconds': {'operations': 0.0021, 'memory': 0.00385, 'links': 1e-5},
  }
  failed = {'program': 'synthesis', 'compiles': False, 'reason': 'needs 25.0 GiB of 15.8'}
  record = {'usable': 16 << 30, 'programs': [program, failed]}
  of_config = fits_table.Cell('dynafed_cifar10', 'v5e:2x2', 'dynafed_cifar10')
  start = '| dynafed_cifar10 | v5e:2x2 | rounds 1 to 20 | 458 MiB | 1.00 GiB, 6% | 70.5, 3.15 |'
  assert fits_table.rows(of_config, record) == [
    f'{start} 3.85 ms a round (memory) |',
    '| dynafed_cifar10 | v5e:2x2 | synthesis | does not compile: needs 25.0 GiB of 15.8 |  |  |  |',
  ]
  of_method = fits_table.Cell('method-fedavg', 'v5e:2x2', 'dynafed_digits')
  row = fits_table.rows(of_method, record)[0]
  assert row.startswith('| fedavg | v5e:2x2 |') and row.endswith('| all-reduce 2.00 MiB |')


def test_every_method_and_config_has_a_cell():
  from fedjax_syn import algorithms
  from fedjax_syn.core import paths

  on_v5e = {cell.name for cell in fits_table.cells() if cell.target == 'v5e:2x2'}
  methods = {f'method-{name}' for name in algorithms.names()}
  assert on_v5e == methods | set(paths.shipped_configs())


def test_the_page_shows_the_files():
  page = fits_table.PAGE.read_text()
  shown = page.split(fits_table.BEGIN)[1].split(fits_table.END)[0]
  assert shown == fits_table.tables()
