"""The outer loop: a config becomes a run folder, and the same config goes on where the folder ends."""

import contextlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from fedjax_syn import config as config_lib
from fedjax_syn.config import identity
from fedjax_syn.core import exit_status, failures, paths, processes, stopping, texts
from fedjax_syn.core.contexts import State
from fedjax_syn.engine.measures import END, Measure, Values, take
from fedjax_syn.runs import (
  assemble,
  checkpoint,
  continuation,
  final_files,
  folder_status,
  initial_states,
  loop,
  metrics,
  progress,
  run_folder,
  stored_files,
)
from fedjax_syn.runs import summary as results
from fedjax_syn.runs import work_folder as workdir_lib
from fedjax_syn.runs.assemble import Job, Problem
from fedjax_syn.runs.clock import Clock
from fedjax_syn.runs.recorder import Recorder


def run_experiment(
  config: Any,
  workdir: str | Path,
  *,
  config_name: str = '',
  show: progress.Reporter | None = None,
) -> int:
  """Runs a config, or goes on with it.

  Args:
    config: a ConfigDict, a nested dict or a checked config.
    workdir: the run's folder; made if it is not there.
    config_name: the config's name, for config.json.
    show: told how far it is; a bar on a terminal and lines elsewhere by default.

  Returns:
    0 finished (also if it was finished before), 2 refused (one line says why), 3 all seeds diverged, 74 the disk is
    full, 75 interrupted and saved, 76 another process of the run is gone. After 74 to 76 the same call goes on.
  """
  try:
    return _go_on(config, workdir, config_name, show)
  except Exception as error:
    if full := failures.no_space(error):
      print(
        f'workdir={workdir}: {full}; what was saved is good: make space, and the same command goes on',
        file=sys.stderr,
      )
      return exit_status.DISK_FULL
    if processes.is_distributed() and failures.peer_lost(error):
      print(processes.ABORTED.decode().strip(), file=sys.stderr)
      return exit_status.PEER_LOST
    raise


def _go_on(
  config: Any, workdir: str | Path, config_name: str, show: progress.Reporter | None
) -> int:
  """Runs a config; see `run_experiment`."""
  write = jax.process_index() == 0
  show = show or progress.make(write)
  with contextlib.ExitStack() as stack:
    try:
      folder = paths.given(workdir, 'workdir')
      resolved = config_lib.check(config)
      tasks = assemble.planned_runs(resolved, folder)
      summary = processes.on_process_0(lambda: folder_status.take(folder, tasks, stack, show.say))
      if summary is not None and processes.on_process_0(
        lambda: folder_status.moved(folder, resolved)
      ):
        dataset = processes.on_all_processes(lambda: assemble.read(resolved))
        processes.on_process_0(lambda: workdir_lib.check_data(folder, dataset))
      if summary is not None:
        show.read(
          f'finished {processes.on_process_0(lambda: folder_status.finished_at(folder))}; nothing was trained now: another --workdir begins anew'
        )
        for line in processes.on_process_0(lambda: folder_status.lost_models(folder, summary)):
          show.say(f'WARNING: {line}')
        show.summary(_rows(resolved, folder, summary), folder)
        return _exit_status(summary)
      assemble.check_privacy(resolved)
      stack.enter_context(jax.default_matmul_precision(resolved.precision))
      stop = stack.enter_context(stopping.stoppable())
      problem = processes.on_all_processes(lambda: assemble.load(resolved))
      jobs = assemble.jobs(resolved, folder, problem, show)
      for job in jobs:
        processes.on_process_0(
          lambda path=job.folder: workdir_lib.check_data(path, problem.dataset)
        )
        initial_states.try_branch(job)
      for job in reversed(jobs):  # the main folder first: it is what a resumed run checks
        processes.on_process_0(
          lambda job=job: continuation.put_aside(job.folder, job.config.rounds)
        )
        processes.on_process_0(lambda job=job: assemble.write_config(job, problem, config_name))
    except (ValueError, OSError) as error:
      if failures.no_space(error):
        raise
      print(texts.one_line(error), file=sys.stderr)
      return exit_status.REFUSED
    read = assemble.describe_data(resolved, problem), *problem.dataset.notes
    for line in filter(None, (*read, assemble.privacy_line(resolved, jobs))):
      show.read(line)
    if resolved.start_from and resolved.compare and not jobs[0].config.start_from:
      show.read(f'{resolved.compare} has no model of its own in {resolved.start_from}: begins anew')
    try:
      summary = _run(jobs, problem, show, stop, write)
    except stored_files.StoredError as error:
      if failures.no_space(error):
        raise
      print(texts.one_line(error), file=sys.stderr)
      return exit_status.REFUSED
    if summary is None:
      show.say(
        f'interrupted ({stop.signal or "by another process"}) and saved in {folder}; the same command goes on from there'
      )
      return exit_status.INTERRUPTED
    for line in processes.on_process_0(lambda: folder_status.lost_models(folder, summary)):
      show.say(f'WARNING: {line}')
    show.summary(_rows(resolved, folder, summary), folder)
    return _exit_status(summary)


