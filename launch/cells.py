"""Runs the missing cells of a table, one run folder per cell and seed, and reads what is there."""

import contextlib
import dataclasses
import functools
import gc
import io
import math
import os
import pathlib
import signal
import textwrap
import threading
import time
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fedjax_syn import config as config_lib
from fedjax_syn import metrics, same_run
from fedjax_syn import workdir as workdir_lib
from fedjax_syn.schema import flatten
from launch import main as launcher
from launch import origins, spec
from launch.spec import Column, Entry, Result, Row
from launch.watch import Watch

REFUSED, DIVERGED, INTERRUPTED = 2, 3, 75


def _file(name: str) -> str:
  return str(launcher.ROOT / 'configs' / f'{name}.py')


@functools.cache  # a table has some hundred cells, and building a ConfigDict takes milliseconds
def _fields(name: str) -> Mapping[str, Any]:
  """The fields of a config file by dotted key."""
  return types.MappingProxyType(flatten(config_lib.to_dict(launcher.load_config(_file(name)))))


class Run(NamedTuple):
  """One seed of one cell."""

  row: Row
  column: Column
  seed: int
  config: config_lib.Resolved
  folder: pathlib.Path
  origin: 'Run | None' = None  # the run in which this one begins

  @property
  def label(self) -> str:
    """For progress and messages."""
    return f'{self.row.name}, {self.column.name}, seed {self.seed}'

  @property
  def key(self) -> tuple[str, str, int]:
    """Row, column and seed by name."""
    return (self.row.name, self.column.name, self.seed)


class Table(NamedTuple):
  """An entry at a scale, in a work folder."""

  entry: Entry
  scale: spec.Scale
  workdir: pathlib.Path
  settings: tuple[str, ...] = ()  # '--config.key=value'

  def configure(self, row: Row, column: Column, seed: int, scale: str = '') -> config_lib.Resolved:
    """Returns a cell's checked config; `scale` is another scale than the table's.

    Raises:
      ValueError: if a setting is refused.
    """
    chosen = spec.settings_of(row, column, spec.SCALES[scale] if scale else self.scale)
    values = {**_fields(column.config), **chosen, 'seeds': (seed,)}
    if not self.settings:
      return config_lib.check(values)
    config = launcher.load_config(_file(column.config))
    config.update_from_flattened_dict(values)
    launcher.apply(config, self.settings)
    return config_lib.check(config)

  def run(self, row: Row, column: Column, seed: int) -> Run:
    """Returns one seed of a cell; its folder may hold a run already.

    Raises:
      ValueError: if its settings are refused.
    """
    folder = self.workdir / spec.folder_of(self.entry, row, column) / f'seed{seed}'
    config = self.configure(row, column, seed)
    if (cell := origins.find(self.entry, row, column)) is None:
      return Run(row, column, seed, config, folder)
    origin = self._replace(entry=cell[0]).run(*cell[1:], seed)
    start = origins.checkpoint(origin.config, origin.folder, config, folder, self.workdir)
    config = config_lib.check(dataclasses.replace(config, start_from=start))
    return Run(row, column, seed, config, folder, origin)

  def existing(self) -> list[Run]:
    """Returns the runs of this table of which there is a folder, begun by this call or an earlier one."""
    found = []
    for row in self.entry.rows:
      for column in self.entry.columns:
        folder = self.workdir / spec.folder_of(self.entry, row, column)
        seeds = [p.parent.name.removeprefix('seed') for p in folder.glob('seed*/config.json')]
        found += [self.run(row, column, int(s)) for s in sorted(seeds, key=int)]
    return found


def plan(table: Table, rows: Sequence[Row], columns: Sequence[Column], seeds: int) -> list[Run]:
  """Returns the runs of a selection, in order: a seed of the whole selection after the other.

  Args:
    table: the table.
    rows: which rows.
    columns: which columns, the first one first.
    seeds: seeds 0..seeds-1.

  Raises:
    ValueError: if settings are refused, or a folder was started under other settings.
  """
  runs = [table.run(r, c, seed) for seed in range(seeds) for c in columns for r in rows]
  for run in runs:
    for part in filter(None, (run.origin, run)):
      workdir_lib.check_config(part.folder, part.config)
  return runs


