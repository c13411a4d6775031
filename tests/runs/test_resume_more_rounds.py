"""Going on in a folder: more rounds give the same as from the start; fewer rounds are refused."""

import errno
import json
import os
import shutil
import types

import pytest

from fedjax_syn import config as config_lib
from fedjax_syn.config import identity
from fedjax_syn.engine.measures import of_rounds
from fedjax_syn.runs import checkpoint, loop, recorder
from fedjax_syn.tables import cells as cells_lib
from tests.run_helpers import Killed, config_of, lines_of, outcome, refusal, run

pytest_plugins = ['tests.run_fixtures']


SPARSE = {'eval_every': 4, 'personal_every': 8}


@pytest.mark.parametrize(
  'changes',
  [
    {},
    SPARSE,
    {'layout.seeds': 2},
    {'algorithm': 'fedavgm', 'compare': 'fedavg', **SPARSE},
  ],
)
def test_more_rounds_go_on_in_the_folder_and_come_to_what_they_come_to_from_the_start(
  fake, tmp_path, changes
):
  dynafed = changes.get('algorithm', 'dynafed') == 'dynafed'
  for rounds in (7, 9, 17):
    assert run(tmp_path / 'on', rounds=rounds, **changes) == 0
  assert run(tmp_path / 'whole', rounds=17, **changes) == 0
  parts = ['', 'compare'] if changes.get('compare') else ['']
  for part in parts:
    on, whole = tmp_path / 'on' / part, tmp_path / 'whole' / part
    assert lines_of(on) == lines_of(whole)
    timeless = [json.loads((f / 'summary.json').read_text()) for f in (on, whole)]
    for summary in timeless:
      for key in ('seconds', 'peak_memory_bytes', 'sha256', 'metrics_sha256'):
        summary.pop(key, None)
    assert timeless[0] == timeless[1]
    assert json.loads((on / 'summary_9.json').read_text())['rounds'] == 9
    stored = json.loads((on / 'config.json').read_text())
    assert stored['config']['rounds'] == 17
    assert stored['hash'] == json.loads((whole / 'config.json').read_text())['hash']
  if dynafed:
    assert outcome(tmp_path / 'on') == outcome(tmp_path / 'whole')


def test_more_rounds_survive_a_stop_at_any_piece_of_work(fake, tmp_path):
  """Killed again and again: seeds that were over in the shorter run are not begun anew."""
  whole, folder = tmp_path / 'whole', tmp_path / 'run'
  assert run(whole, rounds=12, **SPARSE) == 0
  assert run(folder, rounds=7, **SPARSE) == 0

  class Stop(Exception):
    pass

  def on(what, seed, round):
    calls.append(what)
    if len(calls) == stop_after:
      raise Stop

  for stop_after in range(1, 100, 2):  # noqa: B007 (read by `on`)
    calls = []
    fake(on=on)
    try:
      assert run(folder, rounds=12, **SPARSE) == 0
      break
    except Stop:
      continue
  assert stop_after > 3
  assert outcome(folder) == outcome(whole)


def killed(*_):
  raise Killed


def test_a_kill_while_the_log_is_replaced_loses_neither_version(fake, tmp_path, monkeypatch):
  whole, folder = tmp_path / 'whole', tmp_path / 'run'
  assert run(whole, rounds=12, **SPARSE) == 0
  assert run(folder, rounds=7, **SPARSE) == 0
  with monkeypatch.context() as patch:
    patch.setattr(recorder, 'os', types.SimpleNamespace(replace=killed))
    with pytest.raises(Killed):
      run(folder, rounds=12, **SPARSE)
  assert run(folder, rounds=12, **SPARSE) == 0
  assert outcome(folder)['lines'] == outcome(whole)['lines']


