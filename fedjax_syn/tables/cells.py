"""The cells of a table, one run folder per cell and seed: their configs, and what their folders hold."""

import dataclasses
import functools
import math
import pathlib
import types
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from fedjax_syn import config as config_lib
from fedjax_syn.config import files, identity
from fedjax_syn.config.schema import flatten
from fedjax_syn.core import paths
from fedjax_syn.runs import lock, metrics, resume, stored_files, work_folder
from fedjax_syn.tables import spec, warm_start
from fedjax_syn.tables.spec import Column, Entry, Result, Row


def _file(name: str) -> str:
  return str(paths.CONFIGS / f'{name}.py')


@functools.cache  # a table has some hundred cells, and building a ConfigDict takes milliseconds
def _fields(name: str) -> Mapping[str, Any]:
  """The fields of a config file by dotted key."""
  return types.MappingProxyType(flatten(config_lib.to_dict(files.load_config(_file(name)))))


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
  entries: Mapping[str, Entry] = MappingProxyType(
    {}
  )  # all tables by name: an origin may lie in another

  def configure(self, row: Row, column: Column, seed: int, scale: str = '') -> config_lib.Resolved:
    """Returns a cell's checked config; `scale` is another scale than the table's.

    Raises:
      ValueError: if a setting is refused.
    """
    chosen = spec.settings_of(row, column, spec.SCALES[scale] if scale else self.scale)
    values = {**_fields(column.config), **chosen, 'seeds': (seed,)}
    if not self.settings:
      return config_lib.check(values)
    config = files.load_config(_file(column.config))
    config.update_from_flattened_dict(values)
    files.apply(config, self.settings)
    return config_lib.check(config)

  def run(self, row: Row, column: Column, seed: int) -> Run:
    """Returns one seed of a cell; its folder may hold a run already.

    Raises:
      ValueError: if its settings are refused.
    """
    folder = self.workdir / spec.folder_of(self.entry, row, column) / f'seed{seed}'
    config = self.configure(row, column, seed)
    if (cell := warm_start.find(self.entry, row, column, self.entries)) is None:
      return Run(row, column, seed, config, folder)
    origin = self._replace(entry=cell[0]).run(*cell[1:], seed)
    start = warm_start.checkpoint(origin.config, origin.folder, config, folder, self.workdir)
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
      resume.check_config(part.folder, part.config)
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
  try:
    described = work_folder.config(run.folder) or {}
    summary = work_folder.summary(run.folder, [run.seed])
    lines = metrics.read(run.folder / 'metrics.jsonl') if summary else []
    before = warm_start.earlier(run.origin.folder, lines) if summary and run.origin else []
  except stored_files.DamagedError as error:
    return Result('failed' if probe else 'missing', str(error))  # whoever runs it makes it again
  if described and resume.has_begun(run.folder):
    changes = identity.diff(described['config'], run.config)
    more = described['config']['rounds'] < run.config.rounds  # it goes on
    if [line for line in changes if not (more and line.startswith('rounds:'))]:
      return Result('failed', 'was run under other settings')
  if summary and summary.get('rounds', run.config.rounds) != run.config.rounds:
    summary = None
  if summary is None:
    return Result('elsewhere' if probe and locked(run.folder) else 'missing')
  state = summary['status'][str(run.seed)]['status']
  absent = untraced(run.row.algorithm, lines, without_phase) if state == 'finished' else []
  if absent:
    return Result('failed', f'no trace of {", ".join(absent)} in its metrics', summary, lines)
  return Result(state, '', summary, before + lines, described, run.folder)


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
  return bool(lock.owner(folder))


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
