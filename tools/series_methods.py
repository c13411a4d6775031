"""Methods against the values of a setting, as Markdown and as a figure.

Accuracies are means of the last five rounds, per cent. series.toml has the `reference`, with which
each method is compared, and may have further `pairs` of methods. Where it has `replicates`, the
values repeat one measurement (partitions, for example), and a last column has all of them.
"""

import functools
import pathlib
from collections.abc import Callable

import numpy as np

from fedjax_syn.plotting import canvas, style
from tools.series_cells import Cell, Series, best
from tools.series_statistics import difference, spread

LAST, BEST = 'mean_last_5', 'best'
Text = Callable[[list[str]], str]  # of a table's cell, from the values of its column


def table(series: Series) -> str:
  """Returns accuracies, differences, chosen settings and costs as Markdown.

  Args:
    series: one with `methods`; a cell that is not finished is empty.
  """
  methods = list(series.spec['methods'])
  rows = lambda text: {style.method_name(m): functools.partial(text, series, m) for m in methods}
  left = sum(series.result(cell) is None for cell in series.cells() if cell.kind == 'test')
  note = f'\nCells that are not finished: {left}.\n' if left else ''
  columns = {f'{_column(series)} {value}': [value] for value in series.spec['values']}
  every = dict(columns)
  if 'replicates' in series.spec:
    every[series.spec['replicates']] = series.spec['values']
  text = f"""{_table('method', every, rows(_accuracy))}{note}
Differences of equal seeds in points, with the 95 % interval of Student's t:

{_table('methods', every, _pairs(series, LAST))}
The same differences of each run's best round. The best round is chosen on test rows, so these are
no results; they show how much of a difference comes from accuracies that vary between rounds:

{_table('methods', every, _pairs(series, BEST))}"""
  if 'tune' in series.spec:
    chosen = _table('method', columns, rows(_chosen))
    text += f'\nChosen on held-out rows (accuracy there):\n\n{chosen}'
  return text + _costs(series)


def _table(first: str, columns: dict[str, list[str]], rows: dict[str, Text]) -> str:
  cells = [[first, *columns], ['---'] * (1 + len(columns))]
  cells += [[title, *(text(values) for values in columns.values())] for title, text in rows.items()]
  return ''.join(f'| {" | ".join(row)} |\n' for row in cells)


def _column(series: Series) -> str:
  return series.spec.get('column', series.spec['axis'].split('.')[-1])


def _pairs(series: Series, key: str) -> dict[str, Text]:
  """Returns the rows of differences: each method and the reference, and `pairs`."""
  reference = series.spec['reference']
  pairs = [(method, reference) for method in series.spec['methods'] if method != reference]
  pairs += series.spec.get('pairs', [])
  return {
    f'{style.method_name(one)} above {style.method_name(two)}': functools.partial(
      _difference, series, one, two, key
    )
    for one, two in pairs
  }


def _scores(series: Series, method: str, values: list[str], key: str = LAST) -> np.ndarray | None:
  """Returns accuracies in per cent of all seeds and values; None if one is missing or diverged."""
  found: list[float | None] = []
  for value in values:
    result = series.result(Cell(method, value, 'test'))
    found += result['test_accuracy'][key]['per_seed'] if result else [None]
  return None if None in found else 100 * np.array(found, float)


def _accuracy(series: Series, method: str, values: list[str]) -> str:
  if any(series.result(Cell(method, value, 'test')) is None for value in values):
    return ''
  scores = _scores(series, method, values)
  if scores is None:
    return 'a seed diverged'
  return spread(scores)


def _points(series: Series, one: str, two: str, key: str, values: list[str]) -> np.ndarray | None:
  """Returns the differences of two methods, one for each seed and value."""
  own, other = _scores(series, one, values, key), _scores(series, two, values, key)
  return None if own is None or other is None else own - other


def _difference(series: Series, one: str, two: str, key: str, values: list[str]) -> str:
  points = _points(series, one, two, key, values)
  return '' if points is None else difference(points)


def _chosen(series: Series, method: str, values: list[str]) -> str:
  tuned = series.result(Cell(method, values[0], 'tune'))
  if not tuned:
    return ''
  cell = best(tuned)
  texts = ', '.join(f'{key.split(".")[-1]} {text}' for key, text in cell['values'].items())
  return f'{texts} ({100 * cell["held_out"]:.2f})'


def _costs(series: Series) -> str:
  """Returns what a run of each method sends and takes."""
  rows = []
  for method in series.spec['methods']:
    cells = (series.result(Cell(method, value, 'test')) for value in series.spec['values'])
    if found := [cell for cell in cells if cell]:
      seeds = lambda cell: len(cell['test_accuracy'][LAST]['per_seed'])
      seconds = min(c['run_seconds']['total'] / seeds(c) for c in found)
      sent = (f'{max(c[key] for c in found) / 1e9:.2f} GB' for key in ('bytes_up', 'bytes_down'))
      rows.append(f'| {style.method_name(method)} | {" | ".join(sent)} | {seconds:.0f} |\n')
  return f"""
A run of one seed on one core: bytes of all clients and rounds, and the seconds of the method's
fastest cell:

| method | sent up | sent down | seconds |
| --- | --- | --- | --- |
{''.join(rows)}"""


def draw(series: Series, path: pathlib.Path) -> None:
  """Draws each method's mean difference from the reference against the values.

  Args:
    series: one with `methods`, whose values are numbers.
    path: of the figure, with its ending.
  """
  figure, (axes,) = canvas.begin(6, 4)
  methods = list(series.spec['methods'])
  for method, line in zip(methods, style.styles(methods), strict=True):
    gain = functools.partial(_points, series, method, series.spec['reference'], LAST)
    found = ((float(v), gain([v])) for v in series.spec['values'])
    pairs = [(x, points.mean()) for x, points in found if points is not None]
    if pairs:
      axes.plot(*zip(*pairs, strict=True), marker='.', label=style.method_name(method), **line.line)
  axes.set_xscale('log')
  axes.set_xlabel(_column(series))
  reference = style.method_name(series.spec['reference'])
  axes.set_ylabel(f'test accuracy, points above {reference}')
  canvas.finish(figure, path, series.spec['title'])
