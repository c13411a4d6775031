"""Resuming in a work folder: what must be equal, and how many rounds the run may have."""

import contextlib
import dataclasses
import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedjax_syn.config import Resolved, identity
from fedjax_syn.core import paths
from fedjax_syn.data.dataset import Dataset
from fedjax_syn.data.normalisation import Normalisation
from fedjax_syn.data.split import Split
from fedjax_syn.runs import checkpoint, lock, loop, metrics, start_from, stored_files, work_folder


def open_folders(
  runs: Sequence[tuple[Resolved, Path, str]],
  stack: contextlib.ExitStack,
  say: Callable[[str], None],
) -> dict[str, Any] | None:
  """Locks a run's folder and checks that everything in it belongs to the run and is whole.

  Args:
    runs: configs, folders and labels that this command trains, the run itself last.
    stack: holds the lock.
    say: told what is damaged and is written again.

  Returns:
    The run's summary if it is finished and nothing is to be written again.

  Raises:
    ValueError: if the folder is another run's or in use, or damage cannot be repaired.
  """
  resolved, folder, _ = runs[-1]
  stack.enter_context(lock.hold(folder))
  damaged = False
  for config, path, _ in reversed(runs):  # the main folder's reasons first
    check_config(path, config)
    if odd := work_folder.misplaced(path, config.seeds):
      raise stored_files.DamagedError(f'{odd}; move or delete it')
    for line in _damages(path, config):
      say(f'WARNING: {line}; made again from the checkpoints')
      damaged = True
  _check_compared(folder, [path for _, path, _ in runs])
  return None if damaged else finished_summary(folder, resolved.rounds)


def _check_compared(folder: Path, planned: Sequence[Path]) -> None:
  """Raises ValueError if methods began in a folder that are not among those compared now."""
  for path in work_folder.compared(folder):
    if path not in planned and has_begun(path):
      algorithm = (work_folder.config(path) or {})['config']['algorithm']
      raise ValueError(
        f'workdir={folder}: another comparison began here ({path.relative_to(folder)} holds'
        f' {algorithm}); name another folder'
      )


def _damages(folder: Path, config: Resolved) -> list[str]:
  """States, one line each, what of a finished run is damaged or missing.

  Raises:
    DamagedError: for the summary or the metrics, if no checkpoint can restore them.
  """
  try:
    summary = work_folder.summary(folder, config.seeds)
    if summary and (wrong := stored_files.fault(summary, work_folder.SHOWN)):
      raise stored_files.DamagedError(f'{folder / "summary.json"} is damaged: {wrong}')
  except stored_files.DamagedError as error:
    if not checkpoint.list_unsorted(folder / 'checkpoints'):
      raise
    return [str(error)]
  if not summary or summary['rounds'] != config.rounds:
    return []
  known = summary.get('files', {}).values()
  return [line for files in known for line in work_folder.faults(folder, files)]


def has_begun(folder: Path) -> bool:
  """Returns whether a folder holds anything of a round; before that, it is bound to no settings."""
  if checkpoint.list_unsorted(folder / 'checkpoints') or (folder / 'summary.json').exists():
    return True
  try:
    return any(line['round'] > 0 for line in metrics.read(folder / 'metrics.jsonl'))
  except stored_files.DamagedError:
    return True


