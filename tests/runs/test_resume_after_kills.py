"""A run continues bit for bit wherever it was interrupted.

Most tests put `tests.fake_engine` in the engine's place, so that every moment of a run can be hit.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from fedjax_syn.core import stopping
from fedjax_syn.runs import checkpoint, experiment, recorder
from tests.fake_engine import PHASE
from tests.run_helpers import SIDE_BY_SIDE, Killed, config_of, lines_of, outcome, run

pytest_plugins = ['tests.run_fixtures']


def killer(count: int):
  """Kills at the count-th piece of work, whatever it is."""
  left = [count]

  def on(what, seed, round):
    left[0] -= 1
    if left[0] == 0:
      raise Killed

  return on


def kill_and_resume(fake, whole, folder, count, changes):
  fake(on=killer(count))
  with pytest.raises(Killed):
    experiment.run_experiment(config_of(**changes), folder)
  with (folder / 'metrics.jsonl').open('a') as file:
    file.write('{"round": 6, "see')  # and in the middle of a line
  fake()
  assert experiment.run_experiment(config_of(**changes), folder) == 0
  assert outcome(folder) == whole, f'killed at piece {count}'


PIECES = 42  # a run has 16 evaluations, 14 rounds and 12 iterations


both = pytest.mark.parametrize('changes', [{}, SIDE_BY_SIDE], ids=['alone', 'side by side'])


@both
@pytest.mark.parametrize('count', [1, 2, 4, 9, 11, 14, 21, 22, 31, 42])
def test_killed_at_a_piece_of_work_and_resumed(fake, whole, tmp_path, count, changes):
  """Kills the run at the first evaluation, in the first round, near the end of the phase, ..."""
  kill_and_resume(fake, whole, tmp_path, count, changes)


@pytest.mark.slow
@both
@pytest.mark.parametrize('count', range(1, PIECES + 1))
def test_killed_at_any_piece_of_work_and_resumed(fake, whole, tmp_path, count, changes):
  kill_and_resume(fake, whole, tmp_path, count, changes)


def test_killed_again_and_again(fake, whole, tmp_path, monkeypatch):
  """Every session gets some pieces of work further: the run still ends, with the same result."""
  monkeypatch.setattr(recorder, 'CHUNK_SECONDS', -1.0)
  for _ in range(20):
    fake(on=killer(8))
    try:
      assert experiment.run_experiment(config_of(), tmp_path / 'w') == 0
      break
    except Killed:
      continue
  assert outcome(tmp_path / 'w') == whole


@both
@pytest.mark.parametrize('count', [1, 9, 30, 63, 64, 65, 90])
def test_killed_while_saving(fake, whole, tmp_path, monkeypatch, count, changes):
  """Killed at the count-th file that a checkpoint brings to disk."""
  left, real = [count], checkpoint.fsync

  def fsync(path):
    left[0] -= 1
    if left[0] == 0:
      raise Killed
    real(path)

  monkeypatch.setattr(checkpoint, 'fsync', fsync)
  with pytest.raises(Killed):
    experiment.run_experiment(config_of(**changes), tmp_path / 'w')
  assert experiment.run_experiment(config_of(**changes), tmp_path / 'w') == 0
  assert outcome(tmp_path / 'w') == whole


@both
@pytest.mark.parametrize('lost', ['newest', 'second', 'all', 'metrics'])
def test_damage_between_sessions_is_loud_and_costs_only_time(
  fake, whole, tmp_path, capsys, lost, changes
):
  """'second': of seeds side by side, the one that was not saved last."""
  folder = tmp_path / 'w'
  fake(on=killer(38))  # in the last rounds of the second seed
  with pytest.raises(Killed):
    experiment.run_experiment(config_of(**changes), folder)
  paths = checkpoint.list_sorted(folder / 'checkpoints')
  assert len(paths) > 3
  if lost == 'metrics':
    path = folder / 'metrics.jsonl'
    os.truncate(path, path.stat().st_size // 2)
  else:
    for path in {'all': paths, 'second': paths[-2:-1], 'newest': paths[-1:]}[lost]:
      data = bytearray((path / 'structure.json').read_bytes())
      data[5] ^= 1
      (path / 'structure.json').write_bytes(bytes(data))
  fake()
  capsys.readouterr()
  assert experiment.run_experiment(config_of(**changes), folder) == 0
  untouched = lost == 'second' and not changes  # an old one, never read
  assert ('WARNING' in capsys.readouterr().out) != untouched
  assert outcome(folder) == whole


@both
@pytest.mark.parametrize('signum', [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
  'moment', [('round', 0, 2), ('iteration', 0, 3), ('round', 0, 6), ('round', 1, 5)]
)
def test_a_signal_saves_and_the_same_command_goes_on(
  fake, whole, tmp_path, capsys, signum, moment, changes
):
  folder = tmp_path / 'w'
  handlers = [signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGINT)]
  fake(on=lambda *now: os.kill(os.getpid(), signum) if now == moment else None)
  assert experiment.run_experiment(config_of(**changes), folder) == 75
  assert f'interrupted ({signum.name}) and saved' in capsys.readouterr().out
  assert handlers == [signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGINT)]
  done = []
  fake(on=lambda what, seed, round: done.append((what, seed, round)))
  assert experiment.run_experiment(config_of(**changes), folder) == 0
  assert moment not in done  # nothing that was done is done again
  assert outcome(folder) == whole


@both
@pytest.mark.parametrize('moment', ['before', 'first', 'last'])
def test_a_kill_where_old_checkpoints_are_removed_loses_nothing(
  fake, whole, tmp_path, monkeypatch, moment, changes
):
  """Before it, and while the first or the last one is removed that stayed until the end."""
  removed, remove = [], shutil.rmtree

  def kill(path, **options):
    removed.append(path.name)
    wanted = {'before': 'none', 'first': f'-{PHASE}-seed_0', 'last': f'-{PHASE}-seed_1+1'}[moment]
    if path.name.endswith(wanted):
      raise Killed
    remove(path, **options)

  def prune(root, last, phases):
    if moment == 'before' and {*last} == {0, 1}:
      raise Killed
    real(root, last, phases)

  real = checkpoint.prune
  with monkeypatch.context() as patch, pytest.raises(Killed):
    patch.setattr(checkpoint, 'prune', prune)
    patch.setattr(checkpoint.shutil, 'rmtree', kill)
    run(tmp_path, **changes)
  assert run(tmp_path, **changes) == 0
  assert outcome(tmp_path) == whole
  kept = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.glob('checkpoints/*/*'))
  assert kept == ['checkpoints/7/seed_0', 'checkpoints/7/seed_1']
  assert [p.name for p in (tmp_path / 'checkpoints').iterdir()] == ['7']  # and no rubbish


def test_a_signal_in_the_last_round_of_the_last_seed_changes_nothing(fake, whole, tmp_path):
  fake(on=lambda *now: os.kill(os.getpid(), signal.SIGTERM) if now == ('round', 1, 7) else None)
  assert experiment.run_experiment(config_of(), tmp_path / 'w') == 0
  assert outcome(tmp_path / 'w') == whole


def test_finished_folder_prints_its_summary_again_and_computes_nothing(
  fake, whole, whole_folder, capsys
):
  before = (whole_folder / 'summary.json').read_bytes()
  fake(on=lambda *_: pytest.fail('worked'))
  capsys.readouterr()
  assert experiment.run_experiment(config_of(), whole_folder) == 0
  shown = capsys.readouterr().out
  assert f'{whole["summary"]["test_accuracy"]["last"]["mean"]:.4f}' in shown
  assert (whole_folder / 'summary.json').read_bytes() == before


@both
@pytest.mark.parametrize('stop', [2, 5])
def test_divergence_is_remembered_by_a_resumed_run(fake, whole, tmp_path, changes, stop):
  fake(
    diverge={0: 2},
    on=lambda *now: os.kill(os.getpid(), signal.SIGTERM) if now == ('round', 1, stop) else None,
  )
  assert experiment.run_experiment(config_of(**changes), tmp_path) == 75
  seen = set()
  fake(on=lambda what, seed, round: seen.add(seed))
  assert experiment.run_experiment(config_of(**changes), tmp_path) == 0
  assert 0 not in seen
  assert json.loads((tmp_path / 'summary.json').read_text())['status']['0']['round'] == 2
  second = lambda lines: [line for line in lines if line['seed'] == 1]
  assert second(lines_of(tmp_path)) == second(whole['lines'])


def test_interrupted_while_training_compare(fake, tmp_path):
  config = config_of(compare='fedavg')
  assert experiment.run_experiment(config, tmp_path / 'whole') == 0
  for stop_at in (('round', 0, 5), ('round', 1, 7)):
    folder, first = tmp_path / str(stop_at), []

    def on(*now, stop_at=stop_at, first=first):
      if now == stop_at and not first:
        first.append(now)
        os.kill(os.getpid(), signal.SIGTERM)

    fake(on=on)
    assert experiment.run_experiment(config, folder) == 75
    assert experiment.run_experiment(config, folder) == 0
    assert outcome(folder) == outcome(tmp_path / 'whole')
    assert lines_of(folder / 'compare') == lines_of(tmp_path / 'whole' / 'compare')


SESSION = """
  import sys, jax
  jax.config.update('jax_compilation_cache_dir', sys.argv[2])
  jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.0)
  from fedjax_syn.runs import experiment, loop, recorder
  from tests.run_helpers import REAL, config_of
  loop.CHUNK_SECONDS = recorder.CHUNK_SECONDS = 0.01
  recorder.SHARE = float('inf')
  config = config_of(**{**REAL, 'rounds': 30, 'seeds': (0, 1), 'dynafed.iterations': 300})
  sys.exit(experiment.run_experiment(config, sys.argv[1]))
