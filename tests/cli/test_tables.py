"""The command: which cells run, how it continues, what is refused."""

import contextlib
import json
import pathlib
import signal
import subprocess
import sys
import time

import pytest
from rich.console import Console

import fedjax_syn
from fedjax_syn import papers
from fedjax_syn.cli import jax_setup
from fedjax_syn.cli import tables as tables_lib
from fedjax_syn.core import stopping
from fedjax_syn.runs import lock
from fedjax_syn.tables import cells, progress, runner, spec, work_list
from tests.tables.table_runs import TWO, row, start

pytest_plugins = ['tests.tables.table_fixtures']
ENTRIES = papers.entries()
ROOT = pathlib.Path(__file__).parents[2]


def test_an_interrupted_table_goes_on_with_what_is_missing(runs, capsys):
  runs.ends = {('dynafed', 0.01): 75}
  assert start(*TWO) == 75
  assert [w.parts[-3:] for _, w in runs] == [
    ('fedavg', 'mlp-0.01', 'seed0'),
    ('dynafed', 'mlp-0.01', 'seed0'),
  ]
  out = capsys.readouterr().out
  assert '3 of 4 runs are left; the same command continues' in out
  assert row(out, 'DynaFed')[1:] == ['-', '-']
  runs.ends = {}
  assert start(*TWO) == 0
  assert [w.parts[-3:-1] for _, w in runs[2:]] == [
    ('dynafed', 'mlp-0.01'),
    ('fedavg', 'mlp-0.04'),
    ('dynafed', 'mlp-0.04'),
  ]
  assert start(*TWO) == 0 and len(runs) == 5
  assert start('--rows=fedavg', table='dynafed/composed') == 0 and len(runs) == 5


def test_cells_that_fail_or_diverge_do_not_end_the_table(runs, capsys):
  runs.ends = {
    ('fedavg', 0.01): RuntimeError('no\nmemory'),
    ('fedavg', 0.04): 3,
    ('dynafed', 0.01): 2,
  }
  assert start(*TWO) == 1
  out, err = capsys.readouterr()
  assert row(out, 'FedAvg')[1:] == [
    'failed: RuntimeError: no memory (65.64 ± 1.69)',
    'diverged (73.26 ± 1.49)',
  ]
  assert row(out, 'DynaFed')[1:] == [
    r'failed: data.name=x: not \| there (73.89 ± 0.24)',
    '50.00 (83.54 ± 0.42)',
  ]
  assert err == ''
  runs.ends = {('fedavg', 0.04): 3}
  assert start(*TWO) == 0  # what failed is tried again, what diverged is not
  assert [(c.algorithm, c.data.alpha) for c, _ in runs[4:]] == [('fedavg', 0.01), ('dynafed', 0.01)]
  assert start('--rows=fedavg', '--cols=mlp-0.04') == 3


def test_a_cell_that_its_method_left_no_trace_in_has_failed(runs, capsys):
  runs.untraced = {'dynafed', 'fedavg'}
  assert start('--rows=fedavg,fedprox,dynafed,scaffold', '--cols=mlp-0.01', scale='smoke') == 1
  out = capsys.readouterr().out
  assert row(out, 'DynaFed')[1] == 'failed: no trace of dynafed in its metrics'
  assert row(out, 'FedAvg')[1] == row(out, 'FedProx')[1] == row(out, 'SCAFFOLD¹')[1] == '50.00'
  select = '--rows=scaffold+dynafed', '--cols=mlp-0.01'
  assert start(*select, scale='smoke', table='dynafed/composed') == 1
  assert 'no trace of dynafed in its' in row(capsys.readouterr().out, 'SCAFFOLD + DynaFed¹')[1]


@pytest.mark.parametrize(
  ('lines', 'absent'),
  [
    ([{'round': 1}], ['a', 'b']),
    ([{'a/loss': 0.0, 'b/x': 2.0}], ['a']),
    ([{'a/loss': 0.0}, {'a/loss': 1e-9, 'b': 1.0}], ['b']),
    ([{'a/loss': float('nan'), 'b/x': -1.0}], ['a']),
    ([{'a/loss': 1, 'b/loss': 1}], []),
  ],
)
def test_a_trace_is_a_finite_number_other_than_zero(lines, absent):
  assert cells.unlogged('fedavg+a+b', lines, frozenset({'fedavg'})) == absent


