"""Damages of run folders, and the comparison that finds silent changes; the full search is slow."""

import random
import time

import pytest

from tools import _damages, damage_folders
from tools._outcomes import Outcome, outcome


@pytest.mark.slow
def test_damaged_folders_are_refused_or_read_as_before(capsys):
  assert damage_folders.main(['--count=24', '--seed=1']) == 0
  counts = dict(line.split(': ') for line in capsys.readouterr().out.splitlines())
  assert set(counts) == {'report', 'load', 'export', 'open', 'inspect', 'continue'}
  assert 'refused' in counts['continue'] and 'accepted' in counts['continue']


def _raise(error):
  raise error


@pytest.mark.parametrize(
  ('call', 'kind'),
  [
    (lambda: 3, 'accepted'),
    (lambda: _raise(ValueError('x=3: must be less')), 'refused'),
    (lambda: _raise(ValueError('a\nb')), 'several lines'),
    (lambda: _raise(ValueError('a' * 10_000)), 'several lines'),
    (lambda: _raise(KeyError('x')), 'traceback'),
    (lambda: _raise(RecursionError()), 'traceback'),
    (lambda: _raise(SystemExit(0)), 'traceback'),
    (lambda: time.sleep(5), 'hang'),
  ],
)
def test_outcomes_are_told_apart(call, kind):
  assert outcome(call, hang=0.1).kind == kind


DAMAGES = _damages.OF_FILES | _damages.OF_FOLDERS


@pytest.mark.parametrize('name', sorted(DAMAGES))
def test_a_damage_changes_one_file_or_its_folder(name, tmp_path):
  files = [tmp_path / name for name in ('a.json', 'b.json', 'below/c.json')]
  files[2].parent.mkdir()
  for path in files:
    path.write_text(f'{{"x": 1}}\n{{"{path.name}": 2}}\n')
  before = {path: path.read_bytes() for path in files}
  DAMAGES[name](files[2], random.Random(0))
  same = [p for p in files if p.is_file() and p.read_bytes() == before[p]]
  assert same == files[:2]


def test_another_file_is_one_of_the_same_suffix(tmp_path):
  for name in ('a.json', 'b.json', 'c.npz'):
    (tmp_path / name).write_text(name)
  damage_folders.another_file(tmp_path / 'a.json', random.Random(0), tmp_path)
  assert (tmp_path / 'a.json').read_text() == 'b.json'
  damage_folders.another_file(tmp_path / 'c.npz', random.Random(0), tmp_path)
  assert not (tmp_path / 'c.npz').exists()


def test_a_difference_is_silent_unless_the_part_is_optional():
  expected = {'lines': [1, 2, 3], 'set 0': 'a', 'settings': 's'}
  judged = lambda value, *optional: damage_folders.judged(
    Outcome('accepted', '', value), expected, optional
  )
  assert judged(expected).kind == 'accepted'
  assert judged({**expected, 'set 0': 'b'}, 'set').text == 'other set 0'
  assert judged({'lines': [1, 2, 3], 'settings': 's'}).text == 'other set 0'
  assert judged({'lines': [1, 2], 'settings': 's'}, 'lines', 'set').kind == 'accepted'
  assert judged({**expected, 'lines': [1, 2]}, 'set').kind == 'silent'
  refused = Outcome('refused', 'a line')
  assert damage_folders.judged(refused, expected, ()) is refused