def test_side_by_side_with_a_seed_whose_model_is_lost_begins_again_as_that_one_does(
  fake, tmp_path, capsys
):
  four = {'seeds': (0, 1, 2, 3), 'layout.seeds': 2}
  assert run(tmp_path / 'run', rounds=7, **four) == 0
  last = [p for p in checkpoint.list_sorted(tmp_path / 'run' / 'checkpoints') if p.name == 'seed_1']
  (last[-1] / 'structure.json').write_text('{}')
  assert run(tmp_path / 'run', rounds=9, **four) == 0
  said = ' '.join(capsys.readouterr().out.split())
  assert 'seed 1 begins again' in said and 'seed 0 begins again with it' in said
  assert run(tmp_path / 'whole', rounds=9, **four) == 0
  assert outcome(tmp_path / 'run') == outcome(tmp_path / 'whole')


def test_a_full_disk_while_the_log_is_replaced_is_no_refusal(fake, tmp_path, monkeypatch, capsys):
  assert run(tmp_path / 'run', rounds=7, **SPARSE) == 0
  with monkeypatch.context() as patch:

    def save(*_):
      raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), 'note.json')

    patch.setattr(checkpoint, 'save', save)
    assert run(tmp_path / 'run', rounds=12, **SPARSE) == 74
  assert 'No space left on device' in capsys.readouterr().err
  assert run(tmp_path / 'run', rounds=12, **SPARSE) == 0


def test_fewer_rounds_than_are_done_are_one_line(fake, tmp_path, capsys):
  assert run(tmp_path / 'run', algorithm='fedavg', rounds=9) == 0
  before = sorted(p.name for p in (tmp_path / 'run').iterdir())
  assert run(tmp_path / 'run', algorithm='fedavg', rounds=8) == 2
  assert 'was started for rounds=9, and 9 are done: rounds=8' in refusal(capsys)
  assert sorted(p.name for p in (tmp_path / 'run').iterdir()) == before


@pytest.mark.parametrize(
  ('rounds', 'more', 'status'),
  [(8, {}, 0), (6, {}, 0), (5, {}, 2), (12, {'eval_every': 2}, 0), (8, {'eval_every': 2}, 2)],
)
def test_fewer_rounds_than_were_asked_for_go_on_where_what_they_log_is_still_to_come(
  fake, tmp_path, capsys, rounds, more, status
):
  """The run stopped in round 7 of 14 and was saved after round 6.

  A run of 8 rounds, evaluated every second, would lack round 5.
  """
  settings = {'algorithm': 'fedavg', 'seeds': (0,), **more}

  def stop(what, seed, round):
    if (what, round) == ('round', 7):
      raise RuntimeError('stopped')

  fake(on=stop)
  with pytest.raises(RuntimeError):
    run(tmp_path / 'run', rounds=14, **settings)
  fake()
  capsys.readouterr()
  assert run(tmp_path / 'run', rounds=rounds, **settings) == status
  if status:
    assert f'was started for rounds=14, and 6 are done: rounds={rounds}' in refusal(capsys)
  else:
    assert run(tmp_path / 'whole', rounds=rounds, **settings) == 0
    assert lines_of(tmp_path / 'run') == lines_of(tmp_path / 'whole')


def test_without_its_checkpoints_a_finished_run_is_shown_and_cannot_go_on(fake, tmp_path, capsys):
  assert run(tmp_path / 'run', algorithm='fedavg', rounds=5) == 0
  shutil.rmtree(tmp_path / 'run' / 'checkpoints')
  assert run(tmp_path / 'run', algorithm='fedavg', rounds=5) == 0
  lines = (tmp_path / 'run' / 'metrics.jsonl').read_bytes()
  capsys.readouterr()
  assert run(tmp_path / 'run', algorithm='fedavg', rounds=6) == 2
  assert 'holds no checkpoint to continue from' in refusal(capsys)
  assert (tmp_path / 'run' / 'metrics.jsonl').read_bytes() == lines