def read(run: Run, without_phase: frozenset[str], probe: bool = True) -> Result:
  """Returns what a run's folder comes to; a result that shows no trace of its method is a failure.

  Args:
    run: the run.
    without_phase: parts of an algorithm's word that leave no trace.
    probe: see whether another process is at work in a folder without a result.

  Returns:
    Its state, and where there is one its result.
  """
  described = workdir_lib.read_json(run.folder / 'config.json') or {}
  if described and same_run.diff(described['config'], run.config):
    return Result('failed', 'was run under other settings')
  summary = workdir_lib.read_json(run.folder / 'summary.json')
  if summary is None:
    return Result('elsewhere' if probe and locked(run.folder) else 'missing')
  lines = metrics.read(run.folder / 'metrics.jsonl')
  state = summary['status'][str(run.seed)]['status']
  absent = untraced(run.row.algorithm, lines, without_phase) if state == 'finished' else []
  if absent:
    return Result('failed', f'no trace of {", ".join(absent)} in its metrics', summary, lines)
  if run.origin:
    lines = origins.earlier(run.origin.folder, lines) + lines
  return Result(state, '', summary, lines, described, run.folder)


def untraced(word: str, lines: Sequence[Mapping], without_phase: frozenset[str]) -> list[str]:
  """Returns the parts of an algorithm's word that logged no finite number other than 0 under `<part>/`."""
  parts = [part for part in word.split('+') if part not in without_phase]
  left_trace = lambda part: any(
    key.startswith(f'{part}/') and value and math.isfinite(value)
    for line in lines
    for key, value in line.items()
  )
  return [part for part in parts if not left_trace(part)]


def locked(folder: pathlib.Path) -> bool:
  """Says whether another process works in a folder."""
  if not folder.is_dir():
    return False
  try:
    with workdir_lib.lock(folder):
      return False
  except workdir_lib.InUseError:
    return True


def expected_seconds(run: Run, known: Mapping[tuple[str, str, int], float]) -> float:
  """Returns how long a run may take: as the longest other seed of its cell, else of its row, else of the table.

  Args:
    run: the run.
    known: seconds of finished runs by row, column and seed.

  Returns:
    Seconds; 0 if nothing is known yet.
  """
  row, column, _ = run.key
  if run.origin and not origins.is_there(run.config.start_from, run.seed):
    return expected_seconds(run.origin, known) + expected_seconds(run._replace(origin=None), known)
  same_cell = [s for (r, c, _), s in known.items() if (r, c) == (row, column)]
  same_row = [s for (r, _, _), s in known.items() if r == row]
  return max(same_cell or same_row or list(known.values()), default=0.0)


class Done(NamedTuple):
  """What a call came to."""

  failures: dict[tuple[str, str, int], Result]  # of this call, 'failed' or 'elsewhere'
  stopped: str  # why it ended early; '' if it did not
  left: int  # runs that were not begun or not ended


def run_missing(
  runs: Sequence[Run],
  execute: Callable[..., int],
  watch: Watch,
  without_phase: frozenset[str],
  known: dict[tuple[str, str, int], float],
  budget: float = math.inf,
) -> Done:
  """Runs what is not finished yet; a run that fails or diverges does not end the others.

  Args:
    runs: checked runs.
    execute: `fedjax_syn.experiment.run_experiment`.
    watch: told how far it is.
    without_phase: parts of an algorithm's word that leave no trace.
    known: seconds of finished runs; it grows.
    budget: seconds. What is not expected to end in time is not begun, and what is still running then is
      interrupted and saved.

  Returns:
    What it came to.
  """
  failures: dict[tuple[str, str, int], Result] = {}
  tried: dict[pathlib.Path, Result] = {}  # columns may show the same runs
  deadline = time.monotonic() + budget
  late = 0
  with workdir_lib.stoppable() as stop, alarm(budget):
    for number, run in enumerate(runs):
      result = tried.get(run.folder) or read(run, without_phase, probe=False)
      begun = result.state == 'missing'
      if begun:
        if stop:
          return Done(failures, stop.signal, len(runs) - number + late)
        if budget <= 0 or time.monotonic() + expected_seconds(run, known) > deadline:
          late += 1
          watch.skip()
          continue
        result = attempt_with_origin(run, execute, watch, without_phase)
        if result:
          tried[run.folder] = result
      if result is None:
        why = 'the budget is used up' if time.monotonic() >= deadline else 'interrupted'
        return Done(failures, why, len(runs) - number + late)
      if result.summary:
        known[run.key] = result.summary['seconds']['total']
      if result.state in ('failed', 'elsewhere'):
        failures[run.key] = result
      if begun or result.state == 'failed':
        watch.done(run.label, brief(result))
      else:
        watch.skip()
  return Done(failures, 'the budget is used up' if late else '', late)


