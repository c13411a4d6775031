"""What a table computes of finished runs besides their metrics: once, and left in their folders."""

import pathlib
import time
from collections.abc import Sequence

import jax

from fedjax_syn.runs import lock, stored_files, work_folder
from fedjax_syn.tables import spec
from fedjax_syn.tables.cells import Run
from fedjax_syn.tables.spec import Key, Result, failure
from fedjax_syn.tables.work_list import POLL


def compute(post_run: spec.PostRun, folder: pathlib.Path, seed: int, scale: spec.Scale) -> None:
  """Computes a file of a finished run unless it is whole; waits for another process in the folder.

  Args:
    post_run: what is computed.
    folder: of the run.
    seed: which of its seeds.
    scale: how much is computed.

  Raises:
    ValueError: if the run does not hold what is needed, or its data set is not there.
  """
  while True:
    try:
      with lock.hold(folder):
        if not _is_whole(folder / post_run.file):
          config = (work_folder.config(folder) or {})['config']
          with jax.default_matmul_precision(config['precision']):
            post_run.compute(folder, seed, scale)
      return
    except lock.InUseError:  # another process writes the file
      time.sleep(POLL)


def compute_missing(
  runs: Sequence[Run], post_run: spec.PostRun, scale: spec.Scale, results: dict[Key, Result]
) -> None:
  """Computes the missing files of all finished runs of a table.

  Args:
    runs: all runs of the table.
    post_run: what is computed.
    scale: how much is computed.
    results: of the runs; an error becomes a failure in them.
  """
  for run in runs:
    if results[run.key].state == 'finished':
      try:
        compute(post_run, run.folder, run.seed, scale)
      except Exception as error:
        results[run.key] = failure(error, results[run.key].summary)


def _is_whole(path: pathlib.Path) -> bool:
  try:
    if path.suffix == '.json':
      return stored_files.read_json(path, {}) is not None
    return work_folder.is_picture(stored_files.read_bytes(path) or b'')
  except stored_files.DamagedError:
    return False
