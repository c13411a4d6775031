"""The cells of a series of experiments: which there are, their commands, and what is finished."""

import itertools
import json
import pathlib
import tomllib
from collections.abc import Iterator
from typing import Any, NamedTuple

ROOT = pathlib.Path(__file__).parents[1]
Json = dict[str, Any]


class Cell(NamedTuple):
  """One sweep or one run."""

  method: str  # or the name of a run
  value: str
  kind: str  # 'tune' or 'test', or 'run' of `runs`

  @property
  def name(self) -> str:
    """As its file is called."""
    return f'{self.method}.run' if self.kind == 'run' else f'{self.method}@{self.value}.{self.kind}'


class Series(NamedTuple):
  """A folder of results and what its series.toml says."""

  folder: pathlib.Path
  spec: Json

  def cells(self) -> Iterator[Cell]:
    """All cells, in the order in which they are run: a sweep, then its test."""
    if 'runs' in self.spec:
      return (Cell(name, '', 'run') for name in self.spec['runs'])
    pairs = itertools.product(self.spec['values'], self.spec['methods'])
    kinds = ('tune', 'test') if 'tune' in self.spec else ('test',)
    return (Cell(method, value, kind) for value, method in pairs for kind in kinds)

  def result(self, cell: Cell) -> Json | None:
    """Returns a finished cell's file, or None."""
    path = self.folder / f'{cell.name}.json'
    return json.loads(path.read_text()) if path.exists() else None

  def small(self, folder: pathlib.Path) -> 'Series':
    """Returns the series with the settings `smoke` after all others; its cells go to a folder."""
    words = self.spec['smoke']
    runs = {k: run | {'settings': [*run['settings'], *words]} for k, run in self.runs.items()}
    return Series(folder, self.spec | {'runs': runs})

  @property
  def runs(self) -> Json:
    """By name, the runs of a series that tunes nothing."""
    return self.spec.get('runs', {})

  def command(self, cell: Cell) -> list[str] | None:
    """Returns a cell's command line; None if another cell comes first and is not finished."""
    if cell.kind == 'run':
      run = self.spec['runs'][cell.method]
      words = ['python', 'launch/main.py', *self.spec['base'], *run['settings']]
      if first := run.get('after'):
        if self.result(Cell(first, '', 'run')) is None:
          return None
        folder = f'runs/series/{self.folder.resolve().name}/{first}.run'
        words.append(f'--config.start_from={folder}/checkpoints/{run["from_round"]}')
      return words
    method = self.spec['methods'][cell.method]
    own = [f'--config.algorithm={cell.method}', *method.get('settings', ())]
    own.append(f'--config.{self.spec["axis"]}={cell.value}')
    words = [*self.spec['base'], *own, *self.spec[cell.kind], *method.get(cell.kind, ())]
    if cell.kind == 'tune':
      grid = {key: text for key, text in method.items() if isinstance(text, str)}
      tries = [word for key, text in grid.items() for word in ('--grid', f'{key}={text}')]
      return ['python', 'launch/sweep.py', *words, *tries]
    if 'tune' not in self.spec:
      return ['python', 'launch/main.py', *words]
    tuned = self.result(cell._replace(kind='tune'))
    if tuned is None:
      return None
    chosen = [f'--config.{key}={text}' for key, text in best(tuned)['values'].items()]
    return ['python', 'launch/main.py', *words, *chosen]


def load(folder: pathlib.Path) -> Series:
  """Reads RESULTS/series.toml."""
  return Series(folder, tomllib.loads((folder / 'series.toml').read_text()))


def best(tuned: Json) -> Json:
  """Returns the cell of a sweep with the highest mean on held-out rows, the first of equals."""
  return max(tuned['cells'], key=lambda cell: cell['held_out'] or 0)
