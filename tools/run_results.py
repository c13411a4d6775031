"""Writes what finished runs reached into one small JSON file, as results/ holds them.

  python -m tools.run_results results/NAME.json 'what it is' FOLDER [FOLDER ...]

Of each folder, and of what lies in its `compare/`, the file has the settings that differ from the
defaults, the commit, and the test accuracy: mean of the last five rounds and best, by seed. A seed
that diverged has none, and the round in which it did is given.
"""

import json
import sys
from pathlib import Path
from typing import Any

from fedjax_syn import config as config_lib
from fedjax_syn.config import schema
from fedjax_syn.runs import work_folder


def results_of(folder: Path) -> dict[str, Any]:
  """Returns the results of one method's folder.

  Raises:
    ValueError: if the run is not finished.
  """
  described, summary = work_folder.config(folder), work_folder.summary(folder)
  if described is None or summary is None:
    raise ValueError(f'{folder}: no finished run')
  config, leaves = schema.flatten(described['config']), config_lib.leaves()
  parts = described['config']['algorithm'].split('+')
  used = (*schema.SECTIONS, *parts)
  settings = {
    key: value
    for key, value in config.items()
    if key in leaves
    and value != schema.plain(leaves[key].default)
    and ('.' not in key or key.partition('.')[0] in used)
    and key not in ('algorithm', 'compare', 'data.dir')
  }
  accuracy = summary['test_accuracy']
  diverged = {s: v['round'] for s, v in summary['status'].items() if v['status'] == 'diverged'}
  return {
    'settings': settings,
    'commit': described.get('commit'),
    'test_accuracy': {name: accuracy[name] for name in ('mean_last_5', 'best')},
    **({'diverged_in_round': diverged} if diverged else {}),
  }


def main(output: str, about: str, *folders: str) -> None:
  """Writes the file."""
  methods: dict[str, Any] = {}
  for folder in map(Path, folders):
    beside = sorted(path.parent for path in (folder / work_folder.COMPARE).rglob('summary.json'))
    for path in (*beside, folder):
      described = work_folder.config(path)
      name = path.name if path != folder else described and described['config']['algorithm']
      methods[str(name)] = results_of(path)
  Path(output).write_text(json.dumps({'about': about, 'methods': methods}, indent=1) + '\n')


if __name__ == '__main__':
  main(*sys.argv[1:])
