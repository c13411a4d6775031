"""Measures what the sets of a series of runs give away, and writes docs/privacy.md's table.

  python -m tools.privacy_table RESULTS [--work=W] [--data_dir=D] [--steps=N]
  python -m tools.privacy_table RESULTS --show

  RESULTS     a folder with series.toml, whose runs `tools.series` has finished
  --work      the folder of runs; runs/series/NAME
  --data_dir  where the data lie
  --steps     of training a network on a set; 500
  --show      writes RESULTS/privacy.md and the table's place in docs/privacy.md

A run is measured at all of its seeds and written to RESULTS/<name>.privacy.json; a run with such a
file is finished.
"""

import json
import pathlib
import sys
from collections.abc import Sequence

import numpy as np
from absl import app, flags, logging

from tools import series_flags, series_show
from tools.series_cells import ROOT, Cell, Json, Series, load

STEPS = flags.DEFINE_integer('steps', 500, 'of training on a set')
PAGE = ROOT / 'docs/privacy.md'


def measured(series: Series, name: str) -> Json | None:
  """Returns the numbers of a run's sets, or None."""
  path = series.folder / f'{name}.privacy.json'
  return json.loads(path.read_text()) if path.exists() else None


def measure(folder: pathlib.Path, data_dir: str | None, steps: int) -> Json | None:
  """Measures the sets of all seeds of a run; None if its method makes no data."""
  import jax

  from fedjax_syn.cli import jax_setup
  from fedjax_syn.papers import given_away  # slow to import
  from fedjax_syn.runs import restore

  logging.set_verbosity(logging.WARNING)
  jax_setup.prepare_jax(1)
  jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.1)
  config = restore.read(folder).config
  if not set(config.algorithm.split('+')) & set(given_away.NAMES):
    return None
  seeds = [
    given_away.measure(given_away.open_set(folder, seed, data_dir), steps) for seed in config.seeds
  ]
  return {'steps': steps, 'seeds': seeds}


def table(series: Series) -> str:
  """Returns the finished runs as Markdown: accuracy and bytes, nearness, and the two attacks."""
  head = (
    'method',
    'test accuracy',
    'MB sent by clients',
    'images',
    'nearer than 5 % of new images',
    'membership by distance (noise)',
    'membership by loss (untrained)',
    'accuracy of the set alone',
  )
  rows, left = [head, ('---',) * len(head)], []
  for name, run in series.runs.items():
    result = series.result(Cell(name, '', 'run'))
    if result is None:
      left.append(run['title'])
    else:
      rows.append(_row(run['title'], result, measured(series, name)))
  note = f'\nNot run: {"; ".join(left)}.\n' if left else ''
  return '\n'.join('| ' + ' | '.join(row) + ' |' for row in rows) + f'\n{note}'


def _row(title: str, result: Json, sets: Json | None) -> tuple[str, ...]:
  score = result['test_accuracy']['mean_last_5']
  accuracy = _spread([100 * value for value in score['per_seed']], 1)
  each = f'{result["bytes_up"] / 1e6:.2f}'
  if sets is None:
    return title, accuracy, each, *[''] * 5
  seeds = sets['seeds']
  auc = lambda name: _spread([seed['membership'][name]['auc'] for seed in seeds], 3)
  return (
    title,
    accuracy,
    each,
    f'{np.mean([seed["images"] for seed in seeds]):.0f}',
    _spread([100 * seed['nearest']['share_nearer'] for seed in seeds], 1) + ' %',
    f'{auc("distance")} ({auc("distance, noise")})',
    f'{auc("loss")} ({auc("loss, network before training")})',
    _spread([100 * seed['accuracy_from_scratch'] for seed in seeds], 1),
  )


def _spread(values: Sequence[float], digits: int) -> str:
  """Returns the mean over seeds, with the standard deviation."""
  std = f' ± {np.std(values, ddof=1):.{digits}f}' if len(values) > 1 else ''
  return f'{np.mean(values):.{digits}f}{std}'


def main(argv: Sequence[str]) -> int:
  """Measures runs, or shows what was measured."""
  series = load(pathlib.Path(argv[1]))
  name = series.folder.resolve().name
  if not series_flags.SHOW.value:
    work = pathlib.Path(series_flags.WORK.value or ROOT / 'runs/series' / name)
    for run in series.runs:
      folder = work / f'{run}.run'
      finished = (folder / 'summary.json').exists()
      if finished and measured(series, run) is None:
        sets = measure(folder, series_flags.DATA_DIR.value or None, STEPS.value)
        if sets is not None:
          path = series.folder / f'{run}.privacy.json'
          path.write_text(json.dumps(sets, indent=1) + '\n')
          print(run, flush=True)
    return 0
  text = table(series)
  (series.folder / 'privacy.md').write_text(text)
  PAGE.write_text(series_show.place(PAGE.read_text(), name, text))
  return 0


if __name__ == '__main__':
  sys.exit(app.run(main))
