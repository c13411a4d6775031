"""Runs the missing cells of a table, each in its folder; one that fails or diverges does not end the others."""

import contextlib
import errno
import gc
import io
import math
import os
import pathlib
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from fedjax_syn.core import exit_status, stopping
from fedjax_syn.runs import lock
from fedjax_syn.tables import spec, warm_start
from fedjax_syn.tables.cells import Run, locked, read
from fedjax_syn.tables.progress import Watch
from fedjax_syn.tables.spec import Entry, Result

OUT_OF_TIME = 'the budget is used up'
POLL = 1.0  # seconds between two looks at what other processes are at


def expected_seconds(run: Run, known: Mapping[tuple[str, str, int], float]) -> float:
  """Returns how long a run may take: as the longest other seed of its cell, else of its row, else of the table.

  Args:
    run: the run.
    known: seconds of finished runs by row, column and seed.

  Returns:
    Seconds; 0 if nothing is known yet.
  """
  row, column, _ = run.key
  if run.origin and not warm_start.is_there(run.config.start_from, run.seed):
    return expected_seconds(run.origin, known) + expected_seconds(run._replace(origin=None), known)
  same_cell = [s for (r, c, _), s in known.items() if (r, c) == (row, column)]
  same_row = [s for (r, _, _), s in known.items() if r == row]
  return max(same_cell or same_row or list(known.values()), default=0.0)


class Done(NamedTuple):
  """What a call came to."""

  failures: dict[tuple[str, str, int], Result]  # of this call, 'failed'
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
    execute: `fedjax_syn.runs.experiment.run_experiment`.
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
  left, late = list(runs), 0
  with stopping.stoppable() as stop, alarm(budget, stop):
    while left:
      elsewhere = []
      for number, run in enumerate(left):
        result = tried.get(run.folder) or read(run, without_phase, probe=False)
        begun = result.state == 'missing'
        if begun:
          too_long = time.monotonic() + expected_seconds(run, known) > deadline
          if not stop and (budget <= 0 or too_long):
            late += 1
            watch.skip()
            continue
          result = None if stop else attempt_with_origin(run, execute, watch, without_phase)
        if result is None:
          why = OUT_OF_TIME if time.monotonic() >= deadline else stop.signal or 'interrupted'
          return Done(failures, why, len(elsewhere) + len(left) - number + late)
        if result.state == 'elsewhere':
          elsewhere.append(run)
          continue
        if begun:
          tried[run.folder] = result
        if result.summary:
          known[run.key] = result.summary['seconds']['total']
        if result.state == 'failed':
          failures[run.key] = result
        if begun or result.state == 'failed':
          watch.done(run.label, brief(result))
        else:
          watch.skip()
      left = elsewhere
      if left and not wait(left, stop, watch):
        return Done(failures, stop.signal, len(left) + late)
  return Done(failures, OUT_OF_TIME if late else '', late)


def wait(runs: Sequence[Run], stop: stopping.StopRequest, watch: Watch) -> bool:
  """Waits until another process is done with one of these runs, or with the one in which it begins.

  Args:
    runs: that others are at.
    stop: ends the wait.
    watch: told once that this waits.

  Returns:
    Whether one is free; False if it was asked to stop.
  """
  folders = lambda run: [part.folder for part in (run.origin, run) if part]
  held = lambda run: any(locked(folder) for folder in folders(run))
  watch.say(f'waiting for {"; ".join(run.label for run in runs)}: another process is at work there')
  while not stop:
    if not all(held(run) for run in runs):
      return True
    time.sleep(POLL)
  return False


def attempt_with_origin(
  run: Run, execute: Callable[..., int], watch: Watch, without_phase: frozenset[str]
) -> Result | None:
  """Runs one run, and before it the one in which it begins, if that has not come so far; see `attempt`."""

  def go(part):
    watch.start(part.label, part.config.rounds)
    result = attempt(part, execute, watch, without_phase)
    gc.collect()  # the arrays of its engine, before those of the next
    return result

  there = lambda: run.origin is None or warm_start.is_there(run.config.start_from, run.seed)
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
  for line in others if status == exit_status.REFUSED else [*others, reason]:
    if line:
      watch.say(line)
  if status == exit_status.INTERRUPTED:
    return None
  if status == exit_status.DISK_FULL:  # for the others too
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(run.folder))
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
      while True:
        try:
          entry.after(run.folder, run.seed, scale)
          break
        except lock.InUseError:  # another call does the same: what it writes is read
          time.sleep(POLL)
    except Exception as error:
      results[run.key] = Result('failed', shorten(error), results[run.key].summary)


def shorten(error: Exception) -> str:
  """Returns an error in one line of moderate length."""
  return textwrap.shorten(f'{type(error).__name__}: {error}', 160)


def brief(result: Result) -> str:
  """Returns a run's outcome in a few words."""
  if result.state != 'finished':
    words = {'elsewhere': 'another process is at work there'}
    return words.get(result.state, result.state) + (f': {result.reason}' if result.reason else '')
  accuracy = result.summary['test_accuracy']['mean_last_5']['mean']
  return f'{100 * accuracy:.2f} in {result.summary["seconds"]["total"]:.1f} s'


@contextlib.contextmanager
def alarm(seconds: float, stop: stopping.StopRequest) -> Iterator[None]:
  """Asks runs to stop, as a first signal does, after some time; they save themselves then."""
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