def check_config(folder: Path, resolved: Resolved) -> None:
  """Checks that a folder is free, or holds this run with no more rounds than are asked for now.

  Args:
    folder: the run's.
    resolved: the config of this command. Nothing that the folder's config.json names is imported.

  Raises:
    ValueError: in one line, if settings, own code or the checkpoint to start from differ, the
      rounds cannot be followed, or the folder holds something else.
  """
  before = work_folder.config(folder)
  if before is None and (left := work_folder.left_by_runs(folder)):
    raise ValueError(f'workdir={folder}: holds {left[0]} but no config.json; name another folder')
  if before is None or not has_begun(folder):
    return
  old, rounds = before['config'], before['config']['rounds']
  dependent = identity.depends_on_rounds(resolved, rounds) if rounds != resolved.rounds else []
  ignored = ('rounds:', *(f'{key}:' for key in dependent))
  start_before = before.get('start_digests', {})
  start = start_from.digests(resolved.start_from, resolved.seeds, resolved.rounds)
  if start and start == start_before:  # the same content under another path
    ignored += ('start_from:',)
  changes = [line for line in identity.diff(old, resolved) if not line.startswith(ignored)]
  if changes:
    raise ValueError(
      f'workdir={folder}: was started under another config ({"; ".join(changes)});'
      ' name another folder'
    )
  saved = checkpoint.list_unsorted(folder / 'checkpoints')
  with_own = {checkpoint.seed_of(path) for path in saved}
  for seed, now in start.items():
    if int(seed) not in with_own and start_before.get(seed, now) != now:
      raise ValueError(
        f'workdir={folder}: start_from={resolved.start_from} holds another checkpoint of seed'
        f' {seed} than when the run began; name another folder'
      )
  for word, now in identity.own_code(resolved).items():
    if before.get('own_code', {}).get(word, now) != now:
      raise ValueError(
        f'workdir={folder}: was started with another version of {word}; name another folder'
      )
  if rounds != resolved.rounds:
    _check_rounds(folder, rounds, resolved, dependent, saved)


def _check_rounds(
  folder: Path, before: int, resolved: Resolved, dependent: Sequence[str], saved: Sequence[Path]
) -> None:
  now = resolved.rounds
  by_round: dict[int, set[int]] = {}  # seeds
  for path in saved:
    by_round.setdefault(int(path.parent.name), set()).add(checkpoint.seed_of(path))
  where = f'workdir={folder}: was started for rounds={before}'
  if dependent:
    of_all_seeds = [r for r in sorted(by_round) if r < now and by_round[r] >= {*resolved.seeds}]
    advice = 'name another folder'
    # Noise must begin in round 1.
    if of_all_seeds and all(key.startswith('client.') for key in dependent):
      start = f'--config.start_from={folder}/checkpoints/{of_all_seeds[-1]}'
      advice = f'a branch continues: {start} --config.rounds={now} --workdir={folder}-{now}'
    raise ValueError(
      f'{where}, and {", ".join(dependent)} depends on it: rounds={now} is another run; {advice}'
    )
  if not saved:
    raise ValueError(f'{where} and holds no checkpoint to continue from; name another folder')
  done = max(by_round)
  most = now - loop.LAST if resolved.eval_every > 1 else now - bool(resolved.personal_every)
  if now < before and done > most:
    raise ValueError(f'{where}, and {done} are done: rounds={now} needs another folder')


def _before(folder: Path) -> dict[str, Any]:
  """Returns the config.json of a run that began; {} before its first round."""
  return (work_folder.config(folder) or {}) if has_begun(folder) else {}


def data_moved(folder: Path, resolved: Resolved) -> bool:
  """Returns whether a run's data lie elsewhere than before, by its config."""
  before = _before(folder).get('config', {}).get('data', {})
  return not identity.same_place(before.get('dir', resolved.data.dir), resolved.data.dir)


def check_data(folder: Path, dataset: Dataset) -> None:
  """Checks that a run that began finds the data that it began with, wherever they lie now.

  Args:
    folder: the run's.
    dataset: what was read now.

  Raises:
    ValueError: in one line, if any part that changes a result differs.
  """
  before = _before(folder)
  known = {**before.get('data_digests', {})}
  known['rows'] = before.get('dataset', {}).get('checksum', dataset.checksum)
  for part, now in data_digests(dataset).items():
    if (was := known.get(part, now)) != now:
      other = 'other data' if part == 'rows' else f'other data ({part})'
      raise ValueError(
        f'workdir={folder}: was started with {other} (checksum {was[:8]}, now {now[:8]});'
        ' name another folder'
      )


