"""Runs that begin in another cell's run, columns with measures of their own, averages."""

import json
import pathlib

import pytest

from fedjax_syn import papers
from fedjax_syn.tables import cells, content, measures, runner, spec, warm_start
from tests.tables.table_runs import read_json, row, start

pytest_plugins = ['tests.tables.table_fixtures']
ENTRIES = papers.entries()
ONE = ('--cols=fmnist-niid1',)


def folders(runs):
  return [folder.parts[-4:-1] for _, folder in runs]


def test_what_a_run_begins_in_is_run_first_and_once(runs, capsys):
  assert start('--rows=fedavg', *ONE, table='fedcog/table1') == 0
  assert folders(runs) == [
    ('table1', 'fedcog', 'fmnist-niid1'),
    ('table1', 'fedavg', 'fmnist-niid1'),
  ]
  assert runs[1][0].start_from == 'W/fedcog/table1/fedcog/fmnist-niid1/seed0/checkpoints/50'
  assert runs[0][0].start_from == ''
  out = capsys.readouterr().out
  assert 'fedcog, fmnist-niid1, seed 0, in which fedavg, fmnist-niid1, seed 0 begins: 50.00' in out
  assert start('--rows=fedavg,fedcog', *ONE, table='fedcog/table1') == 0 and len(runs) == 2


def test_another_table_s_run_can_be_begun_in(runs):
  select = '--rows=fedcog,moon', *ONE
  assert start(*select, table='fedcog/table3') == 0
  assert folders(runs) == [
    ('table1', 'fedcog', 'fmnist-niid1'),
    ('table3', 'fedcog', 'fmnist-niid1'),
    ('table3', 'moon+fedcog', 'fmnist-niid1'),
    ('table3', 'moon', 'fmnist-niid1'),
  ]
  assert [config.rounds for config, _ in runs] == [70, 51, 51, 51]
  assert runs[3][0].algorithm == 'moon' and '/table3/moon+fedcog/' in runs[3][0].start_from


def test_what_cannot_be_begun_in_is_named(runs, capsys):
  runs.ends = {'fedcog': 2}
  assert start('--rows=fedavg', *ONE, table='fedcog/table1') == 1
  text = row(capsys.readouterr().out, 'FedAvg')[1]
  assert text.startswith('failed: fedcog, fmnist-niid1, seed 0, in which it begins: failed: data')
  runs.ends = {'fedcog': 75}
  assert start('--rows=fedavg', *ONE, table='fedcog/table1') == 75
  assert 'fedavg' not in [config.algorithm for config, _ in runs]
  runs.ends = {}
  assert start('--rows=fedavg', *ONE, table='fedcog/table1') == 0


def test_a_run_that_diverged_later_can_be_begun_in(runs, capsys):
  runs.ends = {'fedcog': 3}
  assert start('--rows=fedavg,fedcog', *ONE, table='fedcog/table1') == 0
  out = capsys.readouterr().out
  assert row(out, 'FedAvg')[1].startswith('50.00') and row(out, 'FedCOG')[1].startswith('diverged')


def test_a_work_folder_may_be_moved(runs, capsys):
  start('--rows=fedavg,fedcog', *ONE, table='fedcog/table1')
  before = capsys.readouterr().out.partition('# Table 1')[2]
  pathlib.Path('W').rename('V')
  assert start('--rows=fedavg,fedcog', *ONE, '--workdir=V', table='fedcog/table1') == 0
  assert capsys.readouterr().out.partition('# Table 1')[2] == before and len(runs) == 2


def test_a_budget_counts_what_has_to_be_run_first(runs):
  table = cells.Table(
    ENTRIES['fedcog/table1'], spec.SCALES['cpu'], pathlib.Path('W'), entries=ENTRIES
  )
  fedavg, column = table.entry.rows[0], table.entry.columns[0]
  known = {('fedcog', column.name, 1): 9.0, ('fedavg', column.name, 1): 2.0}
  assert runner.expected_seconds(table.run(fedavg, column, 0), known) == 11
  start('--rows=fedcog', *ONE, table='fedcog/table1')
  assert runner.expected_seconds(table.run(fedavg, column, 0), known) == 2


