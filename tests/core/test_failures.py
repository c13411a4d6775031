"""A full disk and a lost process: how they are recognised, what is said, and what stays good."""

import errno
import os
import pathlib

import numpy as np
import pytest

from fedjax_syn.cli import export
from fedjax_syn.core import failures, paths
from fedjax_syn.runs import checkpoint, experiment, lock, stored_files
from tests.run_helpers import config_of, outcome

pytest_plugins = ['tests.run_fixtures']


def caused(error: Exception, cause: Exception) -> Exception:
  error.__cause__ = cause
  return error


FULL = OSError(errno.ENOSPC, 'No space left on device', 'W/x')


@pytest.mark.parametrize(
  ('error', 'line'),
  [
    (FULL, 'W/x: No space left on device'),
    (OSError(errno.EDQUOT, 'Disk quota exceeded'), 'Disk quota exceeded'),
    (OSError(errno.EFBIG, 'File too large'), 'File too large'),
    (caused(ValueError('not written'), FULL), 'W/x: No space left on device'),
    # as tensorstore says it
    (
      ValueError('RESOURCE_EXHAUSTED: Failed to write 9 bytes [OS error 28: ENOSPC No space]'),
      'No space left on device',
    ),
    (OSError(errno.EACCES, 'Permission denied', 'W/x'), ''),
    (ValueError('RESOURCE_EXHAUSTED: Out of memory while trying to allocate'), ''),
    (KeyError('x'), ''),
  ],
)
def test_a_full_disk_is_told_from_other_errors(error, line):
  assert failures.no_space(error) == line


@pytest.mark.parametrize(
  ('text', 'lost'),
  [
    ('UNKNOWN: Gloo all-reduce failed: Read error: Connection reset by peer', True),
    ('UNAVAILABLE: Failed to send RPC to coordination service', True),
    ('INVALID_ARGUMENT: shapes differ', False),
  ],
)
def test_a_lost_process_is_told_from_other_errors(text, lost):
  assert failures.peer_lost(RuntimeError(text)) == lost


def test_a_checkpoint_that_cannot_be_written_leaves_nothing(tmp_path, monkeypatch):
  tree = {'w': np.ones(3)}
  good = checkpoint.save(tmp_path, 1, 0, tree, {'serial': 1})

  def full(path):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

  monkeypatch.setattr(checkpoint, 'fsync', full)
  with pytest.raises(OSError, match='No space left'):
    checkpoint.save(tmp_path, 2, 0, tree, {'serial': 2})
  assert [path.name for path in tmp_path.iterdir()] == ['1']
  monkeypatch.setattr(paths, 'fsync', full)
  with pytest.raises(OSError, match='No space left'):
    stored_files.write_json(tmp_path / 'x.json', {})
  assert [path.name for path in tmp_path.iterdir()] == ['1']
  assert checkpoint.read(good).tree['w'].sum() == 3


@pytest.mark.parametrize('writes', [0, 20, 60])
def test_a_run_on_a_full_disk_is_one_line_and_goes_on_when_there_is_space(
  fake, whole, tmp_path, monkeypatch, capfd, writes
):
  """The disk is full after so many files of checkpoints; the first ones fit in between."""
  left = [writes]

  def filling(path):
    left[0] -= 1
    if left[0] < 0:
      raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

  monkeypatch.setattr(checkpoint, 'fsync', filling)
  capfd.readouterr()
  assert experiment.run_experiment(config_of(), tmp_path / 'w') == 74
  (line,) = capfd.readouterr().err.splitlines()
  assert 'No space left on device; saved work is good' in line
  saved = len(checkpoint.list_sorted(tmp_path / 'w' / 'checkpoints'))
  assert bool(saved) == bool(writes)
  left[0] = 10**6
  assert experiment.run_experiment(config_of(), tmp_path / 'w') == 0
  assert outcome(tmp_path / 'w') == whole


def test_orbax_is_not_asked_to_write_what_has_no_space(tmp_path, monkeypatch, capfd):
  """It would print a traceback from each of its threads."""
  usage = checkpoint.shutil.disk_usage(tmp_path)
  monkeypatch.setattr(checkpoint.shutil, 'disk_usage', lambda _: usage._replace(free=100_000))
  with pytest.raises(OSError, match='No space left'):
    checkpoint.write_arrays(tmp_path / 'a', {'w': np.ones(10_000)})  # 80,000 bytes and some files
  assert not (tmp_path / 'a').exists() and capfd.readouterr().err == ''


@pytest.mark.parametrize(('owner', 'fails'), [(os, 'fsync'), (pathlib.Path, 'replace')])
def test_a_file_that_cannot_be_replaced_stays_and_nothing_lies_beside_it(
  tmp_path, monkeypatch, owner, fails
):
  path = tmp_path / 'page.html'
  paths.write_whole(path, b'old')

  def full(*_):
    raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))

  monkeypatch.setattr(owner, fails, full)
  with pytest.raises(OSError):
    paths.write_whole(path, b'new')
  assert [p.name for p in tmp_path.iterdir()] == ['page.html'] and path.read_text() == 'old'


def test_an_export_on_a_full_disk_says_where_and_is_no_refusal(tmp_path, monkeypatch):
  def full(*_):
    raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))

  monkeypatch.setattr(export, 'export', full)
  with pytest.raises(OSError) as failed:  # 74, as `stopping.run` makes of it
    export.main(['export.py', 'W', f'--output={tmp_path}'])
  assert failures.no_space(failed.value) == f'{tmp_path}: File too large'


def test_a_folder_called_as_the_lock_is_one_line(tmp_path):
  (tmp_path / '.lock').mkdir()
  line = '.lock is a folder and not a file; move or delete it'
  with pytest.raises(ValueError, match=line), lock.hold(tmp_path):
    pass


def test_a_folder_of_no_round_is_no_checkpoint(tmp_path):
  (tmp_path / '²' / 'seed_0').mkdir(parents=True)  # a digit to Python, and no number
  assert checkpoint.list_sorted(tmp_path) == []
