"""Runs that begin where another run's program changes: the rounds that several cells share are run once."""

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
    column: its column; the origin's is the one whose runs are called the same.
    entries: all tables by name, where the origin may lie.

  Raises:
    ValueError: if there is no such row or column.
  """
  if not row.origin:
    return None
  table, name = spec.home_of(entry, column)
  other, _, wanted = row.origin.rpartition(':')
  table = other or table
  # A row of the same table comes first: it may have runs of its own in the other table's folder.
  beside = table == entry.name or (not other and wanted in [r.name for r in entry.rows])
  source = entry if beside else spec.find(entries, table)
  (first,) = spec.select(source.rows, [wanted], f'{table}, row')
  same = [c for c in source.columns if spec.home_of(source, c) == (table, name)]
  if not same:
    raise ValueError(f'{table}: no column has the runs {name}, in which {row.name} begins')
  return source, first, same[0]


def checkpoint(
  origin: config_lib.Resolved,
  folder: pathlib.Path,
  own: config_lib.Resolved,
  run: pathlib.Path,
  workdir: pathlib.Path,
) -> str:
  """Returns a run's `start_from`.

  Args:
    origin: of the run that it begins in. The checkpoint is that at the first round where its program changes and
      the run's own does not: there the two part. If there is none, that at the end of the first phase.
    folder: of that run.
    own: of the run itself.
    run: its folder.
    workdir: of both; a run that was made elsewhere and came here with its origin keeps what is written in it.
  """
  there, here = (algorithms.create(c.algorithm, c).phases for c in (origin, own))
  if not there:
    raise ValueError(f'{origin.algorithm}: its program never changes; no run can begin there')
  path = folder / 'checkpoints' / str(min({*there} - {*here}, default=there[0]))
  tail = path.relative_to(workdir).parts
  stored = (work_folder.config(run) or {}).get('config', {})
  written = stored.get('start_from', '')
  return written if pathlib.Path(written).parts[-len(tail) :] == tail else str(path)


def is_there(start_from: str, seed: int) -> bool:
  """Says whether a run can begin."""
  return (pathlib.Path(start_from) / f'seed_{seed}').is_dir()


def earlier(folder: pathlib.Path, lines: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
  """Returns the origin's metrics lines of the rounds before a run's own.

  Args:
    folder: of the origin.
    lines: the run's own lines.
  """
  first = min((line['round'] for line in lines), default=0)
  return [line for line in metrics.read(folder / 'metrics.jsonl') if line['round'] < first]
