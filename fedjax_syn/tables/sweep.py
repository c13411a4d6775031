"""A search over settings: each cell of a grid is a run; held-out training rows choose one."""

import gc
import itertools
import json
import math
import os
import pathlib
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import ml_collections

from fedjax_syn import config as config_lib
from fedjax_syn.config import identity
from fedjax_syn.core import exit_status, paths, stopping, texts
from fedjax_syn.data import datasets
from fedjax_syn.runs import default_folder, lock, stored_files, work_folder
from fedjax_syn.tables.work_list import work_through

GLOBAL, CLIENTS = 'global', 'clients'  # whose model is to be good
SELECTED_BY = {
  GLOBAL: ('validation_accuracy', 'mean_last_5'),
  CLIENTS: ('personal', 'validation/accuracy'),
}
"""In summary.json; its mean over seeds decides."""
CONDITION = ' if '
DRAWN = re.compile(r'(uniform|log)\(([^,()]+),([^,()]+)\)')
NUMBER = (float, None)
RECORD = {'folder': str, 'hash': str, 'status': int, 'mean': NUMBER, 'std': NUMBER, 'values': {}}
"""The shape of a record in sweep.json."""
OUTCOMES = {exit_status.REFUSED: 'refused', exit_status.INTERRUPTED: 'interrupted'}
Values = dict[str, str]
"""Settings as written on the command line."""
Record = dict[str, Any]


class Cell(NamedTuple):
  """One run of a sweep."""

  values: Values
  config: ml_collections.ConfigDict
  hash: str
  folder: pathlib.Path


def read_grid(items: Sequence[str]) -> dict[str, list[str]]:
  """Reads ['fedprox.mu=0.001,0.01', ...] as {'fedprox.mu': ['0.001', '0.01'], ...}.

  A condition stays with the key: 'client.momentum=0,0.9 if client.optimizer=sgd' is
  {'client.momentum if client.optimizer=sgd': ['0', '0.9']}.

  Raises:
    ValueError: if there is no grid, a key comes twice or has no values or repeated ones, or a
      condition is on no key before it.
  """
  grid: dict[str, list[str]] = {}
  for item in items:
    setting, only, condition = item.partition(CONDITION)
    key, _, text = setting.partition('=')
    before = {name.partition(CONDITION)[0] for name in grid}
    if only and condition.strip().partition('=')[0] not in before:
      raise ValueError(f'--grid {item}: the condition must be on a --grid before it, as key=value')
    key += only and f'{CONDITION}{condition.strip()}'
    values = [value.strip() for value in re.split(r',(?![^(]*\))', text)]
    if not text or len(set(values)) < len(values) or key in grid:
      raise ValueError(
        f'--grid {item}: must be key=value,value with distinct values, each key once'
      )
    grid[key] = values
  if not grid:
    raise ValueError('--grid: nothing to try; write --grid client.lr=0.001,0.01')
  return grid


def choose(grid: Mapping[str, Sequence[str]], budget: int, seed: int) -> list[Values]:
  """Returns the cells of a grid in order, at most `budget` of them unless it is 0.

  A random subset; that of a larger budget contains that of a smaller one. With 'uniform(a,b)' or
  'log(a,b)' among the values, `budget` cells are drawn, and values of other keys at random.

  Raises:
    ValueError: if something is to be drawn and there is no budget, or its bounds are wrong.
  """
  if any(DRAWN.fullmatch(value) for values in grid.values() for value in values):
    return _drawn(grid, budget, seed)
  every = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
  every = _distinct(map(_settled, every))
  if not 0 < budget < len(every):
    return every
  order = random.Random(seed).sample(range(len(every)), len(every))
  return [every[i] for i in sorted(order[:budget])]


def _settled(values: Values) -> Values:
  """Returns the settings whose conditions the others meet, without the conditions."""
  out: Values = {}
  for name, value in values.items():
    key, only, condition = name.partition(CONDITION)
    wanted, _, text = condition.partition('=')
    if not only or out.get(wanted) == text:
      out[key] = value
  return out


def _distinct(cells: Iterable[Values]) -> list[Values]:
  return list({tuple(cell.items()): cell for cell in cells}.values())


