"""A run's folder as a run finds it: another run's, new, to be gone on with, or finished; and what of it is damaged."""

import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedjax_syn import config as config_lib
from fedjax_syn.config import identity
from fedjax_syn.runs import checkpoint, continuation, run_folder, stored_files
from fedjax_syn.runs import work_folder as workdir_lib


def take(
  folder: Path,
  tasks: Sequence[tuple[config_lib.Resolved, Path]],
  stack: contextlib.ExitStack,
  say: Callable[[str], None],
) -> dict[str, Any] | None:
  """Locks a run's folder, and sees whether all that was left there is whole.

  Args:
    folder: the run's.
    tasks: configs and folders of what is to be trained now; the run itself is the last.
    stack: holds the lock.
    say: told what is damaged and is made again.

  Returns:
    The run's summary, if it was finished before and there is nothing to be made again.

  Raises:
    ValueError: if it is another run's folder, or in use, or something is damaged that cannot be made again.
  """
  stack.enter_context(workdir_lib.lock(folder))
  damaged = False
  for config, path in reversed(tasks):  # the main folder's reasons first
    workdir_lib.check_config(path, config)
    if odd := misplaced(path, config.seeds):
      raise stored_files.DamagedError(f'{odd}; move it away')
    for line in (wrong := faults(path, config)):
      say(f'WARNING: {line}; made again from the checkpoints')
    damaged = damaged or bool(wrong)
  return None if damaged else continuation.finished(folder, tasks[-1][0].rounds)


def misplaced(folder: Path, seeds: Sequence[int]) -> str:
  """Names a folder where a run writes a file, or a file where it writes into a folder; '' if there is none."""
  names = run_folder.names(seeds)
  for path in (folder / name for name in names):
    if path.is_dir():
      return f'{path} is a folder and not a file'
  numbered = [p for p in (folder / 'checkpoints').glob('*') if p.name.isdecimal()]
  above = {(folder / name).parent for name in names} | {folder / 'checkpoints', *numbered}
  for path in sorted(above - {folder}):
    if os.path.lexists(path) and not path.is_dir():
      return f'{path} is no folder'
  return ''


def faults(folder: Path, config: config_lib.Resolved) -> list[str]:
  """Says, a line each, what of a finished run is damaged or missing.

  Args:
    folder: the run's.
    config: its config.

  Raises:
    DamagedError: if it is the summary or the metrics, and there is no checkpoint to make them from.
  """
  try:
    summary = run_folder.summary(folder, config.seeds)
    if summary and (wrong := stored_files.fault(summary, run_folder.SHOWN)):
      raise stored_files.DamagedError(f'{folder / "summary.json"} is damaged: {wrong}')
  except stored_files.DamagedError as error:
    if not checkpoint.found(folder / 'checkpoints'):
      raise
    return [str(error)]
  if not summary or summary['rounds'] != config.rounds:
    return []
  known = summary.get('files', {}).values()
  return [line for files in known for line in run_folder.faults(folder, files)]


def finished_at(folder: Path) -> str:
  """Says when a finished run came to its end, in local time."""
  changed = (folder / 'summary.json').stat().st_mtime
  return time.strftime('%Y-%m-%d %H:%M', time.localtime(changed))


def lost_models(folder: Path, summary: Mapping[str, Any]) -> list[str]:
  """Says, a line each, of which finished seeds the last checkpoint, and with it the model, is not there any more."""
  newest = {
    checkpoint.seed_of(p): int(p.parent.name) for p in checkpoint.found(folder / 'checkpoints')
  }
  ended = {s: v for s, v in summary['status'].items() if v['status'] == 'finished'}
  return [
    f'{folder / "checkpoints"} holds no checkpoint of the last round of seed {seed}: its model is lost'
    for seed in ended
    if newest.get(int(seed)) != summary['rounds']
  ]


def moved(folder: Path, resolved: config_lib.Resolved) -> bool:
  """Says whether a run's data are said to lie elsewhere than before."""
  before = (run_folder.config(folder) or {}).get('config', {}).get('data', {})
  return not identity.same_place(before.get('dir', resolved.data.dir), resolved.data.dir)