def test_a_cell_of_another_process_is_waited_for(runs, capsys, monkeypatch):
  """The other process holds one of two seeds and gives up.

  This call then runs that seed too, and shows the mean of both.
  """
  other = contextlib.ExitStack()
  other.enter_context(lock.hold(pathlib.Path('W/dynafed/table5/fedavg/mlp-0.01/seed1')))
  let_go = lambda s: other.close() if s == work_list.POLL else None
  monkeypatch.setattr(work_list.time, 'sleep', let_go)
  run = runs.run_experiment

  def locking(config, workdir, **more):
    try:
      with lock.hold(pathlib.Path(workdir)):
        return run(config, workdir, **more)
    except lock.InUseError as error:
      print(error, file=sys.stderr)
      return 2

  fedjax_syn.runs.experiment.run_experiment = locking
  assert start('--rows=fedavg', '--cols=mlp-0.01', '--seeds=2') == 0
  out = capsys.readouterr().out
  assert 'waiting for fedavg, mlp-0.01, seed 1 (process ' in out
  assert row(out, 'FedAvg')[1] == '50.00 ± 0.00 (65.64 ± 1.69)' and len(runs) == 2


def test_a_table_that_stops_while_it_waits_is_partial_and_says_so(runs, capsys, monkeypatch):
  run = runs.run_experiment
  busy = lambda folder: 'another' if folder.name == 'seed1' else ''
  fedjax_syn.runs.experiment.run_experiment = lambda c, w, **more: (
    2 if busy(w) else run(c, w, **more)
  )
  monkeypatch.setattr(lock, 'owner', busy)
  monkeypatch.setattr(work_list.time, 'sleep', lambda _: signal.raise_signal(signal.SIGTERM))
  assert start('--rows=fedavg', '--cols=mlp-0.01', '--seeds=2') == 75
  out = capsys.readouterr().out
  assert row(out, 'FedAvg')[1] == '50.00 [1 of 2 seeds] (65.64 ± 1.69)'
  assert 'SIGTERM: 1 of 2 runs are left' in out


def test_what_another_process_ends_meanwhile_is_shown(runs, capsys, monkeypatch):
  busy = {}  # of the run that another process is at: its config and folder

  def run(config, workdir, **more):
    if not runs and not busy:
      busy[workdir] = config
      return 2
    for folder, other in busy.items():
      runs.run_experiment(other, folder, **more)
    busy.clear()
    return runs.run_experiment(config, workdir, **more)

  fedjax_syn.runs.experiment.run_experiment = run
  monkeypatch.setattr(lock, 'owner', lambda folder: 'another' if folder in busy else '')
  assert start(*TWO) == 0
  out = capsys.readouterr().out
  assert row(out, 'FedAvg')[1] == '50.00 (65.64 ± 1.69)'


def test_what_cannot_be_computed_of_a_finished_run_is_its_cell_s_failure(runs, capsys):
  """The fake runs leave no checkpoint to train from."""
  assert start('--cols=epochs5-0.01', table='dynafed/figure6-right') == 1
  text = row(capsys.readouterr().out, 'DynaFed')[1]
  assert text.startswith('failed: ValueError: W/dynafed/table3/dynafed/epochs5-0.01/seed0: ')


def test_a_budget_begins_nothing_that_would_not_end_in_time(runs, capsys):
  assert start(*TWO, '--budget_minutes=0') == 75 and not runs
  start('--rows=fedavg', '--cols=mlp-0.01')
  runs.seconds = 100.0
  start('--rows=dynafed', '--cols=mlp-0.01')
  assert start(*TWO, '--budget-minutes=1') == 75  # fedavg took 2 s, dynafed 100 s
  assert [(c.algorithm, c.data.alpha) for c, _ in runs[2:]] == [('fedavg', 0.04)]
  assert '1 of 4 runs are left' in capsys.readouterr().out


