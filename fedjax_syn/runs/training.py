"""Trains the seeds of a run into its work folder: metrics, checkpoints, the files of each seed."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax

from fedjax_syn.core import processes, stopping
from fedjax_syn.core.contexts import State
from fedjax_syn.core.processes import on_process_0
from fedjax_syn.engine.measures import END, Measure, Values, take
from fedjax_syn.runs import (
  checkpoint,
  early_stop,
  final_files,
  loop,
  metrics,
  pretrained,
  progress,
  result_texts,
  resume,
  scores,
  start_from,
  stored_files,
  work_folder,
)
from fedjax_syn.runs.assemble import Job
from fedjax_syn.runs.clock import Clock
from fedjax_syn.runs.recorder import Recorder


def train(
  jobs: Sequence[Job], show: progress.Reporter, stop: stopping.StopRequest
) -> dict[str, Any] | None:
  """Trains jobs to their end, one after the other.

  Args:
    jobs: what a run is compared with, and the run itself last.
    show: told how far it is.
    stop: asks for an end after the current step.

  Returns:
    The last job's summary; None if it was interrupted and saved.

  Raises:
    StoredError: if a stored file cannot be used.
  """
  # New runs only: one that resumes may be past a program. One process only: several would have to
  # compile in the same order.
  for job in jobs if not processes.is_distributed() else ():
    if not checkpoint.list_unsorted(job.folder / 'checkpoints'):
      job.engine.warm_up(min(job.engine.layout.seeds, len(job.config.seeds)))
  done: dict[str, Path] = {}
  for job in jobs:
    if jax.process_index() == 0:
      final_files.write_partition(job)
      if job is jobs[-1]:  # the folder that holds the others
        show.doing('drawing the partition')
        final_files.draw_partition(job, show.say)
    measures = final_files.measures(job)
    summary = on_process_0(lambda: resume.finished_summary(job.folder, job.config.rounds))
    if summary:
      show.read(f'{job.label}: finished before, {job.config.rounds} rounds')
    summary = summary or _train_job(job, measures, show, stop)
    if summary is None:
      return None
    stop.pause()
    show.doing('drawing the figures')
    done[job.label] = job.folder
    files = final_files.restore(job, measures, summary, show.say)
    if jax.process_index() == 0:
      marks = [s['synthesis_round'] for s in summary['status'].values() if 'synthesis_round' in s]
      drawn = {job.label: job.folder} | (done if job is jobs[-1] else {})
      final_files.draw_curves(job, drawn, min(marks, default=None), show.say)
      early_stop.note_digests(job.folder, job.config.seeds, files, show.say)
      files[work_folder.RUN] = work_folder.digests(job.folder, work_folder.OF_RUN)
      by_seed = scores.of_run(job.folder, job.config.seeds)
      added = {'scores': by_seed} if by_seed else {}
      stored_files.write_json(job.folder / 'summary.json', {**summary, **added, 'files': files})
  return summary


def _train_job(
  job: Job, measures: tuple[Measure, ...], show: progress.Reporter, stop: stopping.StopRequest
) -> dict[str, Any] | None:
  """Trains all seeds of a job; returns the summary, or None if it was interrupted."""
  config, engine = job.config, job.engine
  plan = loop.Plan(config.rounds, config.eval_every, config.checkpoint_every, measures)
  try:
    logged = lambda lines: loop.lines_of(plan, lines, engine.next_stop)
    recorder = Recorder(job.folder, config, show.say, logged)
  except (ValueError, OSError) as error:  # of process 0, in every process
    raise stored_files.StoredError(str(error)) from error
  tell = progress.Steps(show)
  with contextlib.closing(recorder), Clock(recorder.seconds) as clock:
    width = engine.layout.seeds
    for first in range(0, len(config.seeds), width):
      group = config.seeds[first : first + width]
      seeds = [seed for seed in group if str(seed) not in recorder.status]
      if not seeds:
        continue
      show.doing('making the first model, or reading a checkpoint')
      states = recorder.resume(seeds)
      resumed = bool(states)
      if sources := {} if states else start_from.sources(config, seeds):
        states = start_from.branches(engine, sources, show.say)
      states = states or pretrained.init(job, seeds)
      label = progress.label(job.label, seeds, config.seeds)
      show.begin(label, config.rounds, int(states[seeds[0]].round))
      run = SeedGroup(job, plan, recorder, clock, show, tell, states)
      finished = run.train(resumed, stop)
      if not finished or (seeds[-1] != config.seeds[-1] and processes.any_process(bool(stop))):
        return None
    recorder.prune()
    summary = final_files.summarise(job, recorder, clock)
    recorder.finish(summary)
    return summary


@dataclass
class SeedGroup:
  """Seeds that are trained side by side to their end, and what is saved of them."""

  job: Job
  plan: loop.Plan
  recorder: Recorder
  clock: Clock
  show: progress.Reporter
  tell: progress.Steps
  live: dict[int, State]  # by seed; training consumes them
  ended: dict[int, tuple[int, State | None]] = field(default_factory=dict)
  """To be saved once more: round and state, by seed."""
  measured: dict[int, Mapping[str, Values]] = field(default_factory=dict)
  """By seed, in its last evaluation."""
  collapsed: set[int] = field(default_factory=set)
  """Seeds of which it was said."""
  stopped: dict[int, State] = field(default_factory=dict)
  """Last states of seeds that ended early, by seed."""

  def train(self, resumed: bool, stop: stopping.StopRequest) -> bool:
    """Trains to the end; returns False if the seeds were interrupted and saved.

    Args:
      resumed: the states come from checkpoints of this run.
      stop: asks for an end after the current step.
    """
    engine, recorder, live = self.job.engine, self.recorder, self.live
    begun = int(next(iter(live.values())).round)  # the round at which this phase begins here
    try:
      options: dict[str, Any] = {'resumed': resumed, 'over': self._is_over, 'tell': self.tell}
      for step in loop.train(engine, self.plan, live, self.clock, **options):
        self._take(step)
        if not step.last:
          continue
        at_end = step.round == self.plan.rounds
        if not live or (at_end and not any(map(engine.pending, live.values()))):
          break  # saved below, together with the news that these seeds are over
        asked = processes.any_process(bool(stop))
        if asked or self.ended or recorder.due(step):
          self.show.doing('saving a checkpoint')
          current = {seed: (int(state.round), state) for seed, state in live.items()}
          recorder.save({**self.ended, **current}, self.clock.seconds(), keep=step.phase_end)
          self.ended.clear()
        if asked:
          return False
        # Before a phase has its programs, leaving at once would lose nothing but compilation.
        begun = step.round if step.phase_end else begun
        worked = step.kind == 'server_work' or step.round > begun
        stop.unsaved = worked and not step.phase_end
    finally:
      self.show.end()
    self.show.doing('saving the last checkpoint')
    for seed, state in live.items():
      status: dict[str, Any] = {'status': 'finished', 'round': self.plan.rounds}
      self._end(seed, status, state)
      if (since := metrics.collapsed_since(recorder.lines, seed)) is not None:
        status['collapsed_round'] = since
    recorder.save(self.ended, self.clock.seconds(), keep=True)
    stop.pause()  # what follows can be made from the checkpoint: a stop need not wait for it
    for seed, state in {**self.stopped, **live}.items():
      self.show.doing('measuring the last model and drawing')
      known = self.measured.get(seed, {})  # none in a session that began after the last round
      others = [measure for measure in self.plan.measures if measure.name not in known]
      values = {**known, **take(others, END, seed, state)}
      if recorder.write:
        recorder.files[str(seed)] = final_files.write(self.job, seed, values, self.show.say)
    return True

  def _take(self, step: loop.Step) -> None:
    """Logs and shows a step of one seed."""
    seed = step.seed
    self.live[seed] = step.state
    if step.kind == 'diverged':
      self._fail(step)
    elif step.kind == 'server_work':
      self.recorder.synthesis_rounds[str(seed)] = step.round
      self.show.server_work(step.report)
    else:
      if step.kind == 'evaluated':
        self.measured[seed] = step.measured
        line = self.recorder.log(seed, step, self.clock.seconds()['total'])
        self._select(step, line)
        if 'collapsed_since' in line and seed not in self.collapsed:
          self.show.say(result_texts.collapsed_text(seed, line['collapsed_since']))
          self.collapsed.add(seed)
      if step.last:
        self.show.rounds(step.round, step.report)

  def _is_over(self, seed: int) -> bool:
    return seed in self.stopped

  def _select(self, step: loop.Step, line: metrics.Line) -> None:
    """Keeps the best model by held-out rows, and ends a seed that no longer improves."""
    config, recorder, seed = self.job.config, self.recorder, step.seed
    if not (config.patience or config.keep_best):
      return
    best = early_stop.best_line(recorder.lines, seed)
    if best is line and recorder.write:
      early_stop.save_best(self.job.folder, seed, line, step.state)
    over = early_stop.is_over(recorder.lines, seed, config.patience)
    if best is not None and over and step.round < self.plan.rounds:
      status = {'status': 'stopped', 'round': step.round, 'best_round': best['round']}
      self._end(seed, status, step.state)
      self.stopped[seed] = self.live.pop(seed)
      self.show.say(result_texts.stopped_text(seed, status))

  def _fail(self, step: loop.Step) -> None:
    """Records that a seed diverged."""
    recorder, names = self.recorder, self.job.problem.client_names
    client = step.report.get('diverged_client', -1)
    status = {
      'status': 'diverged',
      'round': int(step.report['diverged_round']),
      'client': int(client) if client >= 0 else None,
      'last_good_checkpoint': recorder.last_good(step.seed),
    }
    if client >= 0 and names:
      status['client_name'] = names[int(client)]
    if 'reason' in step.report:
      status['reason'] = step.report['reason']
    self._end(step.seed, status, None)
    del self.live[step.seed]
    self.show.say(result_texts.diverged_text(step.seed, status))

  def _end(self, seed: int, status: dict[str, Any], state: State | None) -> None:
    recorder, key = self.recorder, str(seed)
    if key in recorder.synthesis_rounds:
      status['synthesis_round'] = recorder.synthesis_rounds[key]
    recorder.status[key] = status
    recorder.files.pop(key, None)  # of a run of fewer rounds
    self.ended[seed] = status['round'], state
