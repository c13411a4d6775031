"""Tunes settings by accuracy on held-out training rows; test accuracy never selects.

  python launch/sweep.py --config=X --grid fedprox.mu=0.001,0.01 [--grid key=v,v] [--budget=N]
      [--workdir=W] [--config.key=value ...]

  --grid     values of one setting, separated by commas (not those within parentheses); repeat it for more
  --budget   at most so many cells of the grid, chosen at random by data.seed; without it all of them
  --workdir  each cell is a run in W/<key=value,...>; without it runs/sweep-<config>-<algorithm>-<hash>

If data.validation is 0, a tenth of the training rows is held out (FLAIR has validation rows of its own). The mean over seeds of the mean of
the last five evaluations decides. The same command goes on where it was interrupted. It leaves
W/sweep.json and W/sweep.md and prints the command that runs the chosen settings on all training rows. Sweeps at the
same time, in the same W, share the cells: each waits for those that another is at.
Exit status: 0 finished, 2 refused, 3 no cell has a result, 74 the disk is full, 75 interrupted and saved.
"""

import functools
import itertools
import json
import os
import pathlib
import random
import re
import shlex
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from absl import app, flags

from fedjax_syn.cli import flags as cli
from fedjax_syn.cli import train as launcher
from fedjax_syn.core import exit_status, paths, stopping, texts

GRID = flags.DEFINE_multi_string('grid', [], 'key=value,value')
BUDGET = flags.DEFINE_integer('budget', 0, 'at most so many cells; 0 is all', lower_bound=0)

VALIDATION = 0.1
SELECTED_BY = ('validation_accuracy', 'mean_last_5')  # in summary.json; its mean over seeds decides
POLL = 1.0  # seconds between two looks at what other processes are at


class Cell(NamedTuple):
  """One run of a sweep."""

  values: dict[str, str]  # the settings as written on the command line
  config: Any  # a locked ConfigDict
  hash: str
  folder: pathlib.Path


def read_grid(items: Sequence[str]) -> dict[str, list[str]]:
  """Reads ['fedprox.mu=0.001,0.01', ...] as {'fedprox.mu': ['0.001', '0.01'], ...}.

  Raises:
    ValueError: if there is no grid, a key comes twice or has no values or repeated ones.
  """
  grid: dict[str, list[str]] = {}
  for item in items:
    key, _, text = item.partition('=')
    values = [value.strip() for value in re.split(r',(?![^(]*\))', text)]
    if not text or len(set(values)) < len(values) or key in grid:
      raise ValueError(
        f'--grid {item}: must be key=value,value with distinct values, each key once'
      )
    grid[key] = values
  if not grid:
    raise ValueError('--grid: nothing to try; write --grid client.lr=0.001,0.01')
  return grid


def choose(grid: dict[str, list[str]], budget: int, seed: int) -> list[dict[str, str]]:
  """Returns the cells of a grid in order, at most `budget` of them: a random subset that grows with it."""
  every = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
  if not 0 < budget < len(every):
    return every
  order = random.Random(seed).sample(range(len(every)), len(every))
  return [every[i] for i in sorted(order[:budget])]


def make_cell(config: Any, values: dict[str, str], workdir: pathlib.Path) -> Cell:
  """Applies the values to a copy of the config and checks it.

  Raises:
    ValueError: if the config is refused, or holds out nothing to select by.
  """
  from fedjax_syn import config as config_lib
  from fedjax_syn.config import identity
  from fedjax_syn.data import datasets

  config = config.copy_and_resolve_references().lock()
  for key, text in values.items():
    config_lib.override(config, key, text)
  resolved = config_lib.check(config)
  if not resolved.data.validation and not datasets.brings_validation(
    resolved.data.name, resolved.data.dir
  ):
    raise ValueError(
      'data.validation=0.0: a sweep selects by validation accuracy; give it a share above 0'
    )
  name = ','.join(f'{key}={text}' for key, text in values.items()).replace(os.sep, '_')
  return Cell(values, config, identity.hash_here(config), workdir / name)


def begun_in(cells: Sequence[Cell], folders: Sequence[pathlib.Path]) -> pathlib.Path | None:
  """Finds a sweep's folder under another hash, of an older version for instance: it holds a run of one of the cells."""
  from fedjax_syn import config as config_lib
  from fedjax_syn.runs import default_folder

  if any(cell.folder.parent.exists() for cell in cells):
    return None
  for cell in cells:
    runs = [folder / cell.folder.name for folder in folders]
    if folder := default_folder.folder_of(config_lib.check(cell.config), runs):
      return folder.parent
  return None


