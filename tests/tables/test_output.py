"""What a table prints: ours before the paper's, footnotes, what is reduced, figures."""

import json
import pathlib

import pytest

import fedjax_syn
from fedjax_syn import papers
from fedjax_syn.tables import post_run
from tests.tables.table_runs import TWO, read_json, row, start

pytest_plugins = ['tests.tables.table_fixtures']
ENTRIES = papers.entries()


def test_ours_stand_before_the_paper_s_with_the_spread_over_seeds(runs, capsys):
  """0.5, 0.6, 0.7: mean 60, standard deviation 10 with ddof 1 (8.16 with ddof 0)."""
  runs.accuracy = {'fedavg': [0.5, 0.6, 0.7], 'dynafed': [0.8, 0.8, 0.83]}
  assert start(*TWO, '--seeds=3') == 0
  out = capsys.readouterr().out
  assert row(out, 'FedAvg') == [
    'FedAvg',
    '60.00 ± 10.00 (65.64 ± 1.69)',
    '60.00 ± 10.00 (73.26 ± 1.49)',
  ]
  assert row(out, 'DynaFed')[1] == '81.00 ± 1.73 (73.89 ± 0.24)'
  assert '- seeds: 0, 1, 2\n' in out
  assert out.count('±') == len([*row(out, 'FedAvg'), *row(out, 'DynaFed')][2:]) * 2 + 2  # + a note
  cell = read_json()['cells'][0]
  assert cell['mean'] == pytest.approx(60) and cell['std'] == pytest.approx(10)
  assert cell['paper'] == {'mean': 65.64, 'std': 1.69}
  assert pathlib.Path('W/dynafed/table5/table.md').read_text() in out


def test_a_collapsed_seed_is_named(runs, capsys):
  runs.accuracy = {'fedavg': [0.1, 0.5], 'dynafed': 0.8}
  start('--rows=fedavg', '--cols=mlp-0.01', '--seeds=2')
  (path,) = pathlib.Path('W').rglob('seed0/summary.json')
  summary = json.loads(path.read_text())
  summary['status']['0']['collapsed_round'] = 3
  path.write_text(json.dumps(summary))
  start('--rows=fedavg', '--cols=mlp-0.01', '--seeds=2')
  out = capsys.readouterr().out.rpartition('# Table 5')[2]
  assert row(out, 'FedAvg')[1] == '30.00 ± 28.28 collapsed (1 of 2 seeds) (65.64 ± 1.69)'


def test_one_seed_has_no_spread_and_more_seeds_can_follow(runs, capsys):
  runs.accuracy = {'fedavg': [0.5, 0.6], 'dynafed': 0.8}
  start(*TWO)
  assert row(capsys.readouterr().out, 'FedAvg')[1] == '50.00 (65.64 ± 1.69)'
  start('--rows=fedavg', '--cols=mlp-0.01', '--seeds=2')
  out = capsys.readouterr().out
  assert row(out, 'FedAvg')[1] == '55.00 ± 7.07 (65.64 ± 1.69)'
  assert row(out, 'DynaFed')[1] == '80.00 (73.89 ± 0.24)'  # what is there is shown
  assert '- seeds: 0; 0, 1 for fedavg/mlp-0.01\n' in out
  assert len(runs) == 5


def test_what_is_not_run_is_a_dash_or_left_out(runs, capsys):
  start('--rows=fedavg', '--cols=mlp-0.01')
  start('--rows=feddf', '--cols=mlp-0.04')
  out = capsys.readouterr().out.rpartition('# Table 5')[2]
  assert row(out, 'FedAvg') == ['FedAvg', '50.00 (65.64 ± 1.69)', '-']
  assert row(out, 'FedDF¹') == ['FedDF¹', '-', '50.00 (77.20 ± 1.58)']
  assert 'DynaFed' not in out.partition('|')[2].partition('- ¹')[0]
  assert '- ¹ the server has a tenth of the training rows' in out


def test_footnotes_name_proxy_data_scaffold_s_option_and_what_the_numbers_were_made_with(
  runs, capsys
):
  start('--cols=mlp-0.01')
  out = capsys.readouterr().out
  for title in ('SCAFFOLD¹', 'FedDF²', 'FedBE³', 'ABAVG³'):
    assert row(out, title)
  assert 'scaffold.option=1' in out
  assert "- initial weights 'flax', normalisation 'auto': α = 0.01, MLP" in out
  assert '- machine: 1 x cpu cpu; x86_64, 2 cores\n' in out and 'a_host' not in out
  assert '- jax 0.10.2, commit abc\n' in out and '- 18 s in all\n' in out
  configs = {c.algorithm: c for c, _ in runs}
  assert all(configs[a].data.proxy == 'held_out' for a in ('feddf', 'fedbe', 'abavg'))
  assert all(configs[a].data.proxy == '' for a in ('fedavg', 'fedgen', 'dynafed'))
  assert configs['scaffold'].scaffold.option == 1


def test_a_column_that_dynafed_does_not_win_is_named(runs, capsys):
  runs.accuracy = {('fedavg', 0.01): 0.9, 'fedavg': 0.8, 'dynafed': 0.8}  # 0.04: a tie
  start(*TWO)
  out = capsys.readouterr().out
  assert '- α = 0.01, MLP: DynaFed (80.00) is not the best; FedAvg has 90.00\n' in out
  assert out.count('is not the best') == 1


