"""Keeps one run's folder: metrics lines, events and checkpoints; and finds where a run is to go on."""

import hashlib
import os
import resource
import sys
import time
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from fedjax_syn.core import processes
from fedjax_syn.core.contexts import State
from fedjax_syn.core.types import PyTree
from fedjax_syn.runs import checkpoint, metrics, stored_files, trackers
from fedjax_syn.runs.loop import Step

SAVE_SECONDS = 30.0  # a checkpoint is due after this long at the latest
CHUNK_SECONDS = 5.0  # and this often during work between rounds
RECENT = (
  1000  # lines that are looked at for a collapse: of all seeds side by side, more than enough
)
SHARE = 0.1  # but saving may not take more than this share of the time


class Saved(NamedTuple):
  """The checkpoints that were written at one moment: one of each seed that was at work."""

  trees: dict[int, PyTree]  # by seed; None if it had diverged
  note: dict[str, Any]


class Recorder:
  """The state of a run besides its model: what is logged, saved and decided so far."""

  def __init__(
    self,
    folder: Path,
    checkpoint_every: int,
    say: Callable[[str], None],
    write: bool = True,
    tracked: Sequence[str] = (),
    settings: Mapping[str, Any] = types.MappingProxyType({}),
    *,
    rounds: int = 0,
    evaluated: Callable[[list[metrics.Line]], list[metrics.Line]] = list,
  ):
    """Opens a folder at its newest whole checkpoint, and forgets what was logged after it.

    A run of fewer rounds that was finished here goes on: its seeds are not over, and evaluations that are only due at
    the end of a run are taken out of the log.

    Args:
      folder: the run's folder.
      checkpoint_every: rounds between checkpoints.
      say: told what is wrong.
      write: False in all processes but the first.
      tracked: trackers besides TensorBoard.
      settings: what trackers show of the config, by dotted key.
      rounds: of the run.
      evaluated: takes metrics lines and returns those that a run of so many rounds logs.
    """
    self.folder, self.checkpoint_every, self.say, self.write = folder, checkpoint_every, say, write
    self.checkpoints = folder / 'checkpoints'
    self.path = folder / 'metrics.jsonl'
    self.last = self._shared(self._newest)
    note = self.last.note if self.last else {}
    noted = note.get('status', {})
    ended = lambda s: s['status'] == 'finished' and s['round'] < rounds
    # Of seeds that are over, and of those that were over in a run of fewer rounds, with their last checkpoints.
    self.status: dict[str, dict[str, Any]] = {k: s for k, s in noted.items() if not ended(s)}
    self.ends: dict[str, str] = processes.on_process_0(
      lambda: self._ends({k: s['round'] for k, s in noted.items() if ended(s)})
    )
    self.ended = {k: noted[k] for k in self.ends}
    self.marks: dict[str, int] = note.get('marks', {})  # by seed: the round with work after it
    self.seconds: dict[str, float] | None = note.get('seconds')
    self.peak: int = note.get('peak_memory_bytes', 0)
    self.serial: int = note.get('serial', 0)
    # By seed, files beside the checkpoints and their digests, see `results`.
    self.files: dict[str, dict[str, str]] = note.get('files', {})
    size = note.get('metrics_bytes', 0)
    logged = processes.on_process_0(lambda: metrics.read(self.path, size))
    lost = {k for k, s in noted.items() if ended(s)} - {*self.ends}
    self.lines = evaluated([line for line in logged if str(line['seed']) not in lost])
    self.digest = hashlib.sha256(
      (stored_files.read_bytes(self.path, size) if write else b'') or b''
    )
    self.saved_at, self.save_cost = time.monotonic(), 0.0
    self.board = None
    if write:
      metrics.truncate(self.path, size)
      if self.lines != logged:
        self._log_again()
      self.board = trackers.Trackers(folder, tracked, settings, self.lines, say)

  def _newest(self) -> Saved | None:
    root = self.checkpoints  # read by one process: the others may not even see the folder
    had_some = bool(checkpoint.found(root))
    while last := checkpoint.latest(root, self.say):
      if wrong := self._fault(last):
        self.say(f'WARNING: {wrong}; using the checkpoint before')
      elif trees := self._trees(last):
        return Saved(trees, last.note)
      checkpoint.set_aside(last.path)
    if had_some:
      self.say(f'WARNING: no checkpoint in {root} is whole; beginning again from round 0')
    return None

  def _fault(self, last: checkpoint.Checkpoint) -> str:
    """Says what is wrong with the metrics lines that were there when a checkpoint was taken; '' if nothing is."""
    size = last.note['metrics_bytes']
    content = stored_files.read_bytes(self.path, size) or b''
    if len(content) < size:
      return f'{self.path} is shorter than {last.path} says'
    # An older version's note has no digest.
    digest = hashlib.sha256(content).hexdigest()
    if digest != last.note.get('metrics_sha256', digest):
      return f'{self.path} is damaged: it is not what it was when {last.path} was saved'
    try:
      metrics.read(self.path, size)
    except stored_files.DamagedError as error:
      return str(error)
    return ''

  def _trees(self, last: checkpoint.Checkpoint) -> dict[int, PyTree] | None:
    """The trees that were saved together with the newest; None if one is not there (a kill among the saves)."""
    group = last.note.get('group', [last.note['seed']])
    if last.note['seed'] != group[-1]:
      return None
    serials = {last.note['serial'] - i: seed for i, seed in enumerate(reversed(group))}
    trees = {last.note['seed']: last.tree}
    for path in reversed(checkpoint.found(self.checkpoints)):
      if (serial := checkpoint.note_of(path).get('serial')) in serials and path != last.path:
        try:
          trees[serials[serial]] = checkpoint.read(path).tree
        except checkpoint.DamagedError as error:
          self.say(f'WARNING: {error}; using the one before')
    return {seed: trees[seed] for seed in group} if len(trees) == len(group) else None

  def _ends(self, rounds: Mapping[str, int]) -> dict[str, str]:
    """The last checkpoints of seeds that were over in a run of fewer rounds, as far as they are whole.

    Seeds side by side go on from one round: where the model of one is lost, all of them begin again.
    """
    ends = {}
    for seed, round in rounds.items():
      saved = [p for p in checkpoint.found(self.checkpoints) if str(checkpoint.seed_of(p)) == seed]
      try:
        if not saved or saved[-1].parent.name != str(round):
          raise checkpoint.DamagedError(f'{self.checkpoints}: no checkpoint of round {round}')
        checkpoint.read(saved[-1])
        ends[seed] = str(saved[-1])
      except checkpoint.DamagedError as error:
        self.say(f'WARNING: {error}; seed {seed} begins again')
    lost = {*rounds} - {*ends}
    beside = lambda path: {*map(str, checkpoint.note_of(Path(path)).get('group', ()))}
    for seed in [seed for seed, path in ends.items() if beside(path) & lost]:
      self.say(f'seed {seed} begins again with it, side by side')
      del ends[seed]
    return ends

  def _at_ends(self, seeds: Sequence[int]) -> Saved:
    return Saved({seed: checkpoint.read(Path(self.ends[str(seed)])).tree for seed in seeds}, {})

  def _log_again(self) -> None:
    """Replaces the log by `lines`; the checkpoint that knows of it comes first, so that a kill loses neither."""
    path, self.path = self.path, self.path.with_name('.metrics.jsonl.tmp')
    self.path.unlink(missing_ok=True)
    metrics.truncate(self.path, 0)  # there may be no line
    self.digest = hashlib.sha256()
    for line in self.lines:
      self.digest.update(metrics.append(self.path, line))
    trees = self.last.trees
    rounds = {
      s: int(t.round) if t is not None else self.last.note['round'] for s, t in trees.items()
    }
    self.save({s: (rounds[s], t) for s, t in trees.items()}, self.seconds or {}, keep=True)
    os.replace(self.path, path)
    self.path = path

  @staticmethod
  def _shared(read: Callable[[], Saved | None]) -> Saved | None:
    def encodable():
      last = read()
      return last and {'trees': {str(k): v for k, v in last.trees.items()}, 'note': last.note}

    if not processes.is_distributed():
      return read()
    shared = processes.tree_from_process_0(encodable)
    return shared and Saved({int(k): v for k, v in shared['trees'].items()}, shared['note'])

  def resume(self, seeds: Sequence[int]) -> dict[int, State]:
    """Returns the states to go on from, by seed; none if these seeds have not been saved yet.

    Args:
      seeds: side by side, of which none is over.
    """
    trees = self.last.trees if self.last else {}
    for seed in seeds:
      self.ended.pop(str(seed), None)  # at work again
    if ended := [seed for seed in seeds if str(seed) in self.ends and seed not in trees]:
      trees = {**trees, **self._shared(lambda: self._at_ends(ended)).trees}
    if any(trees.get(seed) is None for seed in seeds):
      return {}
    return {seed: placed(trees[seed]) for seed in seeds}

  def log(self, seed: int, step: Step, seconds: float) -> metrics.Line:
    """Appends one line for an evaluated round.

    Args:
      seed: the seed that was evaluated.
      step: an 'evaluated' step.
      seconds: of the whole run so far.

    Returns:
      The line.
    """
    line = {'round': step.round, 'seed': seed, **step.report, 'seconds': round(seconds, 3)}
    if (since := metrics.collapsed_since([*self.lines[-RECENT:], line], seed)) is not None:
      line['collapsed_since'] = since
    self.lines.append(line)
    if self.write:
      self.digest.update(metrics.append(self.path, line))
      self.board.write(line)
    return line

  def due(self, step: Step) -> bool:
    """Says whether to save now: at ends of phases, by rounds, and by time; never too often by cost."""
    waited = time.monotonic() - self.saved_at
    if step.phase_end or waited > max(SAVE_SECONDS, self.save_cost / SHARE):
      return True
    between = step.kind == 'server_work'
    wanted = waited > CHUNK_SECONDS if between else step.round % self.checkpoint_every == 0
    return wanted and step.round > 0 and waited >= self.save_cost / SHARE

  def save(
    self,
    states: Mapping[int, tuple[int, State | None]],
    seconds: dict[str, float],
    keep: bool = False,
  ) -> None:
    """Saves a checkpoint of every seed at work, and removes those that are no longer needed.

    Args:
      states: by seed, its round and its state, None if it diverged. They are one moment: those of them that
        a kill leaves behind count for nothing without the last.
      seconds: of the run so far, by part.
      keep: never remove them.
    """
    self.peak = max(self.peak, peak_memory_bytes())
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
        'marks': self.marks,
        'metrics_bytes': metrics.length(self.path),
        'metrics_sha256': self.digest.hexdigest(),
        'files': self.files,
        'seconds': seconds,
        'peak_memory_bytes': self.peak,
      }
      checkpoint.save(self.checkpoints, round, seed, state, note)
    checkpoint.prune(self.checkpoints)
    self.saved_at = time.monotonic()
    self.save_cost = self.saved_at - start

  def last_good(self, seed: int) -> str | None:
    """Returns the newest checkpoint of a seed, relative to the folder, or None."""

    def newest():
      mine = [p for p in checkpoint.found(self.checkpoints) if checkpoint.seed_of(p) == seed]
      return mine[-1].relative_to(self.folder).as_posix() if mine else None

    return processes.on_process_0(newest)

  def finish(self, summary: Mapping[str, Any]) -> None:
    """Tells the trackers what a finished run came to, and shows them its figures."""
    if self.board:
      pictures = sorted((self.folder / 'figures').glob('*.png'))
      self.board.results(trackers.results_of(summary), pictures)

  def close(self) -> None:
    """Closes the trackers."""
    if self.board:
      self.board.close()


def peak_memory_bytes() -> int:
  """Returns the most memory in use so far: of the device with the most, or of the process on a CPU."""
  stats = [device.memory_stats() or {} for device in jax.local_devices()]
  on_device = max((s.get('peak_bytes_in_use', 0) for s in stats), default=0)
  unit = 1 if sys.platform == 'darwin' else 1024  # getrusage counts in KiB, but not there
  return int(on_device or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)


def placed(tree: State) -> State:
  """Returns a checkpoint's state on the device, but for per-client state, which the engine puts where it keeps it."""
  return jax.tree.map(jax.numpy.asarray, tree._replace(clients={}))._replace(clients=tree.clients)
