"""Writes a run's metrics lines, events and checkpoints, and reads where the run resumes."""

import hashlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from fedjax_syn.config import Resolved, identity
from fedjax_syn.core.contexts import State
from fedjax_syn.core.processes import on_process_0, tree_from_process_0
from fedjax_syn.core.types import PyTree
from fedjax_syn.runs import checkpoint, clock, metrics, stored_files, trackers
from fedjax_syn.runs.loop import Step

SAVE_SECONDS = 30.0  # a checkpoint is due after this long at the latest
CHUNK_SECONDS = 5.0  # and this often during work between rounds
SHARE = 0.1  # but saving may not take more than this share of the time
# Lines in which a collapse is looked for: more than enough for all seeds side by side.
RECENT = 1000


class Saved(NamedTuple):
  """The checkpoints of one moment: one of each seed in training."""

  trees: dict[int, PyTree]
  """By seed; None if it had diverged."""
  note: dict[str, Any]


class Recorder:
  """The state of a run besides its model: what is logged, saved and decided so far.

  Attributes:
    status: by seed that is over, how it ended.
    lines: the metrics lines.
    files: by seed, digests of its files beside the checkpoints; see `final_files`.
    synthesis_rounds: by seed, the round after which the server worked.
    seconds: of the run when it was last saved, by part; None for a new run.
    write: whether this process writes: process 0 alone does.
  """

  def __init__(
    self,
    folder: Path,
    config: Resolved,
    say: Callable[[str], None],
    logged: Callable[[list[metrics.Line]], list[metrics.Line]],
  ):
    """Opens a folder at its newest whole checkpoint, and removes what was logged after it.

    A run of fewer rounds that finished here continues: its seeds are not over, and evaluations that
    are due only at the end of a run are removed from the log.

    Args:
      folder: the run's folder.
      config: the run's.
      say: told what is wrong.
      logged: takes metrics lines and returns those that a run of so many rounds logs.
    """
    self.folder, self.say, self.checkpoint_every = folder, say, config.checkpoint_every
    self.keep_phases = config.keep_checkpoints == 'phases'
    self.write = jax.process_index() == 0
    self.checkpoints = folder / 'checkpoints'
    self.path = folder / 'metrics.jsonl'
    self.last = tree_from_process_0(self._newest)
    note = self.last.note if self.last else {}
    status = note.get('status', {})
    shorter = {  # seeds that finished a run of fewer rounds
      k: s for k, s in status.items() if s['status'] == 'finished' and s['round'] < config.rounds
    }
    self.status: dict[str, dict[str, Any]] = {k: s for k, s in status.items() if k not in shorter}
    self.ends: dict[str, str] = on_process_0(lambda: self._last_checkpoints(shorter))
    self.ended = {k: status[k] for k in self.ends}
    self.synthesis_rounds: dict[str, int] = note.get('marks', {})
    self.seconds: dict[str, float] | None = note.get('seconds')
    self.peak: int = note.get('peak_memory_bytes', 0)
    self.serial: int = note.get('serial', 0)
    self.files: dict[str, dict[str, str]] = note.get('files', {})
    size = note.get('metrics_bytes', 0)
    before = on_process_0(lambda: metrics.read(self.path, size))
    lost = {*shorter} - {*self.ends}
    self.lines = logged([line for line in before if str(line['seed']) not in lost])
    content = stored_files.read_bytes(self.path, size) if self.write else b''
    self.digest = hashlib.sha256(content or b'')
    self.saved_at, self.save_cost = time.monotonic(), 0.0
    self.board = None
    if self.write:
      metrics.truncate(self.path, size)
      if self.last and self.lines != before:
        self._log_again(self.last)
      settings = identity.settings_in_use(config)
      self.board = trackers.Trackers(folder, config.trackers, settings, self.lines, say)

  def _newest(self) -> Saved | None:
    """Reads the newest whole moment; process 0 alone does, the others may not see the folder."""
    root = self.checkpoints
    had_some = bool(checkpoint.list_unsorted(root))
    while last := checkpoint.latest(root, self.say):
      try:
        self._check_metrics(last)
        if trees := self._trees(last):
          return Saved(trees, last.note)
      except stored_files.DamagedError as error:
        self.say(f'WARNING: {error}; using the checkpoint before')
      checkpoint.set_aside(last.path)
    if had_some:
      self.say(f'WARNING: no checkpoint in {root} is whole; beginning again from round 0')
    return None

  def _check_metrics(self, last: checkpoint.Checkpoint) -> None:
    """Raises DamagedError if the metrics lines that a checkpoint knows have changed."""
    size = last.note['metrics_bytes']
    content = stored_files.read_bytes(self.path, size) or b''
    digest = hashlib.sha256(content).hexdigest()
    # Older versions kept no digest.
    if len(content) < size or digest != last.note.get('metrics_sha256', digest):
      raise stored_files.DamagedError(
        f'{self.path} is damaged: it is not what it was when {last.path} was saved'
      )
    metrics.read(self.path, size)

  def _trees(self, last: checkpoint.Checkpoint) -> dict[int, PyTree] | None:
    """Returns the trees of the newest checkpoint's moment; None if one is missing after a kill."""
    group = last.note.get('group', [last.note['seed']])
    if last.note['seed'] != group[-1]:
      return None
    serials = {last.note['serial'] - i: seed for i, seed in enumerate(reversed(group))}
    trees = {last.note['seed']: last.tree}
    for path in reversed(checkpoint.list_sorted(self.checkpoints)):
      if (serial := checkpoint.note_of(path).get('serial')) in serials and path != last.path:
        try:
          trees[serials[serial]] = checkpoint.read(path).tree
        except stored_files.DamagedError as error:
          self.say(f'WARNING: {error}; using the one before')
    return {seed: trees[seed] for seed in group} if len(trees) == len(group) else None

  def _last_checkpoints(self, ended: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Returns the last checkpoints, where they are whole, of seeds that finished fewer rounds.

    Seeds side by side resume at one round: if the model of one is lost, all of them begin again.
    """
    ends = {}
    for seed, status in ended.items():
      saved = checkpoint.list_sorted(self.checkpoints, int(seed))
      try:
        if not saved or saved[-1].parent.name != str(status['round']):
          raise stored_files.DamagedError(
            f'{self.checkpoints}: no checkpoint of round {status["round"]}'
          )
        checkpoint.read(saved[-1])
        ends[seed] = str(saved[-1])
      except stored_files.DamagedError as error:
        self.say(f'WARNING: {error}; seed {seed} begins again')
    lost = {*ended} - {*ends}
    beside = lambda path: {*map(str, checkpoint.note_of(Path(path)).get('group', ()))}
    for seed in [seed for seed, path in ends.items() if beside(path) & lost]:
      self.say(f'seed {seed} begins again with it, side by side')
      del ends[seed]
    return ends

  def _log_again(self, last: Saved) -> None:
    """Replaces the log by `lines`.

    The checkpoint that knows of it is saved first, so that a kill loses neither.
    """
    path, self.path = self.path, self.path.with_name('.metrics.jsonl.tmp')
    self.path.unlink(missing_ok=True)
    metrics.truncate(self.path, 0)  # there may be no line
    self.digest = hashlib.sha256()
    for line in self.lines:
      self.digest.update(metrics.append(self.path, line))
    round = last.note['round']
    states = {s: (round if t is None else int(t.round), t) for s, t in last.trees.items()}
    self.save(states, self.seconds or {}, keep=True)
    os.replace(self.path, path)
    self.path = path

  def resume(self, seeds: Sequence[int]) -> dict[int, State]:
    """Returns the states to resume from, by seed; {} if these seeds were not saved yet.

    Args:
      seeds: side by side, of which none is over.
    """
    trees = dict(self.last.trees) if self.last else {}
    for seed in seeds:
      self.ended.pop(str(seed), None)  # in training again
      if str(seed) in self.ends and seed not in trees:
        end = Path(self.ends[str(seed)])
        trees[seed] = tree_from_process_0(lambda: checkpoint.read(end).tree)
    if any(trees.get(seed) is None for seed in seeds):
      return {}
    return {seed: checkpoint.to_device(trees[seed]) for seed in seeds}

  def log(self, seed: int, step: Step, seconds: float) -> metrics.Line:
    """Appends the line of an evaluated round and returns it.

    Args:
      seed: that was evaluated.
      step: an 'evaluated' step.
      seconds: of the whole run so far.
    """
    line = {'round': step.round, 'seed': seed, **step.report, 'seconds': round(seconds, 3)}
    if (since := metrics.collapsed_since([*self.lines[-RECENT:], line], seed)) is not None:
      line['collapsed_since'] = since
    self.lines.append(line)
    if self.board:
      self.digest.update(metrics.append(self.path, line))
      self.board.write(line)
    return line

  def due(self, step: Step) -> bool:
    """Returns whether to save now: at ends of phases, by rounds and by time, limited by cost."""
    waited = time.monotonic() - self.saved_at
    if step.phase_end or waited > max(SAVE_SECONDS, self.save_cost / SHARE):
      return True
    at_work = step.kind == 'server_work'
    wanted = waited > CHUNK_SECONDS if at_work else step.round % self.checkpoint_every == 0
    return wanted and step.round > 0 and waited >= self.save_cost / SHARE

  def save(
    self,
    states: Mapping[int, tuple[int, State | None]],
    seconds: dict[str, float],
    keep: bool = False,
  ) -> None:
    """Saves a checkpoint of every seed in training, and removes those that are no longer needed.

    Args:
      states: by seed, its round and its state, None if it diverged. They are one moment: those that
        a kill leaves behind count for nothing without the last.
      seconds: of the run so far, by part.
      keep: not to be removed while their seed is in training, nor afterwards if the config keeps
        ends of phases.
    """
    self.peak = max(self.peak, clock.peak_memory_bytes())
    if not self.write:
      return
    start = time.monotonic()
    for seed, (round, state) in states.items():
      self.serial += 1
      note = {
        'serial': self.serial,
        'seed': seed,
        'group': list(states),
        'round': round,
        'keep': keep,
        'status': {**self.ended, **self.status},
        'marks': self.synthesis_rounds,
        'metrics_bytes': metrics.length(self.path),
        'metrics_sha256': self.digest.hexdigest(),
        'files': self.files,
        'seconds': seconds,
        'peak_memory_bytes': self.peak,
      }
      checkpoint.save(self.checkpoints, round, seed, state, note)
    self.prune()
    self.saved_at = time.monotonic()
    self.save_cost = self.saved_at - start

  def prune(self) -> None:
    """Removes the checkpoints that are no longer needed; a kill may have come before it."""
    if self.write:
      last = {int(s): 2 if v['status'] == 'diverged' else 1 for s, v in self.status.items()}
      checkpoint.prune(self.checkpoints, last, self.keep_phases)

  def last_good(self, seed: int) -> str | None:
    """Returns the newest checkpoint of a seed, relative to the folder, or None."""
    saved = lambda: list(map(str, checkpoint.list_sorted(self.checkpoints, seed)))
    last = on_process_0(saved)[-1:]
    return Path(last[0]).relative_to(self.folder).as_posix() if last else None

  def finish(self, summary: Mapping[str, Any]) -> None:
    """Passes the results of a finished run and its figures to the trackers."""
    if self.board:
      pictures = sorted((self.folder / 'figures').glob('*.png'))
      self.board.results(trackers.results_of(summary), pictures)

  def close(self) -> None:
    """Closes the trackers."""
    if self.board:
      self.board.close()
