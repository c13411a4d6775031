"""Methods against the values of a setting, as Markdown and as a figure.

Accuracies are means of the last five rounds, per cent. Where series.toml has `replicates`, the
values repeat one measurement (partitions, for example), and a last column has all of them.
"""

import pathlib
from collections.abc import Callable, Iterable

import numpy as np

from fedjax_syn.plotting import canvas, style
from tools.series_cells import Cell, Series, best
from tools.series_curves import interval

LAST, BEST = 'mean_last_5', 'best'


def table(series: Series) -> str:
  """Returns the finished cells: accuracies, gains with intervals, chosen settings, cost."""
  left = sum(series.result(cell) is None for cell in series.cells() if cell.kind == 'test')
  note = f'\nCells that are not finished: {left}.\n' if left else ''
  reference = style.method_name(series.spec['reference'])
  others = [method for method in series.spec['methods'] if method != series.spec['reference']]
  gains = lambda key: _rows(series, others, lambda m, c: _gain_text(series, m, c, key))
  text = _rows(series, series.spec['methods'], lambda m, c: _accuracy(series, m, c))
  text += f"""{note}
Gain over {reference} in points: mean of the differences of equal seeds, and half of their 95 %
interval (Student's t):

{gains(LAST)}
The same for each run's best round. It is chosen on test rows, so this is no result; it shows how
much of a gain comes from rounds that differ less from each other:

{gains(BEST)}"""
  if 'tune' in series.spec:
    chosen = _rows(series, series.spec['methods'], lambda m, c: _chosen(series, m, c), all=False)
    text += f'\nChosen on held-out rows (accuracy there):\n\n{chosen}'
  return text + _costs(series)


def _rows(
  series: Series, methods: Iterable[str], text: Callable[[str, list[str]], str], all: bool = True
) -> str:
  """Returns a table with a row for each method and a column for each value."""
  spec = series.spec
  axis = spec['axis'].split('.')[-1]
  columns = {f'{spec.get("column", axis)} {value}': [value] for value in spec['values']}
  if all and 'replicates' in spec:
    columns[spec['replicates']] = spec['values']
  cells = [['method', *columns], ['---'] * (1 + len(columns))]
  for method in methods:
    cells.append([style.method_name(method), *(text(method, c) for c in columns.values())])
  return ''.join(f'| {" | ".join(row)} |\n' for row in cells)


def _scores(series: Series, method: str, values: list[str], key: str = LAST) -> np.ndarray | None:
  """Returns accuracies in per cent of all seeds and values; None where one is missing."""
  found: list[float | None] = []
  for value in values:
    result = series.result(Cell(method, value, 'test'))
    found += result['test_accuracy'][key]['per_seed'] if result else [None]
  return None if None in found else 100 * np.array(found, float)


def _gains(series: Series, method: str, values: list[str], key: str = LAST) -> np.ndarray | None:
  """Returns percentage points over the reference, one for each seed and value."""
  own = _scores(series, method, values, key)
  other = _scores(series, series.spec['reference'], values, key)
  return None if own is None or other is None else own - other


def _accuracy(series: Series, method: str, values: list[str]) -> str:
  scores = _scores(series, method, values)
  if scores is None:
    return ''
  return f'{scores.mean():.2f}' + (f' ± {scores.std(ddof=1):.2f}' if len(scores) > 1 else '')


def _gain_text(series: Series, method: str, values: list[str], key: str) -> str:
  gains = _gains(series, method, values, key)
  if gains is None:
    return ''
  return f'{gains.mean():+.2f}' + (f' ± {interval(gains):.2f}' if len(gains) > 1 else '')


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
  """Draws each method's mean gain over the reference against the values."""
  figure, (axes,) = canvas.begin(6, 4)
  methods = list(series.spec['methods'])
  for method, line in zip(methods, style.styles(methods), strict=True):
    found = ((float(v), _gains(series, method, [v])) for v in series.spec['values'])
    pairs = [(x, gains.mean()) for x, gains in found if gains is not None]
    if pairs:
      axes.plot(*zip(*pairs, strict=True), marker='.', label=style.method_name(method), **line.line)
  axes.set_xscale('log')
  axes.set_xlabel(series.spec['axis'].split('.')[-1])
  reference = style.method_name(series.spec['reference'])
  axes.set_ylabel(f'test accuracy, points above {reference}')
  canvas.finish(figure, path, series.spec['title'])
