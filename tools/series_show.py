"""The finished cells of a series as Markdown, as a figure, and in docs/results.md."""

import pathlib

from tools import series_curves, series_methods
from tools.series_cells import ROOT, Cell, Json, Series, load

PAGE = ROOT / 'docs/results.md'


def show(folder: pathlib.Path) -> None:
  """Writes table and figure of a series that has begun, and its place in docs/results.md."""
  series = load(folder)
  begun = any(series.result(cell) is not None for cell in series.cells())
  text = table(series) if begun or series.runs else ''
  if begun:
    (folder / 'table.md').write_text(text)
    picture = PAGE.with_name(f'{folder.resolve().name}.svg')
    if 'curves' in series.spec:
      series_curves.draw(series, picture)
    elif not series.runs and 'replicates' not in series.spec:
      series_methods.draw(series, picture)
  PAGE.write_text(place(PAGE.read_text(), folder.resolve().name, text))


def table(series: Series) -> str:
  """Returns the finished cells as Markdown."""
  return runs_table(series) if series.runs else series_methods.table(series)


def runs_table(series: Series) -> str:
  """Returns the runs as Markdown: accuracies in per cent, their seeds, minutes and settings."""
  results = {name: series.result(Cell(name, '', 'run')) for name in series.runs}
  found = {name: result for name, result in results.items() if result is not None}
  left = [run['title'] for name, run in series.runs.items() if name not in found]
  note = f'\nNot run: {"; ".join(left)}.\n' if left else ''
  if not found:
    return note
  splits = {'test': 'test, %', 'validation': 'held out, %'}
  splits = {s: h for s, h in splits.items() if any(f'{s}_accuracy' in r for r in found.values())}
  rows = [['run', *splits.values(), 'minutes', 'settings'], ['---'] * (3 + len(splits))]
  for name, result in found.items():
    run = series.runs[name]
    settings = [word.removeprefix('--config.') for word in run['settings']]
    if 'after' in run:
      settings.append(f'from round {run["from_round"]} of `{run["after"]}`')
    accuracies = (_text(result.get(f'{split}_accuracy')) for split in splits)
    minutes = f'{result["seconds"] / 60:.1f}'
    rows.append([run['title'], *accuracies, minutes, ', '.join(settings) or 'none'])
  lines = ''.join(f'| {" | ".join(row)} |\n' for row in rows)
  text = f'{lines}{note}\nAll with `python launch/main.py {" ".join(series.spec["base"])}`.\n'
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