def _run(
  jobs: Sequence[Job],
  problem: Problem,
  show: progress.Reporter,
  stop: stopping.StopRequest,
  write: bool,
) -> dict[str, Any] | None:
  """Trains jobs to their end, one after the other; returns the last one's summary, or None if interrupted."""
  # Fresh ones only: a run that goes on may be past a program. One process only: the others would have
  # to compile in the same order.
  for job in jobs if not processes.is_distributed() else ():
    if not checkpoint.found(job.folder / 'checkpoints'):
      job.engine.warm_up(min(job.engine.layout.seeds, len(job.config.seeds)))
  done: dict[str, Path] = {}
  for job in jobs:
    if write:
      results.save_partition(job.folder, problem.counts)
      what = problem.dataset, problem.counts, problem.client_names
      results.attempt(show.say, results.draw_partition, job.folder, *what)
    measures = final_files.measures(job, problem)
    summary = processes.on_process_0(
      lambda job=job: continuation.finished(job.folder, job.config.rounds)
    )
    summary = summary or _train(job, problem, measures, show, stop, write)
    if summary is None:
      return None
    stop.pause()
    done = {job.config.algorithm: job.folder, **done}
    files = final_files.again(job, problem, measures, summary, show.say, write)
    if write:
      marks = [s['synthesis_round'] for s in summary['status'].values() if 'synthesis_round' in s]
      mark = min(marks, default=None)
      results.attempt(show.say, results.draw_curves, job.folder, problem.dataset, done, mark)
      files[run_folder.RUN] = run_folder.digests(job.folder, run_folder.OF_RUN)
      workdir_lib.write_json(job.folder / 'summary.json', {**summary, 'files': files})
  return summary


def _train(
  job: Job,
  problem: Problem,
  measures: tuple[Measure, ...],
  show: progress.Reporter,
  stop: stopping.StopRequest,
  write: bool,
) -> dict[str, Any] | None:
  """Trains all seeds of a job, as many side by side as its layout says; returns the summary, or None if interrupted."""
  config, engine, dataset = job.config, job.engine, problem.dataset
  plan = loop.Plan(config.rounds, config.eval_every, config.checkpoint_every, measures)
  try:
    recorder = Recorder(
      job.folder,
      config.checkpoint_every,
      show.say,
      write,
      config.trackers,
      identity.used(config),
      rounds=config.rounds,
      evaluated=lambda lines: loop.planned(lines, plan, engine.next_stop),
    )
  except (ValueError, OSError) as error:  # of process 0, in every process
    raise stored_files.StoredError(str(error)) from error
  with contextlib.closing(recorder), Clock(recorder.seconds) as clock:
    width = engine.layout.seeds
    for first in range(0, len(config.seeds), width):
      group = config.seeds[first : first + width]
      seeds = [seed for seed in group if str(seed) not in recorder.status]
      if not seeds:
        continue
      states, resumed = initial_states.begin(job, recorder, seeds, show)
      label = progress.label(config.algorithm, seeds, config.seeds)
      show.begin(label, config.rounds, int(states[seeds[0]].round))
      over = _train_group(job, problem, plan, recorder, clock, states, resumed, show, stop)
      if not over or (seeds[-1] != config.seeds[-1] and processes.any_process(bool(stop))):
        return None
    summary = results.summarise(config, dataset, engine, recorder, clock, job.beside)
    recorder.finish(summary)
    return summary


