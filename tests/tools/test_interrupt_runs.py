"""The tool that interrupts runs: its plans, its moments, and what counts as a fault."""

import json
import pathlib
import random
import shutil
import subprocess
import sys
import time
import types

import pytest

from fedjax_syn import config as config_lib
from fedjax_syn.config import files
from fedjax_syn.core import paths
from tools import _sessions, interrupt_runs
from tools._sessions import EVENTS, Command, Interruption, Session

pytest_plugins = ['tests.run_fixtures']
ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_every_algorithm_is_killed_and_the_events_are_as_asked_for():
  words = ['fedavg', 'scaffold', 'dynafed', 'scaffold+dynafed', 'moon']
  planned = interrupt_runs.plan_kills(words, 20, random.Random(0))
  events = [kill.event for kills in planned.values() for kill in kills]
  assert list(planned) == words and all(planned.values())
  assert (len(events), events.count('write'), events.count('synthesis')) == (20, 2, 4)
  in_synthesis = {w for w in words if any(k.event == 'synthesis' for k in planned[w])}
  assert in_synthesis == {'dynafed', 'scaffold+dynafed'}
  few = interrupt_runs.plan_kills(words, 1, random.Random(0))
  assert [len(kills) for kills in few.values()] == [1] * 5  # one for each all the same


def test_stops_are_of_both_kinds_and_so_many_while_compiling():
  planned = interrupt_runs.plan_stops(30, random.Random(0))
  assert sum(stop.event == 'config' for stop in planned) == 15 and len(planned) == 30
  assert sum(stop.kind == 'Ctrl-C' for stop in planned) == 15
  assert planned == interrupt_runs.plan_stops(30, random.Random(0))


@pytest.mark.parametrize('algorithm', [*config_lib.names('algorithms'), 'scaffold+dynafed'])
def test_every_small_run_has_a_valid_config(algorithm):
  words = interrupt_runs.small_run(algorithm).words
  settings = [word for word in words if word.startswith('--config.')]
  config = config_lib.check(files.load_config(str(paths.DEFAULT_CONFIG), settings))
  assert config.algorithm == algorithm and config.compare == '' and config.checkpoint_every == 1


def test_events_come_with_their_files(tmp_path):
  came = lambda before=0: {name for name, event in EVENTS.items() if event(tmp_path, before)}
  assert came() == {'start'}
  (tmp_path / 'config.json').touch()
  (tmp_path / 'metrics.jsonl').write_text('1\n')
  assert came() == {'start', 'config', 'metrics'}
  (tmp_path / 'metrics.jsonl').write_text('1\n2\n')
  (tmp_path / f'checkpoints/{_sessions.PHASE}/seed_0').mkdir(parents=True)
  assert came() == {'start', 'config', 'metrics', 'compiled', 'synthesis'}
  (tmp_path / 'checkpoints/.tmp-1').mkdir()
  (tmp_path / 'checkpoints/.tmp-1/arrays').touch()
  assert came() == set(EVENTS) and 'write' not in came(before=1)  # no further checkpoint yet


def test_spans_by_hand():
  seconds = {'config': 3.0, 'metrics': 4.0, 'compiled': 9.0, 'end': 20.0}
  spans = {event: _sessions.span(event, seconds) for event in EVENTS if event != 'compiled'}
  assert spans == {'start': 20, 'config': 6, 'metrics': 16, 'synthesis': 1, 'write': 0.02}


def test_the_signal_comes_after_its_event_and_not_after_the_end(tmp_path):
  def watch(status):
    seconds = {}
    process = types.SimpleNamespace(poll=lambda: status)
    kill = Interruption('SIGKILL', 'start', 0.0)
    began = time.monotonic()
    _sessions._watch(process, tmp_path, 0, began, seconds, kill, 0.01)
    return seconds

  assert watch(0) == {}  # it has ended
  seconds = watch(None)
  assert seconds['signal'] >= seconds['start'] + 0.01


def test_an_outcome_differs_in_a_line_or_in_the_learned_set(whole_folder, tmp_path):
  copy = tmp_path / 'copy'
  shutil.copytree(whole_folder, copy)
  expected = _sessions.outcome(whole_folder)
  end = Session(0, '', {})
  assert _sessions.end_fault(end, copy, expected) == ''
  assert './params/w' in expected and './synthetic.npz/x' in expected
  path = copy / 'metrics.jsonl'
  path.write_text(path.read_text().replace('"round": 3', '"round": 33', 1))
  assert _sessions.end_fault(end, copy, expected) == 'different: ./metrics.jsonl'
  assert 'exit status 1' in _sessions.end_fault(end._replace(status=1), copy, expected)