def test_what_still_runs_at_the_end_of_the_budget_is_asked_to_stop(runs):
  def slow(config, workdir, **_):
    with stopping.stoppable() as stop:
      end = time.monotonic() + 20
      while not stop and time.monotonic() < end:
        time.sleep(0.01)
    assert stop.signal == runner.OUT_OF_TIME
    return 75

  fedjax_syn.runs.experiment.run_experiment = slow
  assert start(*TWO, '--budget_minutes=0.005') == 75


def test_expectations_come_from_the_nearest_runs(tmp_path):
  table = cells.Table(ENTRIES['dynafed/table5'], spec.SCALES['cpu'], tmp_path, entries=ENTRIES)
  run = table.run(table.entry.rows[0], table.entry.columns[0], 0)
  known = {('dynafed', 'mlp-0.01', 0): 9.0}
  assert runner.expected_seconds(run, {}) == 0 and runner.expected_seconds(run, known) == 9
  known |= {('fedavg', 'mlp-0.04', 0): 2.0, ('fedavg', 'mlp-0.04', 1): 3.0}
  assert runner.expected_seconds(run, known) == 3
  assert runner.expected_seconds(run, known | {('fedavg', 'mlp-0.01', 1): 1.0}) == 1


REFUSED = [
  (['--table=dynafed/tabel5', '--scale=cpu'], '--table=dynafed/tabel5: unknown; dynafed/table5'),
  (['--scale=cpu'], '--table: say which'),
  (['--table=dynafed/table5'], '--scale: say which'),
  (['--table=dynafed/table5', '--scale=big'], 'flag --scale=big: value should be one of'),
  (['--table=dynafed/table5', '--scale=cpu', '--seeds=0'], 'flag --seeds=0'),
  (
    ['--table=dynafed/table5', '--scale=cpu', '--rows=fedag'],
    '--rows=fedag: unknown; known: fedavg',
  ),
  (['--table=dynafed/table5', '--scale=cpu', '--cols=mlp'], '--cols=mlp: unknown; known: mlp-0.01'),
  (['--table=dynafed/table5', '--scale=cpu', '--rows=fedavg,fedavg'], '--rows=fedavg: is named tw'),
  (['--table=dynafed/table5', '--scale=cpu', 'x'], "'x': unexpected"),
  (['--table=dynafed/table5', '--scale=cpu', '--config.lr=1'], "lr='1': no such field"),
  (
    ['--table=dynafed/table5', '--scale=cpu', '--config.seeds=0,1'],
    '--config.seeds=0,1: the table decides this',
  ),
  (
    ['--table=dynafed/table5', '--scale=cpu', '--workdir=file/x'],
    '--workdir=file/x: ',
  ),
]


@pytest.mark.parametrize(('arguments', 'line'), REFUSED, ids=[' '.join(a) for a, _ in REFUSED])
def test_a_refusal_is_one_line_before_any_work(arguments, line, runs, capsys):
  pathlib.Path('file').write_text('not a folder')
  with pytest.raises(SystemExit) as end:
    tables_lib.main(['tables.py', *arguments])
  out, err = capsys.readouterr()
  assert end.value.code == 2 and not runs and out == ''
  assert err.startswith(line) and err.count('\n') == 1


def test_other_settings_in_the_same_folder_are_refused_with_what_differs(runs, capsys):
  start(*TWO)
  with pytest.raises(SystemExit) as end:
    start(*TWO, '--config.client.lr=0.01')
  assert end.value.code == 2 and len(runs) == 4
  assert capsys.readouterr().err == (
    'workdir=W/dynafed/table5/fedavg/mlp-0.01/seed0: was started under another config'
    ' (client.lr: 0.001 -> 0.01); name another folder\n'
  )
  start('--rows=fedprox', '--cols=mlp-0.01', '--config.client.lr=0.01')
  out = capsys.readouterr().out
  assert row(out, 'FedAvg')[1].startswith('failed: was run under other settings')


def test_the_list_names_every_table_and_figure_once(capsys):
  assert tables_lib.main(['tables.py', '--list']) == 0
  names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
  assert len(names) == len(set(names)) and set(names) == set(ENTRIES)
  assert {f'dynafed/table{n}' for n in range(1, 7)} | {'dynafed/composed'} < set(names)