def attempt_with_origin(
  run: Run, execute: Callable[..., int], watch: Watch, without_phase: frozenset[str]
) -> Result | None:
  """Runs one run, and before it the one in which it begins, if that has not come so far; see `attempt`."""

  def go(part):
    watch.start(part.label, part.config.rounds)
    result = attempt(part, execute, watch, without_phase)
    gc.collect()  # the arrays of its engine, before those of the next
    return result

  there = lambda: run.origin is None or origins.is_there(run.config.start_from, run.seed)
  if not there():
    first = go(run.origin)
    if first is None:
      return None
    watch.say(f'{run.origin.label}, in which {run.label} begins: {brief(first)}')
    if not there():
      reason = f'{run.origin.label}, in which it begins: {brief(first)}'
      return Result('elsewhere') if first.state == 'elsewhere' else Result('failed', reason)
  return go(run)


def attempt(
  run: Run, execute: Callable[..., int], watch: Watch, without_phase: frozenset[str]
) -> Result | None:
  """Runs one run; returns what it came to, None if it was interrupted."""
  said = io.StringIO()  # a refusal is a line on stderr; here it belongs into the table
  try:
    with contextlib.redirect_stderr(said):
      status = execute(run.config, run.folder, config_name=run.column.config, show=watch)
  except Exception as error:  # whatever goes wrong in one cell, the others go on
    return Result('failed', shorten(error))
  *others, reason = said.getvalue().strip().splitlines() or ['']
  for line in others if status == REFUSED else [*others, reason]:
    if line:
      watch.say(line)
  if status == INTERRUPTED:
    return None
  result = read(run, without_phase)
  if result.state == 'missing':  # refused
    return Result('failed', reason or f'exit status {status}')
  return result


def look_after(runs: Sequence[Run], entry: Entry, scale: spec.Scale, results: dict) -> None:
  """Computes what an entry needs of finished runs besides their metrics; what goes wrong is the cell's failure.

  Args:
    runs: all runs of the table.
    entry: says what.
    scale: how much.
    results: what the runs came to, by row, column and seed; failures are put into it.
  """
  finished = [run for run in runs if results[run.key].state == 'finished']
  for run in finished if entry.after else ():
    try:
      entry.after(run.folder, run.seed, scale)
    except workdir_lib.InUseError:
      continue  # the other process does the same
    except Exception as error:
      results[run.key] = Result('failed', shorten(error), results[run.key].summary)


def shorten(error: Exception) -> str:
  """Returns an error in one line of moderate length."""
  return textwrap.shorten(f'{type(error).__name__}: {error}', 160)


def brief(result: Result) -> str:
  """Returns a run's outcome in a few words."""
  if result.state != 'finished':
    words = {'elsewhere': 'left to the process that is at work there'}
    return words.get(result.state, result.state) + (f': {result.reason}' if result.reason else '')
  accuracy = result.summary['test_accuracy']['mean_last_5']['mean']
  return f'{100 * accuracy:.2f} in {result.summary["seconds"]["total"]:.1f} s'


@contextlib.contextmanager
def alarm(seconds: float) -> Iterator[None]:
  """Asks this process to stop, as a SIGTERM does, after some time; runs save themselves then."""
  if not 0 < seconds < threading.TIMEOUT_MAX:
    yield
    return
  timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGTERM))
  timer.daemon = True
  timer.start()
  try:
    yield
  finally:
    timer.cancel()


def environment(results: Sequence[Result]) -> dict[str, Any]:
  """Returns what the results were made with: each distinct set of machine and versions once."""
  seen = {'machines': [], 'versions': []}
  for result in results:
    host = result.described.get('host', {})
    devices = result.described.get('devices', [])
    machine = f'{len(devices)} x {", ".join(sorted(set(devices)))}; {host.get("machine")}, {host.get("cores")} cores'
    versions = {**result.described.get('versions', {}), 'commit': result.described.get('commit')}
    for name, value in (('machines', machine), ('versions', versions)):
      if result.described and value not in seen[name]:
        seen[name].append(value)
  return seen
