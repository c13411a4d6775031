"""The hunt of `tools/damage.py`, small: no traceback, no hang, no result that changed in silence."""

import random

import pytest

from tools import _folder_damages as damages
from tools import damage


@pytest.mark.slow
def test_damaged_folders_are_refused_or_come_to_the_same(tmp_path):
  counts = damage.hunt(tmp_path, count=24, seed=1, limit=60, inspections=0)
  assert not [kind for kind in counts if kind.endswith(('traceback', 'hang', 'silent'))]
  assert sum(counts.values()) == 5 * 24
  assert counts['main said'] and counts['main fine'] and counts['report said']


def test_damages_change_what_they_say(tmp_path):
  """Every kind; whatever is done is done to one file, or to one folder below."""
  for number, kind in enumerate([*damages.DAMAGES, *damages.OF_FOLDERS]):
    root = tmp_path / f'copy{number}'
    (root / 'below').mkdir(parents=True)
    for name in ('a.json', 'b.json', 'below/c.json'):
      (root / name).write_text(f'{{"x": 1}}\n{{"{name}": 2}}\n')
    before = {p: p.read_bytes() for p in root.rglob('*.json')}
    assert kind(root / 'below/c.json', random.Random(number))
    kept = {p for p, content in before.items() if p.is_file() and p.read_bytes() == content}
    assert {root / 'a.json', root / 'b.json'} <= kept
