"""The finished cells of a series as Markdown, as a figure, and in docs/results.md."""

import pathlib

from fedjax_syn.plotting import canvas, style
from tools import series_curves
from tools.series_cells import ROOT, Cell, Json, Series, best, load

PAGE = ROOT / 'docs/results.md'


def show(folder: pathlib.Path) -> None:
  """Writes table and figure of a series that has begun, and its place in docs/results.md."""
  series = load(folder)
  begun = any(series.result(cell) is not None for cell in series.cells())
  text = table(series) if begun or series.runs else ''
  if begun:
    (folder / 'table.md').write_text(text)
    picture = PAGE.with_name(f'{folder.resolve().name}.svg')
    if not series.runs:
      draw(series, picture)
    elif 'curves' in series.spec:
      series_curves.draw(series, picture)
  PAGE.write_text(place(PAGE.read_text(), folder.resolve().name, text))


def table(series: Series) -> str:
  """Returns the finished cells as Markdown: accuracy with gains, chosen settings, cost."""
  if 'runs' in series.spec:
    return runs_table(series)
  spec, values = series.spec, series.spec['values']
  head = ['method', *(f'{spec["axis"].split(".")[-1]} {value}' for value in values)]
  rows = [head, ['---'] * len(head)]
  chosen = [head, ['---'] * len(head)]
  for method in spec['methods']:
    name = style.method_name(method)
    accuracy = [_accuracy(series, method, value) for value in values]
    rows.append([name, *accuracy])
    chosen.append([name, *(_chosen(series, method, value) for value in values)])
  lines = lambda rows: '\n'.join('| ' + ' | '.join(row) + ' |' for row in rows)
  left = sum(series.result(cell) is None for cell in series.cells())
  note = f'\n{left} cells are not finished.\n' if left else ''
  picked = f'\nChosen on held-out rows (accuracy there):\n\n{lines(chosen)}\n'
  return f'{lines(rows)}\n{note}{picked}{_costs(series)}'


def _costs(series: Series) -> str:
  """Returns what a run of each method sends and takes, as Markdown."""
  rows = []
  for method in series.spec['methods']:
    cells = (series.result(Cell(method, value, 'test')) for value in series.spec['values'])
    if found := [cell for cell in cells if cell]:
      seeds = lambda cell: len(cell['test_accuracy']['mean_last_5']['per_seed'])
      seconds = min(c['run_seconds']['total'] / seeds(c) for c in found)
      sent = (f'{max(c[key] for c in found) / 1e9:.2f} GB' for key in ('bytes_up', 'bytes_down'))
      rows.append(f'| {style.method_name(method)} | {" | ".join(sent)} | {seconds:.0f} |\n')
  head = (
    'A run of one seed: bytes of all clients and rounds, least seconds of all cells on one core:'
  )
  columns = '| method | sent up | sent down | seconds |\n| --- | --- | --- | --- |\n'
  return f'\n{head}\n\n{columns}{"".join(rows)}'


def runs_table(series: Series) -> str:
  """Returns the runs as Markdown: accuracies in per cent, their seeds, minutes and settings."""
  rows, left = [], []
  for name, run in series.spec['runs'].items():
    result = series.result(Cell(name, '', 'run'))
    if result is None:
      left.append(run['title'])
      continue
    test, held_out = (result.get(f'{split}_accuracy') for split in ('test', 'validation'))
    settings = [word.removeprefix('--config.') for word in run['settings']]
    if 'after' in run:
      settings.append(f'from round {run["from_round"]} of `{run["after"]}`')
    texts = run['title'], _text(test), _text(held_out), f'{result["seconds"] / 60:.1f}'
    rows.append(' | '.join((*texts, ', '.join(settings) or 'none')))
  head = 'run | test | held out | minutes | settings'
  note = f'\nNot run: {"; ".join(left)}.\n' if left else ''
  if not rows:
    return note
  lines = '\n'.join(f'| {row} |' for row in (head, '--- | --- | --- | --- | ---', *rows))
  base = ' '.join(series.spec['base'])
  text = f'{lines}\n{note}\nAll with `python launch/main.py {base}`.\n'
  return text + series_curves.table(series) if 'curves' in series.spec else text


def _text(accuracy: Json | None) -> str:
  """Returns the mean of the last five rounds, per cent, with deviation and seeds."""
  if accuracy is None:
    return ''
  score = accuracy['mean_last_5']
  each = [f'{100 * value:.2f}' for value in score['per_seed'] if value is not None]
  if len(each) == 1:
    return each[0]
  return f'{100 * score["mean"]:.2f} ± {100 * score["std"]:.2f} ({", ".join(each)})'


def place(page: str, name: str, text: str) -> str:
  """Returns a page with a table between its marks `<!-- series: NAME -->`; unchanged without."""
  mark, end = f'<!-- series: {name} -->', '<!-- end of the series -->'
  before, found, after = page.partition(mark)
  if not found:
    return page
  return f'{before}{mark}\n\n{text.strip()}\n\n{end}{after.partition(end)[2]}'


def _score(series: Series, method: str, value: str) -> Json | None:
  result = series.result(Cell(method, value, 'test'))
  return result and result['test_accuracy']['mean_last_5']


def _gain(series: Series, method: str, value: str) -> float | None:
  """Percentage points over the reference method."""
  own, other = _score(series, method, value), _score(series, series.spec['reference'], value)
  return 100 * (own['mean'] - other['mean']) if own and other else None


def _accuracy(series: Series, method: str, value: str) -> str:
  score, gain = _score(series, method, value), _gain(series, method, value)
  if not score:
    return ''
  std = '' if score['std'] is None else f' ± {100 * score["std"]:.2f}'
  more = '' if gain is None or method == series.spec['reference'] else f' ({gain:+.1f})'
  return f'{100 * score["mean"]:.2f}{std}{more}'


def _chosen(series: Series, method: str, value: str) -> str:
  tuned = series.result(Cell(method, value, 'tune'))
  if not tuned:
    return ''
  cell = best(tuned)
  values = ', '.join(f'{key.split(".")[-1]} {text}' for key, text in cell['values'].items())
  return f'{values} ({100 * cell["held_out"]:.2f})'


def draw(series: Series, path: pathlib.Path) -> None:
  """Draws each method's gain over the reference against the axis."""
  figure, (axes,) = canvas.begin(6, 4)
  methods = list(series.spec['methods'])
  for method, line in zip(methods, style.styles(methods), strict=True):
    pairs = [(float(v), _gain(series, method, v)) for v in series.spec['values']]
    pairs = [(x, y) for x, y in pairs if y is not None]
    if pairs:
      axes.plot(*zip(*pairs, strict=True), marker='.', label=style.method_name(method), **line.line)
  axes.set_xscale('log')
  axes.set_xlabel(series.spec['axis'].split('.')[-1])
  reference = style.method_name(series.spec['reference'])
  axes.set_ylabel(f'test accuracy, points above {reference}')
  canvas.finish(figure, path, series.spec['title'])
