"""The cells of a table, a run folder for each cell and seed: their configs and their results."""

import dataclasses
import functools
import math
import pathlib
import types
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from fedjax_syn import config as config_lib
from fedjax_syn.config import files, identity, parsing
from fedjax_syn.config.schema import SECTIONS, flatten
from fedjax_syn.core import paths
from fedjax_syn.runs import lock, metrics, resume, stored_files, work_folder
from fedjax_syn.tables import spec, warm_start
from fedjax_syn.tables.spec import Column, Entry, Result, Row


def _file(name: str) -> str:
  return str(paths.CONFIGS / f'{name}.py')


@functools.cache  # a table has some hundred cells, and building a ConfigDict takes milliseconds
def _fields(name: str) -> Mapping[str, Any]:
  """The fields of a config file by dotted key, without defaults of methods, which need no check."""
  known = parsing.leaves()
  fields = flatten(config_lib.to_dict(files.load_config(_file(name))))
  of_method = lambda key: '.' in key and key.partition('.')[0] not in SECTIONS
  given = lambda key, value: key not in known or value != known[key].default
  kept = {k: v for k, v in fields.items() if not of_method(k) or given(k, v)}
  return types.MappingProxyType(kept)


class Run(NamedTuple):
  """One seed of one cell."""

  entry: Entry
  row: Row
  column: Column
  seed: int
  config: config_lib.Resolved
  folder: pathlib.Path
  warm_start_from: 'Run | None' = None
  """The run in which this one begins."""

  @property
  def label(self) -> str:
    """For progress and messages."""
    return f'{self.row.name}, {self.column.name}, seed {self.seed}'

  @property
  def key(self) -> spec.Key:
    """Row, column and seed by name."""
    return (self.row.name, self.column.name, self.seed)

  @property
  def parts(self) -> 'list[Run]':
    """This run, after the one in which it begins."""
    return [self.warm_start_from, self] if self.warm_start_from else [self]


class Table(NamedTuple):
  """An entry at a scale, in a work folder."""

  entry: Entry
  scale: spec.Scale
  workdir: pathlib.Path
  settings: tuple[str, ...] = ()
  """As written, '--config.key=value'."""
  entries: Mapping[str, Entry] = MappingProxyType({})
  """All tables by name: the run in which another one begins may be of another table."""

  def configure(self, row: Row, column: Column, seed: int, scale: str = '') -> config_lib.Resolved:
    """Returns a cell's checked config; `scale` is another scale than the table's.

    Raises:
      ValueError: if a setting is refused.
    """
    chosen = spec.settings_of(row, column, spec.SCALES[scale] if scale else self.scale)
    kept = {'keep_checkpoints': 'phases'}  # where other cells begin, and FedCOG's figures
    values = {**_fields(column.config), **kept, **chosen, 'seeds': (seed,)}
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
      return Run(self.entry, row, column, seed, config, folder)
    first = self._replace(entry=cell[0]).run(*cell[1:], seed)
    start = warm_start.checkpoint(first.config, first.folder, config, folder, self.workdir)
    config = config_lib.check(dataclasses.replace(config, start_from=start))
    return Run(self.entry, row, column, seed, config, folder, first)

  def existing(self) -> list[Run]:
    """Returns the runs of this table that have a folder, of this call or an earlier one."""
    runs = []
    for row in self.entry.rows:
      for column in self.entry.columns:
        folder = self.workdir / spec.folder_of(self.entry, row, column)
        seeds = [p.parent.name.removeprefix('seed') for p in folder.glob('seed*/config.json')]
        runs += [self.run(row, column, int(s)) for s in sorted(seeds, key=int)]
    return runs

  def plan(self, rows: Iterable[Row], columns: Iterable[Column], seeds: int) -> list[Run]:
    """Returns the runs of a selection, in order: a seed of the whole selection after the other.

    Args:
      rows: which rows.
      columns: which columns, the first one first.
      seeds: seeds 0..seeds-1.

    Raises:
      ValueError: if settings are refused, or a folder was started under other settings.
    """
    rows, columns = tuple(rows), tuple(columns)
    runs = [self.run(r, c, seed) for seed in range(seeds) for c in columns for r in rows]
    for part in (part for run in runs for part in run.parts):
      resume.check_config(part.folder, part.config)
    return runs


def read(run: Run, probe: bool = True) -> Result:
  """Returns the state of a run's folder, and where there is one its result.

  Args:
    run: the run.
    probe: whether to look for another process in a folder without a result.
  """
  try:
    described = work_folder.config(run.folder) or {}
    summary = work_folder.summary(run.folder, [run.seed])
    lines = metrics.read(run.folder / 'metrics.jsonl') if summary else []
    begun_in = run.warm_start_from if summary else None
    before = warm_start.earlier_lines(begun_in.folder, lines) if begun_in else []
  except stored_files.DamagedError as error:  # the next run of the cell replaces the file
    return Result('failed' if probe else 'missing', str(error))
  if described and resume.has_begun(run.folder):
    changes = identity.diff(described['config'], run.config)
    more = described['config']['rounds'] < run.config.rounds  # it continues
    if [line for line in changes if not (more and line.startswith('rounds:'))]:
      return Result('failed', 'was run under other settings')
  if summary is None or summary.get('rounds', run.config.rounds) != run.config.rounds:
    return Result('elsewhere' if probe and lock.owner(run.folder) else 'missing')
  ended = summary['status'][str(run.seed)]['status']
  state = 'finished' if ended == 'stopped' else ended  # early
  without_metrics = run.entry.without_metrics
  silent = unlogged(run.config.algorithm, lines, without_metrics) if state == 'finished' else []
  if silent:
    return Result('failed', f'no trace of {", ".join(silent)} in its metrics', summary, lines)
  return Result(state, '', summary, before + lines, described, run.folder)


def unlogged(
  algorithm: str, lines: Sequence[Mapping[str, Any]], without_metrics: frozenset[str]
) -> list[str]:
  """Returns the parts of an algorithm that logged no finite number but 0 under `<part>/`."""
  logged = {
    key.partition('/')[0]
    for line in lines
    for key, value in line.items()
    if '/' in key and value and math.isfinite(value)
  }
  return [p for p in algorithm.split('+') if p not in without_metrics and p not in logged]


def environment(results: Iterable[Result]) -> dict[str, list[Any]]:
  """Returns each distinct 'machines' and 'versions' of the results once."""
  out: dict[str, list[Any]] = {'machines': [], 'versions': []}
  for described in (result.described for result in results if result.described):
    host, devices = described.get('host', {}), described.get('devices', [])
    names = ', '.join(sorted(set(devices)))
    machine = f'{len(devices)} x {names}; {host.get("machine")}, {host.get("cores")} cores'
    versions = {**described.get('versions', {}), 'commit': described.get('commit')}
    for name, value in (('machines', machine), ('versions', versions)):
      if value not in out[name]:
        out[name].append(value)
  return out
