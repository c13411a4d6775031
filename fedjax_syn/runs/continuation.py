"""Going on in a run's folder: what must be what it was, and how many rounds a run that was begun may have."""

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedjax_syn.config import identity
from fedjax_syn.config.schema import Resolved
from fedjax_syn.core import paths
from fedjax_syn.data.dataset import Dataset
from fedjax_syn.data.normalisation import Normalisation
from fedjax_syn.data.split import Split
from fedjax_syn.runs import checkpoint, metrics, run_folder, start_from, stored_files

LAST = 5  # rounds that are evaluated whatever `eval_every` is


def begun(folder: Path) -> bool:
  """Says whether a folder holds anything of a round: until it does, nothing binds it to what it was begun with."""
  if checkpoint.there(folder / 'checkpoints') or (folder / 'summary.json').exists():
    return True
  try:
    return any(line['round'] > 0 for line in metrics.read(folder / 'metrics.jsonl'))
  except stored_files.DamagedError:  # of what, nobody knows
    return True


def check_settings(folder: Path, before: Mapping[str, Any], resolved: Resolved) -> None:
  """Checks that a run that was begun is the one that is asked for now.

  Args:
    folder: the run's.
    before: its config.json; nothing that it names is imported.
    resolved: the config of the command that was given now; more rounds than before are no other run.

  Raises:
    ValueError: in one line, if settings or own code differ, or the number of rounds cannot be followed.
  """
  old, rounds = before['config'], before['config']['rounds']
  dependent = identity.depends_on_rounds(resolved, rounds) if rounds != resolved.rounds else []
  ignored = ('rounds:', *(f'{key}:' for key in dependent))
  begun_at = before.get('start_digests', {})
  start = start_from.digests(resolved.start_from, resolved.seeds, resolved.rounds)
  if start and start == begun_at:  # of one content: it was moved
    ignored += ('start_from:',)
  changes = [line for line in identity.diff(old, resolved) if not line.startswith(ignored)]
  if changes:
    raise ValueError(
      f'workdir={folder}: was started under another config ({"; ".join(changes)}); name another folder'
    )
  saved = {checkpoint.seed_of(path) for path in checkpoint.there(folder / 'checkpoints')}
  for seed, now in start.items():
    if int(seed) not in saved and begun_at.get(seed, now) != now:
      raise ValueError(
        f'workdir={folder}: start_from={resolved.start_from} holds another checkpoint of seed {seed} than when the run'
        ' began; name another folder'
      )
  for word, now in identity.own_code(resolved).items():
    if before.get('own_code', {}).get(word, now) != now:
      raise ValueError(
        f'workdir={folder}: was started with another version of {word}; name another folder'
      )
  if rounds != resolved.rounds:
    _check_rounds(folder, rounds, resolved, dependent)


def _check_rounds(folder: Path, before: int, resolved: Resolved, dependent: Sequence[str]) -> None:
  now, saved = resolved.rounds, checkpoint.there(folder / 'checkpoints')
  done = max((int(path.parent.name) for path in saved), default=0)
  where = f'workdir={folder}: was started for rounds={before}'
  if dependent:
    of_all = [r for r in _rounds_of_all(saved, resolved.seeds) if r < now]
    advice = 'name another folder'
    if of_all and all(
      key.startswith('client.') for key in dependent
    ):  # noise must begin in round 1
      start = f'--config.start_from={folder}/checkpoints/{of_all[-1]}'
      advice = f'a branch goes on: {start} --config.rounds={now} --workdir={folder}-{now}'
    raise ValueError(
      f'{where}, and {", ".join(dependent)} depends on it: rounds={now} is another run; {advice}'
    )
  if not saved:
    raise ValueError(f'{where} and holds no checkpoint to go on from; name another folder')
  most = now - LAST if resolved.eval_every > 1 else now - bool(resolved.personal_every)
  if now < before and done > most:
    raise ValueError(f'{where}, and {done} are done: rounds={now} needs another folder')


def _rounds_of_all(saved: Sequence[Path], seeds: Sequence[int]) -> list[int]:
  """The rounds, in order, of which every seed has a checkpoint."""
  by_round: dict[int, set[int]] = {}
  for path in saved:
    by_round.setdefault(int(path.parent.name), set()).add(checkpoint.seed_of(path))
  return sorted(r for r, there in by_round.items() if there >= {*seeds})


def check_data(folder: Path, before: Mapping[str, Any], dataset: Dataset) -> None:
  """Checks that a run that was begun finds the data that it began with, wherever they lie now.

  Args:
    folder: the run's.
    before: its config.json.
    dataset: what was read now.

  Raises:
    ValueError: in one line, if anything of it that changes a result differs.
  """
  known = {**before.get('data_digests', {})}
  known |= {'rows': before.get('dataset', {}).get('checksum', dataset.checksum)}
  for part, now in digests(dataset).items():
    if (was := known.get(part, now)) != now:
      other = 'other data' if part == 'rows' else f'other data ({part})'
      raise ValueError(
        f'workdir={folder}: was started with {other} (checksum {was[:8]}, now {now[:8]}); name another folder'
      )


