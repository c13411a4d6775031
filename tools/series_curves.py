"""What the runs of a series reach by round: a table, differences of pairs of runs, and a figure.

`curves` in series.toml has the `rounds` of the table, the `lowest` accuracy of the figure, and in
`above`, by the name of a run, those that it is compared with. The runs evaluate after every round.
The accuracy at round r is the mean of the five rounds that end with r.
"""

import pathlib

import numpy as np

from fedjax_syn.plotting import canvas, numbers
from tools.series_cells import Cell, Json, Series
from tools.series_statistics import difference, spread

WINDOW = 5
"""Rounds of a mean."""


def means(cell: Json) -> np.ndarray:
  """Returns the means of five rounds in per cent, [seeds, rounds]; NaN before round 5.

  Args:
    cell: a finished run, whose `curves` begin with round 0.
  """
  curves = np.array([cell['curves'][seed] for seed in sorted(cell['curves'], key=int)])
  windows = np.lib.stride_tricks.sliding_window_view(curves[:, 1:], WINDOW, axis=1)
  before = np.full((len(curves), WINDOW), np.nan)
  return 100 * np.concatenate((before, windows.mean(-1)), axis=1)


def table(series: Series) -> str:
  """Returns the means of the finished runs and the differences of pairs, as Markdown."""
  rounds = series.spec['curves']['rounds']
  titles = {name: run['title'] for name, run in series.runs.items()}
  head = ''.join(f' | round {r}' for r in rounds)
  rule = f'| --- |{" --- |" * len(rounds)}'
  line = lambda name, text, values: (
    '| ' + ' | '.join((name, *(text(values[:, r]) for r in rounds))) + ' |\n'
  )
  found = {name: means(cell) for name in titles if (cell := series.result(Cell(name, '', 'run')))}
  rows = (line(titles[name], spread, found[name]) for name in found)
  text = f'\nMean of five rounds that end with:\n\n| run{head} |\n{rule}\n{"".join(rows)}'
  above = series.spec['curves']['above'].items()
  pairs = [(a, b) for a, others in above for b in others if a in found and b in found]
  rows = (
    line(f'{titles[one]}, above {titles[two]}', difference, found[one] - found[two])
    for one, two in pairs
  )
  note = "\nDifferences of the same seeds, with the 95 % interval of Student's t:\n\n"
  return text + (f'{note}| runs{head} |\n{rule}\n{"".join(rows)}' if pairs else '')


def draw(series: Series, path: pathlib.Path) -> None:
  """Draws the mean over seeds of the runs that are compared, a panel for each comparison."""
  spec = series.spec['curves']
  groups = [(one, *others) for one, others in spec['above'].items()]
  figure, panels = canvas.begin(9, 4, len(groups), len(groups))
  for axes, names in zip(panels, groups, strict=True):
    for name in names:
      if cell := series.result(Cell(name, '', 'run')):
        values = means(cell)[:, WINDOW:]
        rounds = np.arange(WINDOW, WINDOW + values.shape[1])
        curve = numbers.Curve(rounds, values.mean(0), values.std(0, ddof=1))
        canvas.band(axes, curve, label=series.runs[name]['title'])
    axes.set_ylim(bottom=spec['lowest'])
    axes.set_xlabel('round')
    axes.set_ylabel('test accuracy (%), mean of five rounds')
  canvas.finish(figure, path, series.spec['title'])
