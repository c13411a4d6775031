"""What a run leaves behind, what it refuses, and what becomes of a seed that diverges."""

import errno
import json
import os
import re
import signal
import socket
import subprocess
import sys

import numpy as np
import pytest

from fedjax_syn.plotting import figures
from fedjax_syn.runs import checkpoint, experiment, final_files, lock, recorder
from tests.fake_engine import PHASE
from tests.run_helpers import config_of, lines_of, outcome, run

pytest_plugins = ['tests.run_fixtures']


def test_undisturbed_run(whole):
  lines = whole['lines']
  assert [(line['seed'], line['round']) for line in lines] == [
    (s, r) for s in (0, 1) for r in range(8)
  ]
  assert (
    'train/loss' not in lines[0] and 'train/loss' in lines[1]
  )  # nothing was trained before round 1
  summary = whole['summary']
  assert summary['algorithm'] == 'dynafed' and summary['seeds'] == [0, 1] and summary['rounds'] == 7
  assert summary['test_accuracy']['last']['per_seed'] == [
    lines[7]['test/accuracy'],
    lines[15]['test/accuracy'],
  ]
  finished = {'status': 'finished', 'round': 7, 'synthesis_round': PHASE}
  assert summary['status'] == {'0': finished, '1': finished}
  assert (summary['bytes_up'], summary['bytes_down']) == (70, 140)  # 10 and 20 a round
  assert summary['parameters'] == 64 * 8 + 8 + 8 * 10 + 10
  assert summary['epsilon'] is None and summary['padding_efficiency'] == 0.5


def test_who_holds_what_and_what_it_is_worth_to_whom_is_kept(whole_folder):
  with np.load(whole_folder / 'partition.npz') as file:
    counts = file['counts']
  assert counts.shape == (4, 10) and counts.sum() == 1198  # iid
  with np.load(whole_folder / 'clients' / 'seed_1.npz') as file:
    assert sorted(file) == [
      'class_accuracy',
      'class_f1',
      'class_precision',
      'class_recall',
      'confusion',
      'global_accuracy',
    ]  # personal models were not measured
    np.testing.assert_array_equal(file['confusion'].diagonal(), np.arange(10))  # the fake's
    np.testing.assert_array_equal(file['confusion'].sum(axis=1), 9)
    np.testing.assert_allclose(file['class_accuracy'], np.arange(10) / 9)
    by_hand = [(row * np.arange(10) / 9).sum() / row.sum() for row in counts]
    np.testing.assert_allclose(file['global_accuracy'], by_hand)


def test_a_client_counts_only_classes_that_can_be_tested():
  counts = np.array([[1, 3, 4], [0, 0, 5], [2, 0, 0]])
  worth = final_files.own_accuracy(counts, np.array([0.5, 0.9, np.nan]))
  np.testing.assert_allclose(worth, [0.8, np.nan, 0.5])  # (0.5 + 3 * 0.9) / 4


def test_changed_config_is_refused_with_the_difference(whole_folder, capsys):
  folder = whole_folder
  before = sorted(
    (p, p.stat().st_mtime_ns) for p in folder.rglob('*') if p.is_file() and p.name != '.lock'
  )
  assert experiment.run_experiment(config_of(**{'client.lr': 0.5}), folder) == 2
  (line,) = capsys.readouterr().err.splitlines()
  assert 'client.lr: 0.001 -> 0.5' in line and str(folder) in line
  assert before == sorted(
    (p, p.stat().st_mtime_ns) for p in folder.rglob('*') if p.is_file() and p.name != '.lock'
  )


def test_a_figure_that_cannot_be_drawn_costs_a_line_and_not_the_run(
  fake, whole, tmp_path, monkeypatch, capsys
):
  def fail(*_, **__):
    raise RuntimeError('Failed to process string\nwith tex')

  for name in ('partition_bubbles', 'accuracy_curve', 'synthetic_sets'):
    monkeypatch.setattr(figures, name, fail)
  assert experiment.run_experiment(config_of(), tmp_path / 'W') == 0
  assert outcome(tmp_path / 'W') == whole
  said = capsys.readouterr().out.splitlines()
  warned = [line for line in said if 'WARNING' in line]
  assert len(warned) == 4  # one of them for each of two seeds
  assert set(warned) == {
    'WARNING: a figure is left out (RuntimeError: Failed to process string with tex)'
  }


def test_unused_block_may_change(fake, whole_folder):
  assert experiment.run_experiment(config_of(**{'scaffold.option': 1}), whole_folder) == 0