@pytest.mark.parametrize(
  ('status', 'after', 'text', 'wrong'),
  [
    (75, 9.0, '', False),
    (130, 1.0, '', False),
    (-15, 0.1, '', False),
    (130, 9.0, '', True),
    (134, 9.0, '', True),
    (0, 9.0, '', True),
    (-15, 9.0, '', True),
    (75, 9.0, 'terminate called without an active exception', True),
    (75, 9.0, 'Traceback (most recent call last)', True),
  ],
)
def test_what_counts_as_a_good_stop(status, after, text, wrong):
  assert bool(_sessions.stop_fault(Session(status, text, {'signal': after}))) == wrong


@pytest.mark.parametrize(
  ('argument', 'line'),
  [
    ('--kills=3', '--workdir: name a folder'),
    ('--workdir=.', '--workdir=.: exists'),
    ('--algorithms=fedavgg', "--algorithms='fedavgg': unknown; nearest: fedavg"),
    ('more', "'more': unexpected"),
  ],
)
def test_refusals_are_one_line(argument, line, capsys, tmp_path):
  folder = [] if 'workdir' in argument or 'kills' in argument else [f'--workdir={tmp_path / "w"}']
  with pytest.raises(SystemExit) as exit:
    interrupt_runs.main(['interrupt_runs.py', argument, *folder])
  err = capsys.readouterr().err
  assert exit.value.code == 2 and line in err and err.count('\n') == 1


def test_an_interruption_that_came_too_late_is_tried_again_in_another_folder(monkeypatch, tmp_path):
  """Shares count in seconds here: the uninterrupted run takes 1 s from its first line on."""
  ends = iter([True, False, True, False, True])  # was the run still there when the kill came?
  calls = []

  def run_session(command, folder, interruption=None, after=0.0):
    seconds = {'config': 0.0, 'metrics': 0.0, 'compiled': 0.0, 'end': 1.0}
    if folder.name == 'whole':
      return Session(0, '', seconds)
    calls.append((folder.name, interruption and after))
    if interruption and next(ends):
      return Session(-9, '', {'signal': after})
    return Session(0, '', seconds)

  monkeypatch.setattr(_sessions, 'run_session', run_session)
  results = {'whole': b'1', '0': b'1', '1': b'2', '2': b'1'}
  monkeypatch.setattr(_sessions, 'outcome', lambda folder: {'model': results[folder.name]})
  kills = [Interruption('SIGKILL', 'metrics', share) for share in (0.1, 0.9, 0.2)]
  records = interrupt_runs.interrupt(Command('fedavg', ()), kills, tmp_path, 3)
  # 0.9 comes too late in the first folder; in the second its half comes, and then 0.2 too late.
  assert calls == [('0', 0.1), ('0', 0.9), ('1', 0.45), ('1', 0.2), ('2', 0.1), ('2', None)]
  assert [record['share'] for record in records] == [0.1, 0.45, 0.1]
  assert [record['fault'] for record in records] == ['', 'different: model', '']

  ends = iter([False] * 10)
  monkeypatch.setattr(_sessions, 'outcome', lambda folder: {})
  records = interrupt_runs.interrupt(Command('fedavg', ()), kills[:1], tmp_path, 3)
  assert [record['fault'] for record in records] == ['came too late']


@pytest.mark.slow
def test_interrupted_runs_reach_the_same_results(tmp_path):
  kills = [Interruption('SIGKILL', *moment) for moment in (('write', 0.0), ('synthesis', 0.3))]
  command = interrupt_runs.small_run('scaffold+dynafed')
  records = interrupt_runs.interrupt(command, kills, tmp_path / 'kills', 2)
  assert [record['fault'] for record in records] == ['', '']
  small = 'rounds=12,model.width=8,dynafed.length=4,dynafed.segment=2,dynafed.iterations=10'
  arguments = ['--kills=0', '--stops=4', '--others=2', f'--settings={small}']
  command = [sys.executable, '-m', 'tools.interrupt_runs', f'--workdir={tmp_path / "w"}']
  assert subprocess.run([*command, *arguments], cwd=ROOT).returncode == 0
  assert len(json.loads((tmp_path / 'w' / 'interruptions.json').read_text())) == 6
