"""One experiment: a config becomes a work folder, and the same config resumes in it."""

import contextlib
import functools
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from fedjax_syn import config as config_lib
from fedjax_syn.config import Resolved
from fedjax_syn.core import exit_status, failures, paths, processes, stopping, texts
from fedjax_syn.core.processes import on_process_0
from fedjax_syn.plotting.style import plain_title
from fedjax_syn.runs import (
  assemble,
  config_json,
  descriptions,
  pretrained,
  progress,
  resume,
  start_from,
  stored_files,
  training,
  unseen,
  work_folder,
)
from fedjax_syn.runs.assemble import Job, PlannedRun


def run_experiment(
  config: Any, workdir: str | Path, *, config_name: str = '', show: progress.Reporter | None = None
) -> int:
  """Runs a config, or resumes it.

  Args:
    config: a ConfigDict, a nested dict or a checked config.
    workdir: the run's folder; created if it does not exist.
    config_name: the config's name, for config.json.
    show: told how far it is; by default a bar on a terminal or in a notebook, and lines elsewhere.

  Returns:
    0 finished (now or before), 2 refused (one line gives the reason), 3 all seeds diverged, 74 the
    disk is full, 75 interrupted and saved, 76 another process of the run has ended. After 74 to 76
    the same call continues the run.
  """
  show = show or progress.make(jax.process_index() == 0)
  try:
    return _run(config, workdir, config_name, show)
  except Exception as error:
    if full := failures.no_space(error):
      print(
        f'workdir={workdir}: {full}; saved work is good: free space, then use the same command',
        file=sys.stderr,
      )
      return exit_status.DISK_FULL
    if processes.is_distributed() and failures.peer_lost(error):
      print(processes.PEER_GONE.decode().strip(), file=sys.stderr)
      return exit_status.PEER_LOST
    raise
  finally:
    show.close()


def _run(config: Any, workdir: str | Path, config_name: str, show: progress.Reporter) -> int:
  """Runs a config; see `run_experiment`."""
  show.doing('looking at the folder')
  with contextlib.ExitStack() as stack:
    try:
      folder = paths.given(workdir, 'workdir')
      resolved = config_lib.check(config)
      runs = assemble.planned_runs(resolved, folder)
      summary = on_process_0(lambda: resume.open_folders(runs, stack, show.say))
      if summary is not None:
        if on_process_0(lambda: resume.data_moved(folder, resolved)):
          dataset = processes.on_all_processes(lambda: assemble.read(resolved))
          on_process_0(lambda: resume.check_data(folder, dataset))
        when = on_process_0(lambda: (folder / 'summary.json').stat().st_mtime)
        show.read(
          f'finished {time.strftime("%Y-%m-%d %H:%M", time.localtime(when))}; nothing was trained'
          ' now: another --workdir begins anew'
        )
        return _conclude(runs, summary, show)
      assemble.check_privacy(resolved)
      stack.enter_context(jax.default_matmul_precision(resolved.precision))
      stop = stack.enter_context(stopping.stoppable())
      jobs = _prepare(resolved, folder, config_name, show)
    except (ValueError, OSError) as error:
      return _refuse(error)
    try:
      summary = training.train(jobs, show, stop)
    except stored_files.StoredError as error:
      return _refuse(error)
    if summary is None:
      show.say(
        f'interrupted ({stop.signal or "by another process"}) and saved in {folder};'
        ' the same command continues from there'
      )
      return exit_status.INTERRUPTED
    return _conclude(runs, summary, show)


def _refuse(error: Exception) -> int:
  """States in one line why a run is refused; a full disk is no refusal."""
  if failures.no_space(error):
    raise error
  print(texts.one_line(error), file=sys.stderr)
  return exit_status.REFUSED


def _prepare(
  resolved: Resolved, folder: Path, config_name: str, show: progress.Reporter
) -> list[Job]:
  """Loads data, builds the engines, checks the folders, writes config.json, says what was read."""
  show.doing('reading the data')
  problem = processes.on_all_processes(lambda: assemble.load(resolved))
  show.doing('preparing the methods')
  jobs = assemble.jobs(resolved, folder, problem, show)
  for job in jobs:
    on_process_0(lambda: resume.check_data(job.folder, problem.dataset))
    start_from.check(job.engine, job.config, job.folder)
  read = [processes.on_all_processes(functools.partial(pretrained.check, job)) for job in jobs]
  for job in reversed(jobs):  # the main folder first: it is what a resumed run checks
    on_process_0(lambda: resume.rename_old_summary(job.folder, job.config.rounds))
    on_process_0(lambda: config_json.write_config(job, config_name))
  show.read(assemble.describe_data(resolved, problem))
  show.read(descriptions.training(resolved, jobs[-1].engine))
  if resolved.compare:
    show.read(f'compared with {resolved.compare}')
  for line in read[-1]:
    show.read(line)
  others = (
    unseen.line(problem.dataset, {job.label: job.engine.chain for job in jobs}),
    assemble.privacy_line(resolved, jobs),
  )
  for line in filter(None, (*problem.dataset.notes, *others)):
    show.read(line)
  for job in jobs[:-1]:
    if resolved.start_from and not job.config.start_from:
      show.read(f'{job.label} has no model of its own in {resolved.start_from}: begins anew')
  rows, methods = len(problem.dataset.test.y), dict.fromkeys(job.label for job in jobs)
  if note := descriptions.caution(rows, resolved.seeds, methods):
    show.read(note)
  return jobs


def _conclude(runs: Sequence[PlannedRun], summary: dict[str, Any], show: progress.Reporter) -> int:
  """Shows the results of a finished run; returns its exit status."""
  _, folder, label = runs[-1]
  for line in on_process_0(lambda: resume.lost_models(folder, summary)):
    show.say(f'WARNING: {line}')
  others = [(run.label, work_folder.summary(run.folder)) for run in runs[:-1]]
  rows = [(label, summary), *((name, other) for name, other in others if other)]
  results = {name: s['test_accuracy']['mean_last_5']['mean'] for name, s in rows}
  stored = on_process_0(lambda: work_folder.config(folder)) or {}
  dataset = stored.get('dataset', {})
  test_rows, rounds = dataset.get('rows', {}).get('test', 0), summary['rounds']
  note = descriptions.caution(test_rows, summary['seeds'], results, over=True, rounds=rounds)
  show.summary(rows, folder, note, plain_title(dataset.get('title', '')))
  statuses = {status['status'] for status in summary['status'].values()}
  return exit_status.DIVERGED if statuses == {'diverged'} else exit_status.FINISHED