@pytest.mark.parametrize(
  'change', [{'rounds': 0}, {'data.partition': 'nosuch'}, {'layout.devices': 99}]
)
def test_refusals_are_one_line(tmp_path, capsys, change):
  assert experiment.run_experiment(config_of(**change), tmp_path / 'w') == 2
  (line,) = capsys.readouterr().err.splitlines()
  assert str(next(iter(change.values()))) in line
  assert not (tmp_path / 'w' / 'metrics.jsonl').exists()


def test_folder_of_something_else_is_refused(fake, tmp_path, capsys):
  (tmp_path / 'metrics.jsonl').write_text('precious')
  assert experiment.run_experiment(config_of(), tmp_path) == 2
  assert 'metrics.jsonl' in capsys.readouterr().err
  assert (tmp_path / 'metrics.jsonl').read_text() == 'precious'


def test_second_run_on_a_folder_is_refused(fake, tmp_path, capsys):
  holder = (
    'import sys\nfrom fedjax_syn.runs import lock\nfrom pathlib import Path\n'
    f'with lock.hold(Path({str(tmp_path)!r})):\n'
    '  print("held", flush=True)\n  sys.stdin.read()\n'
  )
  with subprocess.Popen(
    [sys.executable, '-c', holder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
  ) as other:
    assert other.stdout.readline() == 'held\n'
    assert experiment.run_experiment(config_of(), tmp_path) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f'process {other.pid}' in line
    other.send_signal(signal.SIGKILL)  # and the system releases the lock
    other.wait()
  assert experiment.run_experiment(config_of(), tmp_path) == 0


def test_file_system_without_locks_is_a_warning(fake, tmp_path, monkeypatch):
  def flock(*_):
    raise OSError(errno.ENOLCK, 'No locks available')

  monkeypatch.setattr(lock.fcntl, 'flock', flock)
  with pytest.warns(UserWarning, match='cannot be locked'):
    assert experiment.run_experiment(config_of(), tmp_path) == 0


@pytest.mark.parametrize(('pid', 'refused'), [(os.getppid(), True), (2**22 + 1, False)])
def test_without_locks_a_process_that_is_named_and_alive_counts(
  tmp_path, monkeypatch, pid, refused
):
  """The second number is beyond what Linux gives."""

  def flock(*_):
    raise OSError(errno.ENOLCK, 'No locks available')

  monkeypatch.setattr(lock.fcntl, 'flock', flock)
  (tmp_path / '.lock').write_text(f'process {pid} on {socket.gethostname()}\n')
  expected = pytest.raises(lock.InUseError, match=f'process {pid} on')
  assert bool(lock.owner(tmp_path)) == refused  # a sweep waits for it
  with expected if refused else pytest.warns(UserWarning), lock.hold(tmp_path):
    pass


def test_without_locks_a_process_that_is_done_with_a_folder_is_not_named_in_it(
  tmp_path, monkeypatch
):
  def flock(*_):
    raise OSError(errno.ENOLCK, 'No locks available')

  monkeypatch.setattr(lock.fcntl, 'flock', flock)
  (tmp_path / 'config.json').write_text('{}')
  with pytest.warns(UserWarning), lock.hold(tmp_path):
    assert str(os.getpid()) in (tmp_path / '.lock').read_text()
  assert (tmp_path / '.lock').read_text() == ''


def test_who_is_at_work_in_a_folder(tmp_path):
  assert lock.owner(tmp_path / 'none') == ''
  with lock.hold(tmp_path):
    assert lock.owner(tmp_path) == f'process {os.getpid()} on {socket.gethostname()}'
  (tmp_path / '.lock').write_text('process 5 on here\n')  # of one that is dead
  assert lock.owner(tmp_path) == ''


def test_diverged_seed_ends_and_the_others_go_on(fake, tmp_path, capsys):
  fake(diverge={0: 5})
  assert experiment.run_experiment(config_of(), tmp_path) == 0
  summary = json.loads((tmp_path / 'summary.json').read_text())
  assert summary['status']['0'] == {
    'status': 'diverged',
    'round': 5,
    'client': 2,
    'last_good_checkpoint': 'checkpoints/4/seed_0',
    'synthesis_round': PHASE,
  }
  assert (tmp_path / 'checkpoints/4/seed_0').is_dir()  # it is there, and stays
  assert summary['status']['1']['status'] == 'finished'
  last = summary['test_accuracy']['last']
  assert last['mean'] is None and last['per_seed'][0] is None and last['per_seed'][1] > 0
  assert [line['round'] for line in lines_of(tmp_path) if line['seed'] == 0] == [0, 1, 2, 3, 4]
  assert 'seed 0 diverged in round 5, client 2' in capsys.readouterr().out


def test_all_seeds_diverged_is_status_3_also_when_asked_again(fake, tmp_path):
  fake(diverge={0: 1}, synthesis_diverges=(1,))
  assert experiment.run_experiment(config_of(), tmp_path) == 3
  assert experiment.run_experiment(config_of(), tmp_path) == 3
  status = json.loads((tmp_path / 'summary.json').read_text())['status']
  assert status['0']['last_good_checkpoint'] is None  # nothing was saved before round 1
  assert status['1']['reason'] == 'synthesis diverged in iteration 2'
  assert status['1']['last_good_checkpoint'] == 'checkpoints/3/seed_1'


def test_a_collapse_is_told_once_logged_and_in_the_summary(fake, tmp_path, capsys):
  fake(top_prediction=1.0)
  assert experiment.run_experiment(config_of(seeds=(0,)), tmp_path) == 0
  status = json.loads((tmp_path / 'summary.json').read_text())['status']['0']
  assert (status['status'], status['collapsed_round']) == ('finished', 1)
  lines = {line['round']: line for line in lines_of(tmp_path)}
  assert [r for r, line in lines.items() if line.get('collapsed_since') == 1] == [5, 6, 7]
  said = capsys.readouterr().out
  assert (
    said.count('seed 0: since round 1 the model gives all test rows one class') == 2
  )  # at the end too


def test_compare_is_trained_first_into_its_own_folder(fake, tmp_path, capsys, monkeypatch):
  order, drawn = [], []
  monkeypatch.setattr(final_files, 'draw_curves', lambda *args: drawn.append(args))
  fake(on=lambda what, seed, round: order.append(what))
  assert experiment.run_experiment(config_of(compare='fedavg'), tmp_path) == 0
  assert 'iteration' not in order[: len(order) // 3]
  other = tmp_path / 'compare'
  for name in ('config.json', 'metrics.jsonl', 'summary.json', 'checkpoints'):
    assert (other / name).exists()
  summary = json.loads((other / 'summary.json').read_text())
  assert summary['algorithm'] == 'fedavg' and summary['seeds'] == [0, 1]
  stored = json.loads((other / 'config.json').read_text())
  assert stored['config']['algorithm'] == 'fedavg' and stored['config']['compare'] == ''
  assert lines_of(other)[0] == lines_of(tmp_path)[0]  # the same initial model
  (_, runs, mark, _) = drawn[-1]
  assert runs == {'dynafed': tmp_path, 'fedavg': other} and mark == PHASE
  shown = capsys.readouterr().out
  assert re.search(r'dynafed +0\.\d{4} ± ', shown) and re.search(r'fedavg +0\.\d{4} ± ', shown)


def test_validation_split_is_reported(fake, tmp_path):
  assert (
    experiment.run_experiment(config_of(**{'data.validation': 0.1, 'seeds': (0,)}), tmp_path) == 0
  )
  summary = json.loads((tmp_path / 'summary.json').read_text())
  assert set(summary['validation_accuracy']) == {'last', 'mean_last_5', 'best'}
  assert {'validation/accuracy', 'validation/loss'} <= set(lines_of(tmp_path)[0])


def test_saving_takes_a_bounded_share_of_the_time(fake, tmp_path, monkeypatch):
  """With the real share: a run of no length saves ends of phases and of seeds, and little else."""
  monkeypatch.setattr(recorder, 'SHARE', 1e-6)
  saves, real = [], checkpoint.save
  monkeypatch.setattr(
    checkpoint, 'save', lambda root, round, *a: saves.append(round) or real(root, round, *a)
  )
  assert experiment.run_experiment(config_of(rounds=40, seeds=(0,)), tmp_path) == 0
  assert [r for r in saves if r > 2] == [PHASE, PHASE, 40]


def checkpoints_in(folder):
  root = folder / 'checkpoints'
  return sorted(str(p.relative_to(root)) for p in checkpoint.list_unsorted(root))


def test_of_a_finished_run_the_last_checkpoints_stay(whole_folder):
  assert checkpoints_in(whole_folder) == ['7/seed_0', '7/seed_1']
  assert sorted(p.name for p in (whole_folder / 'checkpoints').iterdir()) == ['7']


def test_ends_of_phases_stay_if_asked_for(fake, tmp_path):
  """Of round 3 there are two: before and after the work of the server."""
  assert run(tmp_path, keep_checkpoints='phases', seeds=(0,)) == 0
  assert checkpoints_in(tmp_path) == ['3/seed_0', '3/seed_0+1', '7/seed_0']