def digests(dataset: Dataset) -> dict[str, str]:
  """Returns a checksum of every part of a data set that changes a result, by name.

  The data set's own checksum covers the rows for training and for testing, and whose they are. A function of a user's
  may say of itself what it likes: all of its parts are looked at.
  """
  own = ':' in dataset.name and not dataset.name.startswith('tfds:')
  covered = () if own else ('train', 'test', 'clients')
  parts = {'rows': dataset.checksum}
  for field in dataclasses.fields(dataset):
    content = _content(getattr(dataset, field.name))
    if content and field.name not in covered:
      digest = hashlib.sha256()
      for array in content:
        digest.update(f'{array.dtype.str} {array.shape};'.encode())
        digest.update(np.ascontiguousarray(array).data)
      parts[field.name] = digest.hexdigest()
  return parts


def _content(value: Any) -> list[np.ndarray]:
  """The numbers of a data set's field; none of names and sentences."""
  if isinstance(value, Normalisation):  # what is computed may differ in the last digit elsewhere
    numbers = [*np.ravel(value.mean), *np.ravel(value.std)]
    return [np.array([f'{float(number):.5g}' for number in numbers], 'S16')]
  if isinstance(value, int | np.ndarray):
    return [np.asarray(value)]
  return [np.asarray(a) for a in value] if isinstance(value, Split) else []


def stored_layout(folder: Path) -> dict[str, Any] | None:
  """Returns the layout with which a run was begun; None if there is nothing of a round yet."""
  return (run_folder.config(folder) or {}).get('layout') if begun(folder) else None


def start_of_compared(resolved: Resolved, folder: Path) -> str:
  """Says where the method that a run is compared with begins: at a model of its own, never at the other method's.

  Args:
    resolved: of the run; `start_from` is where its own method begins.
    folder: of the compared method.

  Returns:
    A checkpoint of the compared method of the same round: the source's, or of what the source was compared with;
    '' if there is none, so that it begins anew. One that was begun keeps where it began.
  """
  if not resolved.start_from:
    return ''
  before = (run_folder.config(folder) or {}).get('config', {}).get('start_from', '')
  if begun(folder) and not (before and identity.same_place(before, resolved.start_from)):
    return before
  source = paths.given(resolved.start_from, 'start_from')
  run = source.parent.parent
  for home in (run, run / 'compare'):
    algorithm = (run_folder.config(home) or {}).get('config', {}).get('algorithm')
    path = home / source.parent.name / source.name
    if algorithm == resolved.compare and path.is_dir():
      return resolved.start_from if home == run else str(path)
  return ''


def finished(folder: Path, rounds: int) -> dict[str, Any] | None:
  """Returns the summary of a run that has all of its rounds; None if it has none, a damaged one, or of fewer rounds."""
  summary = _summary(folder)
  return summary if summary and summary.get('rounds', rounds) == rounds else None


def _summary(folder: Path) -> dict[str, Any] | None:
  try:
    return run_folder.summary(folder)
  except stored_files.DamagedError:  # which was said when the folder was opened
    return None


def put_aside(folder: Path, rounds: int) -> None:
  """Renames the summary of a run that goes on to more rounds: it is that of the rounds before."""
  summary = _summary(folder)
  if summary and (before := summary.get('rounds', rounds)) != rounds:
    (folder / 'summary.json').rename(folder / f'summary_{before}.json')


def folder_of(resolved: Resolved, folders: Iterable[Path]) -> Path | None:
  """Finds the folder in which a run was begun.

  Args:
    resolved: of the run.
    folders: where it may be, the likeliest first; what their config.json names is not imported.

  Returns:
    The folder of this very run, else that of the most rounds which can go on to those asked for; None without one.
  """
  rounds, of_all = {}, identity.of_all_methods(resolved)
  for folder in folders:
    try:
      old = stored_files.read_json(folder / 'config.json')[
        'config'
      ]  # its shape only if it may be this run
      if identity.differs(old, of_all) or not identity.same_data_folder(old, resolved):
        continue
      if not begun(folder):
        continue
      before = run_folder.config(folder)
      check_settings(folder, before, resolved)
      rounds[folder] = old['rounds']
      if old['rounds'] == resolved.rounds:
        break
    except (ValueError, LookupError, TypeError, AttributeError, OSError):  # another run, or none
      continue
  return max(
    rounds, key=lambda folder: (rounds[folder] <= resolved.rounds, rounds[folder]), default=None
  )