"""


@pytest.mark.slow
def test_real_process_killed_many_times(tmp_path):
  """SIGKILL after a random time, again and again; the result is that of an undisturbed run."""
  command = lambda name: [
    sys.executable,
    '-c',
    textwrap.dedent(SESSION),
    tmp_path / name,
    tmp_path / 'cache',
  ]
  assert subprocess.run(command('whole')).returncode == 0
  rng, kills, longest = np.random.default_rng(0), 0, 10.0
  while True:
    process = subprocess.Popen(command('w'))
    try:
      assert process.wait(timeout=rng.uniform(0.3, 1) * longest) == 0
      break
    except subprocess.TimeoutExpired:
      process.kill()
      process.wait()
      kills, longest = kills + 1, longest * 1.1  # so that it ends on a machine of any speed
  assert kills > 2
  assert outcome(tmp_path / 'w') == outcome(tmp_path / 'whole')


@pytest.mark.parametrize('earlier', [[], [5]], ids=['new', 'of fewer rounds'])
def test_a_stop_before_the_figures_leaves_the_next_call_all_that_is_missing(
  fake, tmp_path, monkeypatch, earlier
):
  """The run saves the last round once, before it draws anything.

  The next call measures the clients' own models again. Without a stop each round measures them
  once, the last one too.
  """

  class Stopped(stopping.StopRequest):
    def pause(self):
      raise Killed

  changes, measured = {'personal_every': 1, 'seeds': (0,)}, []
  fake(on=lambda what, seed, round: measured.append(round) if what == 'personal' else None)
  assert run(tmp_path / 'whole', **changes) == 0
  assert measured == [1, 2, 3, 4, 5, 6, 7]
  fake()
  for rounds in earlier:
    assert run(tmp_path / 'w', **changes, rounds=rounds) == 0
  with monkeypatch.context() as patch, pytest.raises(Killed):
    patch.setattr(stopping, 'stoppable', lambda: contextlib.nullcontext(Stopped()))
    run(tmp_path / 'w', **changes)
  assert not (tmp_path / 'w' / 'summary.json').exists()
  worked = []
  fake(on=lambda what, seed, round: worked.append(what))
  assert run(tmp_path / 'w', **changes) == 0
  assert worked == ['personal']
  assert outcome(tmp_path / 'w') == outcome(tmp_path / 'whole')
  assert [p.name for p in (tmp_path / 'w' / 'checkpoints' / '7').iterdir()] == ['seed_0']
  whole, own = (np.load(tmp_path / f / 'clients' / 'seed_0.npz') for f in ('whole', 'w'))
  np.testing.assert_array_equal(own['personal_accuracy'], whole['personal_accuracy'])