def data_digests(dataset: Dataset) -> dict[str, str]:
  """Returns a checksum of every part of a data set that changes a result, by name.

  The data set's own checksum covers the rows for training and testing and their clients. A user's
  function may state any checksum, so all of its parts are read.
  """
  own = ':' in dataset.name and not dataset.name.startswith('tfds:')
  covered = () if own else ('train', 'test', 'clients')
  parts = {'rows': dataset.checksum}
  for field in dataclasses.fields(dataset):
    arrays = _arrays_of(getattr(dataset, field.name))
    if arrays and field.name not in covered:
      digest = hashlib.sha256()
      for array in arrays:
        digest.update(f'{array.dtype.str} {array.shape};'.encode())
        digest.update(np.ascontiguousarray(array).data)
      parts[field.name] = digest.hexdigest()
  return parts


def _arrays_of(value: Any) -> list[np.ndarray]:
  """Returns the numbers of a data set's field; [] for names and sentences."""
  if isinstance(value, Normalisation):  # computed, so the last digit may differ elsewhere
    numbers = [*np.ravel(value.mean), *np.ravel(value.std)]
    return [np.array([f'{float(number):.5g}' for number in numbers], 'S16')]
  if isinstance(value, int | np.ndarray):
    return [np.asarray(value)]
  return [np.asarray(a) for a in value] if isinstance(value, Split) else []


def stored_layout(folder: Path) -> dict[str, Any] | None:
  """Returns the layout with which a run began; None before its first round."""
  return _before(folder).get('layout')


def start_of_compared(resolved: Resolved, folder: Path) -> str:
  """Returns where the method that a run is compared with starts from: a model of its own.

  Args:
    resolved: of the compared method; its `start_from` is where the run's own method starts from.
    folder: of the compared method.

  Returns:
    A checkpoint of the compared method in the same round, from the source run or from what that was
    compared with; '' for a new model. A run that began keeps its start.
  """
  if not resolved.start_from:
    return ''
  began = _before(folder)
  before = began.get('config', {}).get('start_from', '')
  if began and not (before and identity.same_place(before, resolved.start_from)):
    return before
  source = paths.given(resolved.start_from, 'start_from')
  run = source.parent.parent
  others = sorted(work_folder.compared(run), key=lambda other: other.name != folder.name)
  for other in (run, *others):
    algorithm = (work_folder.config(other) or {}).get('config', {}).get('algorithm')
    path = other / source.parent.name / source.name
    if algorithm == resolved.algorithm and path.is_dir():
      return resolved.start_from if other == run else str(path)
  return ''


def finished_summary(folder: Path, rounds: int) -> dict[str, Any] | None:
  """Returns the summary of a run that has all of its rounds; None if it is damaged or has fewer."""
  with contextlib.suppress(stored_files.DamagedError):  # which `open_folders` said
    summary = work_folder.summary(folder)
    if summary and summary.get('rounds', rounds) == rounds:
      return summary
  return None


def rename_old_summary(folder: Path, rounds: int) -> None:
  """Renames the summary of a run that continues to more rounds: it is of fewer rounds."""
  with contextlib.suppress(stored_files.DamagedError):
    summary = work_folder.summary(folder)
    if summary and (before := summary.get('rounds', rounds)) != rounds:
      (folder / 'summary.json').rename(folder / f'summary_{before}.json')


def lost_models(folder: Path, summary: Mapping[str, Any]) -> list[str]:
  """States, one line each, which finished seeds have no last checkpoint, and so no model."""
  saved = checkpoint.list_sorted(folder / 'checkpoints')
  newest = {checkpoint.seed_of(path): int(path.parent.name) for path in saved}
  return [
    f'{folder / "checkpoints"} holds no checkpoint of the last round of seed {seed}:'
    ' its model is lost'
    for seed, status in summary['status'].items()
    if status['status'] == 'finished' and newest.get(int(seed)) != summary['rounds']
  ]