def test_curves_have_the_rounds_before(runs):
  runs.curve = {
    'fedcog': [i / 100 for i in range(70)]
  }  # 51 rounds are before FedAvg's own first line
  start('--rows=fedavg', *ONE, table='fedcog/table1')
  table = cells.Table(
    ENTRIES['fedcog/table1'], spec.SCALES['cpu'], pathlib.Path('W'), entries=ENTRIES
  )
  run = next(run for run in table.existing() if run.row.name == 'fedavg')
  lines = cells.read(run).lines
  assert [line['round'] for line in lines] == [*range(1, 50), *range(50, 56)]
  assert lines[48]['test/accuracy'] == 0.48 and lines[49]['test/accuracy'] == 0.5


def test_an_origin_that_is_not_there_is_refused():
  entry = ENTRIES['fedcog/table1']
  lost = entry.rows[0]._replace(warm_start_from='fedcag')
  with pytest.raises(ValueError, match='fedcog/table1, row=fedcag: unknown'):
    warm_start.find(entry, lost, entry.columns[0], ENTRIES)
  assert warm_start.find(entry, entry.rows[-1], entry.columns[0], ENTRIES) is None


def test_columns_may_show_different_things_of_one_run(runs, capsys):
  runs.accuracy = {'fedavg': 0.25}
  runs.seconds = 40.0
  assert start('--rows=fedavg,moon', table='fedcog/table4', scale='paper') == 0
  out = capsys.readouterr().out
  assert len(runs) == 2 and '- 80 s in all' in out
  assert row(out, 'FedAvg')[1:] == ['2.0 (983.0 ± 100.0)', '25.00 (63.34)']
  assert 'Scale paper. local time, s: seconds of all rounds' in out
  assert read_json('fedcog/table4')['cells'][1]['paper'] == {'mean': 63.34, 'std': None}


def test_a_shared_run_that_fails_is_tried_once(runs):
  runs.ends = {'fedavg': RuntimeError('no')}
  assert start('--rows=fedavg', table='fedcog/table4') == 1 and len(runs) == 1


def test_the_average_needs_every_column(runs, capsys):
  runs.accuracy = {('fedcog', 0.1): [0.5], 'fedavg': 0.25}
  assert start('--rows=fedcog', *ONE, table='fedcog/table1') == 0
  assert row(capsys.readouterr().out, 'FedCOG')[1:] == ['50.00 (77.34 ± 0.07)', '-']
  assert start('--rows=fedcog,fedavg', table='fedcog/table1') == 0
  out = capsys.readouterr().out
  assert row(out, 'FedCOG')[-1] == '50.00 (57.92)' and row(out, 'FedAvg')[-1] == '25.00 (53.68)'
  assert '| Avg. |' in out and read_json('fedcog/table1')['cells'][-1]['column'] == 'average'


def test_where_generation_was_timed_is_said(runs, capsys, monkeypatch):
  entry = ENTRIES['fedcog/table8']

  def leave(folder, seed, scale):
    found = {'seconds': dict.fromkeys([c.name for c in entry.columns], 0.5), 'machine': 'a card'}
    (folder / 'generation.json').write_text(json.dumps(found))

  monkeypatch.setitem(
    ENTRIES, 'fedcog/table8', entry._replace(post_run=spec.PostRun('generation.json', leave))
  )
  monkeypatch.setattr(papers, 'entries', lambda: ENTRIES)
  assert start(table='fedcog/table8', scale='smoke') == 0
  out = capsys.readouterr().out
  assert row(out, 'FedCOG')[1:] == ['0.500'] * 8 and '- timed on: a card\n' in out
  assert len(runs) == 1


def test_logged_numbers_are_averaged_over_lines_that_have_them():
  lines = [{'round': r, 'a': float(r)} for r in range(4)] + [{'round': 4}]
  value = measures.logged('a', slice(-2, None), scale=10.0)
  assert value(spec.Result('finished', lines=lines), None) == pytest.approx(25)
  assert value(spec.Result('finished', lines=lines[-1:]), None) is None


def test_captions_name_columns_where_they_differ():
  entry = ENTRIES['fedcog/table4']
  text = content.captions(entry, entry.columns)
  assert text.startswith('local time, s: seconds of all rounds')
  assert '; accuracy, %: test accuracy after the last round' in text
  assert (
    content.captions(entry, entry.columns[1:]) == 'Test accuracy after the last round, per cent.'
  )