def _drawn(grid: Mapping[str, Sequence[str]], budget: int, seed: int) -> list[Values]:
  """Draws cells of a grid with distributions, one after the other."""
  if not budget:
    raise ValueError('--budget: says how many cells are drawn where a --grid has uniform or log')
  generator = random.Random(seed)

  def one(value):
    match = DRAWN.fullmatch(value)
    if not match:
      return value
    try:
      low, high = float(match[2]), float(match[3])
    except ValueError:
      low = high = math.nan
    if not (low < high and (match[1] == 'uniform' or low > 0)):
      raise ValueError(f'--grid {value}: must be uniform(a,b) or log(a,b), a < b, of log a > 0')
    if match[1] == 'uniform':
      return f'{generator.uniform(low, high):.4g}'
    return f'{math.exp(generator.uniform(math.log(low), math.log(high))):.4g}'

  draw = lambda: _settled({k: one(generator.choice(list(v))) for k, v in grid.items()})
  return _distinct(draw() for _ in range(budget))


def draw_scores(records: Sequence[Record], path: pathlib.Path) -> None:
  """Draws the accuracy on held-out rows against each setting, a point for each cell.

  Args:
    records: of the cells.
    path: of the PNG; there is none without a score.
  """
  scored = [r for r in records if r['mean'] is not None]
  keys = dict.fromkeys(key for r in scored for key in r['values'])
  if not keys:
    return
  from fedjax_syn.plotting import canvas  # matplotlib is slow to import

  figure, panels = canvas.begin(3.5 * min(len(keys), 3), 3.2 * -(-len(keys) // 3), len(keys), 3)
  for axes, key in zip(panels, keys, strict=True):
    having = [r for r in scored if key in r['values']]
    texts_of = [r['values'][key] for r in having]
    try:
      places: Any = [float(text) for text in texts_of]
      if min(places) > 0 and max(places) >= 10 * min(places):
        axes.set_xscale('log')
    except ValueError:
      places = texts_of
    scores = [100 * r['mean'] for r in having]
    spread = [100 * (r['std'] or 0) for r in having]
    axes.errorbar(places, scores, spread, fmt='o', markersize=4, elinewidth=1)
    axes.set(xlabel=key, ylabel='validation accuracy (%)')
  canvas.finish(figure, path)


def has_validation(config: ml_collections.ConfigDict | config_lib.Resolved) -> bool:
  """Returns whether a run has rows to select by."""
  data = config.data
  return bool(data.validation) or datasets.brings_validation(data.name, data.dir)


def make_cell(
  config: ml_collections.ConfigDict, values: Mapping[str, str], workdir: pathlib.Path
) -> Cell:
  """Applies the values to a copy of the config and checks it.

  Raises:
    ValueError: if the config is refused, or holds out nothing to select by.
  """
  config = config.copy_and_resolve_references().lock()
  for key, text in values.items():
    config_lib.override(config, key, text)
  if not has_validation(config_lib.check(config)):
    raise ValueError(
      'data.validation=0.0: a sweep selects by validation accuracy; give it a share above 0'
    )
  name = ','.join(f'{key}={text}' for key, text in values.items()).replace(os.sep, '_')
  return Cell(dict(values), config, identity.hash_here(config), workdir / name)


def begun_in(cells: Sequence[Cell], folders: Sequence[pathlib.Path]) -> pathlib.Path | None:
  """Returns a sweep's folder under another hash, as of an older version, that has a cell's run."""
  if any(cell.folder.parent.exists() for cell in cells):
    return None
  for cell in cells:
    runs = [folder / cell.folder.name for folder in folders]
    if folder := default_folder.folder_of(config_lib.check(cell.config), runs):
      return folder.parent
  return None


def _run(cell: Cell, config_name: str, select: str) -> Record | None:
  """Runs one cell; returns its record, None if another process works in its folder."""
  from fedjax_syn.runs import experiment  # only now, so that refusals are quick

  if lock.owner(cell.folder):
    return None
  status = experiment.run_experiment(cell.config, cell.folder, config_name=config_name)
  gc.collect()  # the arrays of its engine, before those of the next
  if status == exit_status.REFUSED and lock.owner(cell.folder):  # it came meanwhile
    return None
  score: Any = work_folder.summary(cell.folder) if status == exit_status.FINISHED else None
  for name in SELECTED_BY[select] if score else ():
    score = score.get(name, {})
  score = score or {'mean': None, 'std': None}
  record = {'values': cell.values, 'folder': cell.folder.name, 'hash': cell.hash}
  return record | {'status': status, 'mean': score['mean'], 'std': score['std']}


def _earlier(path: pathlib.Path, select: str) -> list[Record]:
  """Reads the records of an earlier call that selected alike.

  Args:
    path: of sweep.json.
    select: see `sweep`.

  Returns:
    None of a damaged file, whose cells are opened again.
  """
  try:
    earlier = stored_files.read_json(path, {'cells': [RECORD]}) or {'cells': []}
    alike = earlier.get('selected_by', [*SELECTED_BY[GLOBAL]]) == [*SELECTED_BY[select]]
    return earlier['cells'] if alike else []
  except stored_files.DamagedError as error:
    print(f'WARNING: {error}; its cells are opened again', flush=True)
    return []


def sweep(
  cells: Sequence[Cell], workdir: pathlib.Path, config_name: str, select: str = GLOBAL
) -> list[Record]:
  """Runs the cells that are not finished yet and keeps W/sweep.json up to date.

  A cell that is refused by its data or diverges does not end the sweep; one that another process
  runs is waited for.

  Args:
    cells: checked cells.
    workdir: W.
    config_name: stem of the config file.
    select: whose accuracy on held-out rows decides: of the GLOBAL model, or of the CLIENTS' own
      models, which `personal_every` measures.

  Returns:
    A record per cell so far, in the order of the cells: values, folder, hash, status, mean, std. If
    the sweep was interrupted, one has status 75, or some cells have no record.
  """
  path = workdir / 'sweep.json'
  over = (exit_status.FINISHED, exit_status.DIVERGED)
  done = {(r['folder'], r['hash']): r for r in _earlier(path, select) if r['status'] in over}
  records: dict[int, Record] = {}  # by number of the cell
  in_order = lambda: [records[number] for number in sorted(records)]

  def attempt(numbered: tuple[int, Cell]) -> bool | None:
    if stop:
      return None
    number, cell = numbered
    record = done.get((cell.folder.name, cell.hash))
    note = ': finished before' if record else ''
    print(f'[{number}/{len(cells)}] {cell.folder.name}{note}', flush=True)
    record = record or _run(cell, config_name, select)
    if record is None:
      return False
    records[number] = record
    summary = {'selected_by': SELECTED_BY[select], 'best': best(in_order()), 'cells': in_order()}
    write(path, json.dumps(stored_files.with_digest(summary), indent=2))
    ends = record['status'] in (exit_status.INTERRUPTED, exit_status.DISK_FULL)
    return None if ends else True

  folders = lambda numbered: {numbered[1].folder.name: numbered[1].folder}
  with stopping.stoppable() as stop:
    say = lambda text: print(text, flush=True)
    work_through(list(enumerate(cells, 1)), attempt, folders, stop, say)
  return in_order()


def best(records: Sequence[Record]) -> Record | None:
  """Returns the record with the highest mean validation accuracy, the first of equals, or None."""
  scored = [r for r in records if r['mean'] is not None]
  return max(scored, key=lambda r: r['mean'], default=None)


def table(records: Sequence[Record]) -> str:
  """Returns the records as a Markdown table, best first."""
  keys = list(dict.fromkeys(key for r in records for key in r['values']))
  ordered = sorted(records, key=lambda r: -1.0 if r['mean'] is None else r['mean'], reverse=True)
  lines = ['| ' + ' | '.join([*keys, 'validation accuracy']) + ' |', '|---' * (len(keys) + 1) + '|']
  for r in ordered:
    score = OUTCOMES.get(r['status'], 'diverged')
    if r['mean'] is not None:
      std = '' if r['std'] is None else f' ± {100 * r["std"]:.2f}'
      score = f'{100 * r["mean"]:.2f}{std}'
    lines.append(
      '| ' + ' | '.join([*(texts.cell(r['values'].get(key, '')) for key in keys), score]) + ' |'
    )
  return '\n'.join(lines)


def write(path: pathlib.Path, text: str) -> None:
  """Replaces a file in one step, in a folder that is created."""
  path.parent.mkdir(parents=True, exist_ok=True)
  paths.write_whole(path, f'{text}\n'.encode())
