"""Damages of run folders, and the comparison that finds silent changes; the full search is slow."""

import random

import pytest

from tools import _damages, _folders, hunt
from tools._outcomes import Outcome


@pytest.mark.slow
def test_damaged_folders_are_refused_or_read_as_before(capsys):
  assert hunt.main(['folders', '--count=24', '--seed=1']) == 0
  out = capsys.readouterr().out
  assert 'continue: 24 in' in out and 'refused' in out and 'accepted' in out


@pytest.mark.parametrize('name', sorted(_damages.ANY_FILE | _damages.TEXT | _damages.FOLDER))
def test_a_damage_changes_one_file_or_its_folder(name, tmp_path):
  files = [tmp_path / name for name in ('a.json', 'b.json', 'below/c.json')]
  files[2].parent.mkdir()
  for path in files:
    path.write_text(f'{{"x": 1}}\n{{"{path.name}": 2}}\n')
  before = {path: path.read_bytes() for path in files}
  damages = _damages.ANY_FILE | _damages.TEXT | _damages.FOLDER
  damages[name](files[2], random.Random(0))
  same = [p for p in files if p.is_file() and p.read_bytes() == before[p]]
  assert same == files[:2]


def test_another_file_is_one_of_the_same_suffix(tmp_path):
  for name in ('a.json', 'b.json', 'c.npz'):
    (tmp_path / name).write_text(name)
  _folders.another_file(tmp_path / 'a.json', random.Random(0), tmp_path)
  assert (tmp_path / 'a.json').read_text() == 'b.json'
  _folders.another_file(tmp_path / 'c.npz', random.Random(0), tmp_path)
  assert not (tmp_path / 'c.npz').exists()


def test_a_difference_is_silent_unless_the_part_is_optional():
  expected = {'lines': [1, 2, 3], 'set 0': 'a', 'settings': 's'}
  judged = lambda value, *optional: _folders.judged(
    Outcome('accepted', '', 0.0, value), expected, optional
  )
  assert judged(expected).kind == 'accepted'
  assert judged({**expected, 'set 0': 'b'}, 'set').text == 'other set 0'
  assert judged({'lines': [1, 2, 3], 'settings': 's'}).text == 'other set 0'
  assert judged({'lines': [1, 2], 'settings': 's'}, 'lines', 'set').kind == 'accepted'
  assert judged({**expected, 'lines': [1, 2]}, 'set').kind == 'silent'
  refused = Outcome('refused', 'a line', 0.0)
  assert _folders.judged(refused, expected, ()) is refused