def read_score(folder: pathlib.Path) -> tuple[float | None, float | None]:
  """Returns mean and standard deviation over seeds of the last five validation accuracies of a finished run."""
  from fedjax_syn.runs import work_folder

  value = work_folder.summary(folder)
  for name in SELECTED_BY:
    value = value[name]
  return value['mean'], value['std']


def run_cell(cell: Cell, run: Callable[..., int], config_name: str) -> dict[str, Any] | None:
  """Runs one cell; one that is refused by its data or that diverges does not end the sweep.

  Returns:
    Its record; None if another process is at work there.
  """
  from fedjax_syn.runs import lock

  if lock.owner(cell.folder):
    return None
  status = run(cell.config, cell.folder, config_name=config_name)
  if status == exit_status.REFUSED and lock.owner(cell.folder):  # it came in between
    return None
  mean, std = read_score(cell.folder) if status == 0 else (None, None)
  record = {'values': cell.values, 'folder': cell.folder.name, 'hash': cell.hash}
  return record | {'status': status, 'mean': mean, 'std': std}


def earlier(path: pathlib.Path) -> list[dict[str, Any]]:
  """Reads the records that an earlier call left in a sweep.json; none of a damaged one, whose cells are opened again."""
  from fedjax_syn.runs import stored_files

  number = (float, None)
  record = {'folder': str, 'hash': str, 'status': int, 'mean': number, 'std': number, 'values': {}}
  try:
    return (stored_files.read_json(path, {'cells': [record]}) or {'cells': []})['cells']
  except stored_files.DamagedError as error:
    print(f'WARNING: {error}; its cells are opened again', flush=True)
    return []


def sweep(
  cells: Sequence[Cell], workdir: pathlib.Path, run: Callable[..., int], config_name: str
) -> list[dict]:
  """Runs the cells that are not finished yet and keeps W/sweep.json up to date; what others are at is waited for.

  Args:
    cells: checked cells.
    workdir: W.
    run: `fedjax_syn.runs.experiment.run_experiment`.
    config_name: stem of the config file.

  Returns:
    A record per cell so far, in the order of the cells: values, folder, hash, status, mean, std. If the sweep was
    interrupted, one has status 75, or some cells have no record.
  """
  from fedjax_syn.runs import stored_files

  path = workdir / 'sweep.json'
  before = earlier(path)
  done = {(r['folder'], r['hash']): r for r in before if r['status'] in (0, exit_status.DIVERGED)}
  records: dict[int, dict] = {}  # by number of the cell
  in_order = lambda: [records[number] for number in sorted(records)]
  left = list(enumerate(cells, 1))
  with stopping.stoppable() as stop:
    while left:
      busy = []
      for number, cell in left:
        if stop:
          return in_order()
        record = done.get((cell.folder.name, cell.hash))
        print(
          f'[{number}/{len(cells)}] {cell.folder.name}' + (': finished before' if record else ''),
          flush=True,
        )
        record = record or run_cell(cell, run, config_name)
        if record is None:
          busy.append((number, cell))
          continue
        records[number] = record
        summary = {'selected_by': SELECTED_BY, 'best': best(in_order()), 'cells': in_order()}
        write(path, json.dumps(stored_files.with_digest(summary), indent=2))
        if record['status'] in (exit_status.INTERRUPTED, exit_status.DISK_FULL):
          return in_order()
      left = busy
      if left and not wait([cell.folder for _, cell in left], stop):
        break
  return in_order()


def wait(folders: Sequence[pathlib.Path], stop) -> bool:
  """Waits until another process is done with one of these cells.

  Args:
    folders: of cells that others are at.
    stop: ends the wait.

  Returns:
    Whether one is free; False if it was asked to stop.
  """
  from fedjax_syn.runs import lock

  owners = {folder.name: lock.owner(folder) for folder in folders}
  if not all(owners.values()):
    return True
  named = '; '.join(f'{name} ({owner})' for name, owner in owners.items())
  print(f'waiting for what others are at: {named}', flush=True)
  while not stop:
    if not all(map(lock.owner, folders)):
      return True
    time.sleep(POLL)
  return False


def best(records: Sequence[dict]) -> dict | None:
  """Returns the record with the highest mean validation accuracy, the first of equals; None without any."""
  scored = [r for r in records if r['mean'] is not None]
  return max(scored, key=lambda r: r['mean'], default=None)


