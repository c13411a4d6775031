"""The commands of docs/data.md about tables and sequences run as they are written."""

import json
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def block(heading: str) -> str:
  """Returns the first shell block of a section."""
  section = (ROOT / 'docs' / 'data.md').read_text().split(f'\n## {heading}\n')[1].split('\n## ')[0]
  return section.split('```bash\n')[1].split('```')[0]


@pytest.mark.slow
@pytest.mark.parametrize(
  'heading, run, least',
  [('Tables and sequences', 'sequences', 0.6), ('A table in CSV', 'patients', 0.75)],
)
def test_commands_of_the_page(tmp_path, heading, run, least):
  """A guess is right for a third of the sequences and half of the patients."""
  command = block(heading).replace('launch/main.py', str(ROOT / 'launch' / 'main.py'))
  subprocess.run(['bash', '-ec', command], cwd=tmp_path, check=True, timeout=600)
  lines = (tmp_path / 'runs' / run / 'metrics.jsonl').read_text().splitlines()
  assert json.loads(lines[-1])['test/accuracy'] > least