def test_a_real_table(tmp_path, monkeypatch, capsys):
  """Two methods, one with phases of its own, the real experiment and command."""
  select = '--rows=scaffold,dynafed', '--cols=mlp-0.01', '--table=dynafed/table5'
  command = [sys.executable, ROOT / 'launch' / 'tables.py', *select, '--scale=smoke', '--workdir=W']
  done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
  assert done.stderr == ''
  out = done.stdout
  assert out.startswith('[1/2] scaffold, mlp-0.01, seed 0: ')
  for title in ('SCAFFOLD¹', 'DynaFed'):
    assert all(0 < float(text) < 100 for text in row(out, title)[1:])
  dynafed = tmp_path / 'W/dynafed/table5/dynafed/mlp-0.01/seed0'
  line = json.loads((dynafed / 'metrics.jsonl').read_text().splitlines()[-1])
  assert line['dynafed/iterations'] == 5 and line['round'] == 8
  before = (dynafed / 'summary.json').stat().st_mtime_ns
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(jax_setup, 'prepare_jax', lambda *_: None)
  assert start(*select[:2], scale='smoke') == 0
  assert capsys.readouterr().out == out[out.index('# Table 5') :]
  assert (dynafed / 'summary.json').stat().st_mtime_ns == before


@pytest.mark.slow
@pytest.mark.parametrize('name', [name for name in ENTRIES if 'figure' not in name])
def test_a_whole_table(name, monkeypatch, tmp_path_factory, capsys):
  monkeypatch.setattr(jax_setup, 'prepare_jax', lambda devices: None)
  workdir = tmp_path_factory.getbasetemp() / 'whole'  # tables share runs
  assert start(f'--workdir={workdir}', table=name, scale='smoke') == 0
  content = json.loads((workdir / name / 'table.json').read_text())
  entry = ENTRIES[name]
  assert len(content['cells']) == len(entry.rows) * (len(entry.columns) + entry.average)
  assert all(c['mean'] is not None or c['text'] == entry.measure.absent for c in content['cells'])


def test_a_terminal_sees_the_cells_and_the_rounds_of_the_one_at_work():
  console = Console(force_terminal=True, width=120, record=True)
  with progress.Bars(2, console) as bars:
    bars.skip()
    bars.start('fedavg, mlp-0.01, seed 0', 20)
    bars.begin('', 20, 5)
    bars.rounds(7, {'test/accuracy': 0.5})
    bars.server_work({'synthesis/loss': 0.25})
    bars.compiling('the synthesis')
    assert bars.bars.doing == 'compiling the synthesis'
    task = bars.bars.tasks[1]
    assert (task.description, task.completed, task.total) == ('fedavg, mlp-0.01, seed 0', 7, 20)
    assert task.fields['note'] == 'loss 0.25'
    bars.done('fedavg, mlp-0.01, seed 0', '50.00')
    assert bars.bars.tasks[0].completed == 2
  assert '[2/2] fedavg, mlp-0.01, seed 0: 50.00' in console.export_text()


@pytest.mark.parametrize('name', ['summary.json', 'metrics.jsonl'])
def test_a_damaged_cell_is_run_again_and_fails_where_nobody_asks_for_it(runs, capsys, name):
  assert start(*TWO) == 0 and len(runs) == 4
  path = pathlib.Path('W/dynafed/table5/fedavg/mlp-0.01/seed0') / name
  path.write_text('[]\n')
  capsys.readouterr()
  assert start(*TWO[1:], '--rows=dynafed') == 0 and len(runs) == 4
  (cell,) = [
    c
    for c in json.loads(pathlib.Path('W/dynafed/table5/table.json').read_text())['cells']
    if (c['row'], c['column']) == ('fedavg', 'mlp-0.01')
  ]
  assert cell['seeds']['0']['state'] == 'failed' and name in cell['seeds']['0']['reason']
  assert start(*TWO) == 0 and len(runs) == 5  # which makes it again


def test_a_damaged_config_is_one_line(runs, capsys):
  assert start(*TWO) == 0
  pathlib.Path('W/dynafed/table5/fedavg/mlp-0.01/seed0/config.json').write_text('{"config": 3}')
  capsys.readouterr()
  with pytest.raises(SystemExit) as stopped:
    start(*TWO)
  (line,) = capsys.readouterr().err.splitlines()
  assert stopped.value.code == 2 and 'config.json is damaged: it has no dataset' in line