def _train_group(
  job: Job,
  problem: Problem,
  plan: loop.Plan,
  recorder: Recorder,
  clock: Clock,
  states: dict[int, State],
  resumed: bool,
  show: progress.Reporter,
  stop: stopping.StopRequest,
) -> bool:
  """Trains seeds side by side to their end; returns False if they were interrupted and saved."""
  config, engine = job.config, job.engine
  live = dict(states)  # by seed
  del states  # they are consumed
  collapsed: set[str] = set()  # seeds of which it was said
  over: dict[int, tuple[int, State | None]] = {}  # of seeds that end: to be saved once more
  begun = int(live[next(iter(live))].round)  # the round at which this phase begins here
  measured: dict[int, Mapping[str, Values]] = {}  # by seed, in its last evaluation, by measure

  def end(seed):
    status = {'status': 'finished', 'round': config.rounds}
    if str(seed) in recorder.marks:
      status['synthesis_round'] = recorder.marks[str(seed)]
    if (since := metrics.collapsed_since(recorder.lines, seed)) is not None:
      status['collapsed_round'] = since
    recorder.status[str(seed)] = status
    recorder.files.pop(str(seed), None)  # of a run of fewer rounds
    over[seed] = config.rounds, live[seed]

  def leave_files(seed):
    known = measured.get(seed, {})  # none in a session that began after the last round
    others = [measure for measure in plan.measures if measure.name not in known]
    last = {**known, **take(others, END, seed, live[seed])}
    if recorder.write:
      recorder.files[str(seed)] = final_files.write(job, problem, seed, last, show.say)

  def fail(step):
    recorder.files.pop(str(step.seed), None)  # of a run of fewer rounds
    status = _diverged(step, recorder, problem.client_names)
    recorder.status[str(step.seed)] = status
    over[step.seed] = status['round'], None
    del live[step.seed]
    show.say(progress.diverged_text(step.seed, status))

  try:
    for step in loop.train(engine, plan, live, clock, resumed=resumed):
      live[step.seed] = step.state
      if step.kind == 'diverged':
        fail(step)
      if step.kind == 'evaluated':
        measured[step.seed] = step.measured
        line = recorder.log(step.seed, step, clock.seconds()['total'])
        if 'collapsed_since' in line and str(step.seed) not in collapsed:
          show.say(progress.collapsed_text(step.seed, line['collapsed_since']))
          collapsed.add(str(step.seed))
      if step.kind == 'server_work':
        recorder.marks[str(step.seed)] = step.round
        show.server_work(step.report)
      elif step.kind != 'diverged' and step.last:
        show.rounds(step.round, step.report)
      if not step.last:
        continue
      if not live or (
        step.round == config.rounds and not any(engine.pending(s) for s in live.values())
      ):
        break  # saved below, together with the news that these seeds are over
      asked = processes.any_process(bool(stop))
      if asked or over or recorder.due(step):
        at_work = {seed: (int(state.round), state) for seed, state in live.items()}
        recorder.save({**over, **at_work}, clock.seconds(), keep=step.phase_end)
        over.clear()
      if asked:
        return False
      # Until a phase has its programs nothing but compilation would be lost by leaving at once.
      begun = step.round if step.phase_end else begun
      stop.unsaved = not step.phase_end and (step.kind == 'server_work' or step.round > begun)
  finally:
    show.end()
  for seed in live:
    end(seed)
  recorder.save(over, clock.seconds(), keep=True)
  stop.pause()  # what follows is made from the checkpoint: a stop need not wait for it
  for seed in live:
    leave_files(seed)
  return True


def _diverged(step: loop.Step, recorder: Recorder, names: Sequence[str]) -> dict[str, Any]:
  """What is to be known of a seed that diverged."""
  client = step.report.get('diverged_client', -1)
  mark = recorder.marks.get(str(step.seed))
  return {
    'status': 'diverged',
    'round': int(step.report['diverged_round']),
    'client': int(client) if client >= 0 else None,
    'last_good_checkpoint': recorder.last_good(step.seed),
    **({'client_name': names[int(client)]} if client >= 0 and names else {}),
    **({'reason': step.report['reason']} if 'reason' in step.report else {}),
    **({} if mark is None else {'synthesis_round': mark}),
  }


def _rows(resolved: config_lib.Resolved, folder: Path, summary: dict) -> list[tuple[str, dict]]:
  """Labels and summaries for the table at the end."""
  rows = [(resolved.algorithm, summary)]
  other = run_folder.summary(folder / 'compare') if resolved.compare else None
  return rows + ([(resolved.compare, other)] if other else [])


def _exit_status(summary: dict[str, Any]) -> int:
  """3 if no seed has a result."""
  statuses = {status['status'] for status in summary['status'].values()}
  return exit_status.DIVERGED if statuses == {'diverged'} else exit_status.FINISHED