def test_the_header_says_what_is_reduced(runs, capsys):
  start('--rows=fedavg,dynafed', '--cols=mlp-0.01,convnet-0.01', '--config.client.batch_size=16')
  lines = capsys.readouterr().out.splitlines()
  assert 'Changed from the paper: client.batch_size: 32 -> 16 (α = 0.01, MLP).' in lines
  change = next(line for line in lines if line.endswith('(α = 0.01, ConvNet).'))
  for part in ('rounds: 200 -> 60', 'model.width: 128 -> 32', 'dynafed.iterations: 1000 -> 250'):
    assert part in change
  start('--rows=fedavg', '--cols=convnet-0.01', '--workdir=V', scale='paper')
  assert "The paper's setting, as far as it states it." in capsys.readouterr().out


def test_smoke_prints_no_figure_of_the_paper(runs, capsys):
  start(*TWO, scale='smoke')
  out = capsys.readouterr().out
  text = pathlib.Path('W/dynafed/table5/table.md').read_text()
  assert '**smoke: not comparable**' in out
  assert row(out, 'FedAvg') == ['FedAvg', '50.00', '50.00']
  assert '65.64' not in out + text and 'is not the best' not in out
  assert not any('paper' in cell for cell in read_json()['cells'])


def test_rounds_to_fedavg_s_best(runs, capsys):
  """FedAvg's running means of five: .3, .4, .38; the best, .4, is reached after round 6."""
  curve = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.1]
  runs.curve = {'fedavg': curve, 'dynafed': [0.0, 0.5, 0.5, 0.5, 0.5, 0.5], 'fedprox': [0.1] * 9}
  select = '--rows=fedavg,dynafed,fedprox', '--cols=mlp-0.04'
  start(*select, table='dynafed/table4-mlp')
  out = capsys.readouterr().out
  assert row(out, 'FedAvg')[1] == '6.0 (117.0 ± 8.0)'
  assert row(out, 'DynaFed')[1] == '5.0 (22.0 ± 1.0)'
  assert row(out, 'FedProx')[1] == 'not reached (102.0 ± 4.7)'
  assert 'our target:' in out
  assert start(*select, table='dynafed/table5') == 0 and len(runs) == 3  # the same runs


def test_rounds_need_fedavg_s_run(runs, capsys):
  start('--rows=dynafed', '--cols=mlp-0.04', table='dynafed/table4-mlp')
  assert row(capsys.readouterr().out, 'DynaFed')[1] == '-'


def test_table_4_shows_the_paper_s_figures_at_its_own_scale_only(runs, capsys):
  start('--cols=cifar10-0.01', '--rows=fedavg', table='dynafed/table4')
  assert row(capsys.readouterr().out, 'FedAvg')[1] == '5.0'
  start(
    '--cols=cifar10-0.01', '--rows=fedavg', '--workdir=V', table='dynafed/table4', scale='paper'
  )
  assert row(capsys.readouterr().out, 'FedAvg')[1] == '5.0 (132.0 ± 15.0)'


def drawer_of(name):
  draw = ENTRIES[name].draw
  return getattr(draw, 'func', draw)  # None where pictures are copied


FIGURES = [name for name, entry in ENTRIES.items() if entry.draw or entry.pictures]
FIRST = {drawer_of(name): name for name in reversed(FIGURES)}.values()


@pytest.mark.parametrize(
  'name', [n if n in FIRST else pytest.param(n, marks=pytest.mark.slow) for n in FIGURES]
)
def test_figures_are_drawn_from_what_the_runs_left(name, runs, capsys, monkeypatch):
  entry = ENTRIES[name]
  pictures = [entry.pictures] if entry.pictures else []
  compute = lambda computed, folder, seed, scale: leave(folder / computed.file)
  monkeypatch.setattr(post_run, 'compute', compute)

  def leave(path):
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b'{"accuracy": [0.1, 0.25]}' if path.suffix == '.json' else b'picture')

  def run(config, workdir, **more):
    status = runs.run_experiment(config, workdir, **more)
    for path in pictures:
      leave(workdir / path)
    return status

  fedjax_syn.runs.experiment.run_experiment = run
  rows, columns = ([x.name for x in some[-2:]] for some in (entry.rows, entry.columns))
  select = f'--rows={",".join(rows)}', f'--cols={",".join(columns)}', '--seeds=2'
  assert start(*select, table=name, scale='smoke') == 0
  folder = pathlib.Path('W', name)
  left = sorted(p.name for p in folder.iterdir() if p.is_file())
  cells = [f'{r}-{c}.png' for r in rows for c in columns]
  names = cells if pictures else ['figure.png', 'figure.svg']
  assert left == sorted([*names, 'table.json', 'table.md'])
  out = capsys.readouterr().out
  for drawn in names:
    content = (folder / drawn).read_bytes()
    assert content == b'picture' if pictures else content.startswith((b'\x89PNG', b'<?xml'))
    assert str(folder / drawn) in out