def table(records: Sequence[dict]) -> str:
  """Returns the records as a Markdown table, best first."""
  keys = list(records[0]['values'])
  ordered = sorted(records, key=lambda r: -1.0 if r['mean'] is None else r['mean'], reverse=True)
  lines = ['| ' + ' | '.join([*keys, 'validation accuracy']) + ' |', '|---' * (len(keys) + 1) + '|']
  outcomes = {
    exit_status.REFUSED: 'refused',
    exit_status.DIVERGED: 'diverged',
    exit_status.INTERRUPTED: 'interrupted',
  }
  for r in ordered:
    std = '' if r['std'] is None else f' ± {100 * r["std"]:.2f}'
    score = (
      outcomes.get(r['status'], 'diverged') if r['mean'] is None else f'{100 * r["mean"]:.2f}{std}'
    )
    values = map(texts.cell, r['values'].values())
    lines.append('| ' + ' | '.join([*values, score]) + ' |')
  return '\n'.join(lines)


def command(config_path: str, settings: Sequence[str], values: dict[str, str]) -> str:
  """Returns the command line that runs the chosen values, on all training rows."""
  path = paths.given(config_path, '--config')
  path = (
    path.relative_to(paths.CONFIGS.parent) if path.is_relative_to(paths.CONFIGS.parent) else path
  )
  kept = [s for s in settings if not s.lstrip('-').startswith('config.data.validation=')]
  chosen = [f'--config.{key}={text}' for key, text in values.items()]
  words = [
    'python',
    'launch/main.py',
    f'--config={path}',
    *kept,
    *chosen,
    '--config.data.validation=0',
  ]
  return shlex.join(words)


def write(path: pathlib.Path, text: str) -> None:
  """Replaces a file in one step, so that an interrupted sweep leaves the old one or the new one."""
  path.parent.mkdir(parents=True, exist_ok=True)
  paths.write_whole(path, f'{text}\n'.encode())


def main(argv: list[str]) -> int:
  """Runs a sweep; returns the exit status."""
  with cli.refusals():
    if cli.LIST.value:
      launcher.print_list(cli.LIST.value, argv[1:])
      return 0
    from fedjax_syn import config as config_lib
    from fedjax_syn.cli import jax_setup
    from fedjax_syn.config import files
    from fedjax_syn.data import datasets
    from fedjax_syn.runs import default_folder

    grid = read_grid(GRID.value)
    config = files.load_config(cli.CONFIG.value, argv[1:])
    config_lib.check(config)
    config.compare = ''  # what is compared with has no part in the choice
    name = pathlib.Path(cli.CONFIG.value).stem
    default = default_folder.default_workdir(config, f'sweep-{name}')
    workdir = paths.given(cli.WORKDIR.value or default, '--workdir')
    before = [
      p for p in default.parent.glob(f'{default.name[:-8]}{default_folder.HASH}') if p != default
    ]
    if not config.data.validation and not datasets.brings_validation(
      config.data.name, config.data.dir
    ):
      config.data.validation = VALIDATION
      print(
        f'data.validation was 0: {VALIDATION:.0%} of the training rows are held out to select by'
      )
    chosen = choose(grid, BUDGET.value, config.data.seed)
    cells = [make_cell(config, values, workdir) for values in chosen]
    if not cli.WORKDIR.value and (other := begun_in(cells, before)):
      workdir = other
      cells = [make_cell(config, values, workdir) for values in chosen]
    default_folder.check_paths(cells[0].config, workdir, ('sweep.json', 'sweep.md'))
    total = len(choose(grid, 0, 0))
    if len(cells) < total:
      print(f'{len(cells)} of {total} cells, chosen at random by data.seed={config.data.seed}')
    jax_setup.prepare_jax(config.layout.devices)
  from fedjax_syn.runs import experiment  # only now, so that refusals are quick

  records = sweep(cells, workdir, experiment.run_experiment, name)
  statuses = {record['status'] for record in records}
  if exit_status.DISK_FULL in statuses:
    return exit_status.DISK_FULL
  interrupted = exit_status.INTERRUPTED in statuses or len(records) < len(cells)
  if not records:
    return exit_status.INTERRUPTED
  report = table(records)
  found = best(records)
  if found and not interrupted:
    report += f'\n\n{command(cli.CONFIG.value, argv[1:], found["values"])}'
  print(report)
  write(workdir / 'sweep.md', report)
  if interrupted:
    return exit_status.INTERRUPTED
  return 0 if found else exit_status.DIVERGED


def start(argv: list[str]) -> int:
  """Reads the flags and tunes; returns the exit status."""
  return app.run(main, argv, functools.partial(cli.parse, help_text=__doc__))
