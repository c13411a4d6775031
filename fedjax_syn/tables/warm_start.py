"""Runs that begin where another run's program changes: rounds that several cells share run once."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from fedjax_syn import algorithms
from fedjax_syn import config as config_lib
from fedjax_syn.runs import metrics, work_folder
from fedjax_syn.tables import spec
from fedjax_syn.tables.spec import Column, Entry, Row


def find(
  entry: Entry, row: Row, column: Column, entries: Mapping[str, Entry]
) -> tuple[Entry, Row, Column] | None:
  """Returns the cell in whose run a cell begins, or None if it begins by itself.

  Args:
    entry: the cell's table.
    row: its row.
    column: its column; the other cell's column has the runs of the same name.
    entries: all tables by name, of which one may have the other cell.

  Raises:
    ValueError: if there is no such row or column.
  """
  if not row.warm_start_from:
    return None
  table, name = spec.owner_of(entry, column)
  other, _, wanted = row.warm_start_from.rpartition(':')
  table = other or table
  # A row of the same table comes first: it may have runs of its own in the other table's folder.
  beside = table == entry.name or (not other and wanted in [r.name for r in entry.rows])
  source = entry if beside else spec.find(entries, table)
  (first,) = spec.select(source.rows, [wanted], f'{table}, row')
  same = [c for c in source.columns if spec.owner_of(source, c) == (table, name)]
  if not same:
    raise ValueError(f'{table}: no column has the runs {name}, in which {row.name} begins')
  return source, first, same[0]


def checkpoint(
  first: config_lib.Resolved,
  first_folder: pathlib.Path,
  own: config_lib.Resolved,
  own_folder: pathlib.Path,
  workdir: pathlib.Path,
) -> str:
  """Returns a run's `start_from`.

  Args:
    first: the config of the run in which it begins. The checkpoint is that at the first round where
      its program changes and the run's own does not: there the two part. Without one it is that at
      the end of the first phase.
    first_folder: of that run.
    own: the run's own config.
    own_folder: of the run.
    workdir: of both; a run that was copied here with the first one keeps what its config says.
  """
  there, here = (algorithms.create(c.algorithm, c).stops for c in (first, own))
  if not there:
    raise ValueError(f'{first.algorithm}: its rounds have no stop; no run can begin there')
  path = first_folder / 'checkpoints' / str(min({*there} - {*here}, default=there[0]))
  tail = path.relative_to(workdir).parts
  stored = (work_folder.config(own_folder) or {}).get('config', {})
  written = stored.get('start_from', '')
  return written if pathlib.Path(written).parts[-len(tail) :] == tail else str(path)


def is_there(start_from: str, seed: int) -> bool:
  """Returns whether a run can begin."""
  return (pathlib.Path(start_from) / f'seed_{seed}').is_dir()


def earlier_lines(
  first_folder: pathlib.Path, lines: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
  """Returns the first run's metrics lines of the rounds before a run's own lines."""
  begin = min((line['round'] for line in lines), default=0)
  return [line for line in metrics.read(first_folder / 'metrics.jsonl') if line['round'] < begin]
