"""Runs the missing cells of a table, each in its folder; a failure does not end the others."""

import contextlib
import errno
import gc
import io
import math
import os
import pathlib
import threading
import time
from collections.abc import Iterator, Mapping, Sequence

from fedjax_syn.core import exit_status, stopping
from fedjax_syn.tables import post_run, progress, warm_start
from fedjax_syn.tables.cells import Run, Table, read
from fedjax_syn.tables.progress import Watch
from fedjax_syn.tables.spec import Key, Result, failure
from fedjax_syn.tables.work_list import work_through

OUT_OF_TIME = 'the budget is used up'


def expected_seconds(run: Run, known: Mapping[Key, float]) -> float:
  """Returns how long a run may take: as the longest of its cell, else of its row, else of all.

  Args:
    run: the run.
    known: seconds of finished runs.

  Returns:
    Seconds; 0 if nothing is known yet.
  """
  row, column, _ = run.key
  if run.warm_start_from and not warm_start.is_there(run.config.start_from, run.seed):
    alone = run._replace(warm_start_from=None)
    return expected_seconds(run.warm_start_from, known) + expected_seconds(alone, known)
  same_cell = [s for (r, c, _), s in known.items() if (r, c) == (row, column)]
  same_row = [s for (r, _, _), s in known.items() if r == row]
  return max(same_cell or same_row or list(known.values()), default=0.0)


def run_table(
  table: Table, runs: Sequence[Run], budget: float = math.inf
) -> tuple[dict[Key, Result], str]:
  """Runs the missing runs of a table, and computes what it needs of finished ones.

  Args:
    table: the table.
    runs: of the table, checked.
    budget: seconds, see `run_missing`.

  Returns:
    The results of all runs of the table that have a folder or failed, and why and where this ended
    early; '' if it did not.
  """
  read_all = lambda: {run.key: read(run) for run in table.existing()}
  known = {k: r.summary['seconds']['total'] for k, r in read_all().items() if r.summary}
  with progress.make(len(runs)) as watch:
    failed, stopped = run_missing(runs, watch, known, budget)
  # Other processes may have finished what this one waited for; no folder says why a run failed.
  results = {**read_all(), **failed}
  if table.entry.post_run and not stopped:
    post_run.compute_missing(table.existing(), table.entry.post_run, table.scale, results)
  return results, stopped


def run_missing(
  runs: Sequence[Run], watch: Watch, known: dict[Key, float], budget: float = math.inf
) -> tuple[dict[Key, Result], str]:
  """Runs what is not finished yet; a run that fails or diverges does not end the others.

  Args:
    runs: checked runs.
    watch: shows the progress.
    known: seconds of finished runs; it grows.
    budget: seconds. A run that is not expected to end in time does not begin, and one that still
      runs then is interrupted and saved.

  Returns:
    The failures of this call, and why and where it ended early; '' if it did not.
  """
  failed: dict[Key, Result] = {}
  tried: dict[pathlib.Path, Result] = {}  # columns may show the same runs
  late: list[Run] = []
  deadline = time.monotonic() + budget

  def attempt_next(run: Run) -> bool | None:
    result = tried.get(run.folder) or read(run, probe=False)
    begun = result.state == 'missing'
    if begun:
      too_long = time.monotonic() + expected_seconds(run, known) > deadline
      if not stop and (budget <= 0 or too_long):
        late.append(run)
        watch.skip()
        return True
      attempted = None if stop else attempt_from_start(run, watch)
      if attempted is None:
        return None
      result = attempted
    if result.state == 'elsewhere':
      return False
    if begun:
      tried[run.folder] = result
    if result.summary:
      known[run.key] = result.summary['seconds']['total']
    if result.state == 'failed':
      failed[run.key] = result
    if begun or result.state == 'failed':
      watch.done(run.label, brief(result))
    else:
      watch.skip()
    return True

  folders = lambda run: {part.label: part.folder for part in run.parts}
  with stopping.stoppable() as stop, alarm(budget, stop):
    left = work_through(runs, attempt_next, folders, stop, watch.say)
    out_of_time = time.monotonic() >= deadline or bool(late and not left)
    why = OUT_OF_TIME if out_of_time else stop.signal or 'interrupted'
  count = len(left) + len(late)
  return failed, f'{why}: {count} of {len(runs)} runs are left' if count else ''


def attempt_from_start(run: Run, watch: Watch) -> Result | None:
  """Runs one run, and before it the one in which it begins if that is needed; see `attempt`."""

  def go(part: Run) -> Result | None:
    watch.start(part.label, part.config.rounds)
    result = attempt(part, watch)
    gc.collect()  # the arrays of its engine, before those of the next
    return result

  is_there = lambda: warm_start.is_there(run.config.start_from, run.seed)
  if run.warm_start_from and not is_there():
    result = go(run.warm_start_from)
    if result is None:
      return None
    outcome = f'{run.warm_start_from.label}, in which {{}} begins: {brief(result)}'
    watch.say(outcome.format(run.label))
    if not is_there():
      elsewhere = result.state == 'elsewhere'
      return Result('elsewhere') if elsewhere else Result('failed', outcome.format('it'))
  return go(run)


def attempt(run: Run, watch: Watch) -> Result | None:
  """Runs one run; returns its result, None if it was interrupted.

  Raises:
    OSError: if the disk is full.
  """
  from fedjax_syn.runs import experiment  # only now, so that refusals are quick

  said = io.StringIO()  # a refusal is a line on stderr; here it belongs into the table
  try:
    with contextlib.redirect_stderr(said):
      name = run.column.config
      status = experiment.run_experiment(run.config, run.folder, config_name=name, show=watch)
  except Exception as error:  # the other cells continue
    return failure(error)
  *others, reason = said.getvalue().strip().splitlines() or ['']
  for line in others if status == exit_status.REFUSED else [*others, reason]:
    if line:
      watch.say(line)
  if status == exit_status.INTERRUPTED:
    return None
  if status == exit_status.DISK_FULL:  # for the others too
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(run.folder))
  result = read(run)
  if result.state == 'missing':  # refused
    return Result('failed', reason or f'exit status {status}')
  return result


def brief(result: Result) -> str:
  """Returns a run's outcome in a few words."""
  if result.state != 'finished':
    words = {'elsewhere': 'another process is at work there'}
    return words.get(result.state, result.state) + (f': {result.reason}' if result.reason else '')
  accuracy = result.summary['test_accuracy']['mean_last_5']['mean']
  return f'{100 * accuracy:.2f} in {result.summary["seconds"]["total"]:.1f} s'


@contextlib.contextmanager
def alarm(seconds: float, stop: stopping.StopRequest) -> Iterator[None]:
  """Asks runs to stop and save, as a first signal does, after some time."""
  if not 0 < seconds < threading.TIMEOUT_MAX:
    yield
    return
  timer = threading.Timer(seconds, setattr, (stop, 'signal', OUT_OF_TIME))
  timer.daemon = True
  timer.start()
  try:
    yield
  finally:
    timer.cancel()