def test_what_depends_on_the_number_of_rounds_is_named_with_the_command_of_a_branch(
  fake, tmp_path, capsys
):
  cosine = {'algorithm': 'fedavg', 'client.schedule': 'cosine', 'rounds': 5}
  folder = tmp_path / 'run'
  assert run(folder, **cosine) == 0
  assert run(folder, **{**cosine, 'rounds': 8}) == 2
  error = refusal(capsys)
  assert "client.schedule='cosine' depends on it: rounds=8 is another run" in error
  start = f'--config.start_from={folder}/checkpoints/5 --config.rounds=8 --workdir={folder}-8'
  assert start in error
  branch = {**cosine, 'rounds': 8, 'start_from': f'{folder}/checkpoints/5'}
  assert run(tmp_path / 'run-8', **branch) == 0


def test_the_noise_of_a_target_epsilon_depends_on_the_number_of_rounds(fake, tmp_path, capsys):
  pytest.importorskip('dp_accounting')
  private = {'algorithm': 'dp', 'dp.target_epsilon': 50.0, 'seeds': (0,)}
  assert run(tmp_path / 'run', rounds=5, **private) == 0
  assert run(tmp_path / 'run', rounds=6, **private) == 2
  error = refusal(capsys)
  assert 'dp.noise_multiplier depends on it' in error and 'start_from' not in error
  fixed = config_of(algorithm='dp', rounds=5)
  assert identity.depends_on_rounds(fixed, 6) == []  # epsilon is that of all rounds


def test_planned_lines_worked_by_hand():
  """A run of 10 rounds has lines of every fourth round and the last five.

  With 20 rounds the lines of rounds 0, 4 and 8 stay, and of 10, where a phase ends.
  """
  lines = [
    {'round': r, 'seed': 0, 'test/accuracy': 0.1, 'test/top_prediction': 1.0, 'personal/x': 1.0}
    for r in (0, 4, 6, 7, 8, 9, 10)
  ]
  lines[-1]['collapsed_since'] = 6
  personal = of_rounds({}, lambda seed, state: None, 8, 20)
  plan = loop.Plan(20, eval_every=4, measures=personal)
  kept = loop.lines_of(plan, lines, lambda done: 10 if done < 10 else None)
  assert [line['round'] for line in kept] == [0, 4, 8, 10]
  assert [line['round'] for line in kept if 'personal/x' in line] == [8]
  assert not any(
    'collapsed_since' in line for line in kept
  )  # four evaluations in a row are too few
  assert loop.lines_of(plan._replace(rounds=10), lines, lambda done: None) != kept
  branch = [{'round': 5, 'seed': 0}, {'round': 6, 'seed': 0}]
  assert loop.lines_of(plan, branch, lambda done: None) == branch[:1]


@pytest.mark.slow
def test_more_rounds_of_a_real_run_come_to_what_they_come_to_from_the_start(tmp_path):
  settings = {'algorithm': 'scaffold', 'seeds': (0,), 'client.optimizer': 'sgd', 'eval_every': 2}
  for rounds in (3, 6):
    assert run(tmp_path / 'on', rounds=rounds, **settings) == 0
  assert run(tmp_path / 'whole', rounds=6, **settings) == 0
  assert lines_of(tmp_path / 'on') == lines_of(tmp_path / 'whole')


def test_a_cell_of_a_table_with_fewer_rounds_is_missing_and_goes_on(fake, tmp_path):
  entry = types.SimpleNamespace(without_metrics=frozenset({'fedavg'}))
  config = lambda changes: config_lib.check(config_of(**{**settings, **changes}))
  cell = lambda changes: cells_lib.Run(entry, None, None, 0, config(changes), tmp_path / 'run')
  state = lambda **changes: cells_lib.read(cell(changes)).state
  settings = {'algorithm': 'fedavg', 'seeds': (0,), 'rounds': 5}
  assert state() == 'missing'
  assert run(tmp_path / 'run', **settings) == 0
  assert state() == state(checkpoint_every=3) == 'finished'
  assert state(rounds=7) == 'missing'
  assert state(rounds=4) == state(**{'client.lr': 0.5}) == 'failed'
