"""The work folder of a command that names none, and what a work folder must be."""

import glob
import itertools
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fedjax_syn import config as config_lib
from fedjax_syn.config import Resolved, identity
from fedjax_syn.config.schema import flatten
from fedjax_syn.core import own_code, paths
from fedjax_syn.runs import resume, stored_files

HASH = '[0-9a-f]' * 8  # ends a default folder's name


def default_workdir(config: Any, config_name: str, settings: Iterable[str] = ()) -> Path:
  """Returns runs/<config>[-<data>]-<algorithm>-<8 hex>.

  The same command resumes there and a changed one gets another folder. The same command with more
  rounds gets the same folder, unless something depends on their number. Folders of this run under
  another hash, of older versions for instance, are identified by their config.json.

  Args:
    config: as it is run.
    config_name: of its file.
    settings: of the command line; if they change the data set, the folder names it.
  """
  resolved = config_lib.check(config)
  named = any(s.lstrip('-').startswith('config.data.name=') for s in settings)
  method = '+'.join(map(own_code.called, resolved.algorithm.split('+')))
  words = config_name, *([own_code.called(resolved.data.name)] if named else []), method
  name = '-'.join(words).replace(':', '.').replace('/', '.')  # 'tfds:emnist/letters' is one folder
  runs = Path('runs')
  default = runs / f'{name}-{identity.hash_of_folder(resolved)}'
  others = (p for p in runs.glob(f'{glob.escape(name)}-{HASH}') if p != default)
  return folder_of(resolved, itertools.chain([default], others)) or default


def folder_of(resolved: Resolved, folders: Iterable[Path]) -> Path | None:
  """Returns the folder in which a run began.

  Args:
    resolved: of the run.
    folders: candidates, the likeliest first; nothing that their config.json names is imported.

  Returns:
    The folder of this very run, else of the one with the most rounds that can continue to the
    rounds asked for; None without one.
  """
  rounds: dict[Path, int] = {}
  of_all = identity.of_all_methods(resolved)
  for folder in folders:
    try:
      # Its shape is checked only if it may be this run.
      old = stored_files.read_json(folder / 'config.json')['config']
      differs = any(stored != of_all[key] for key, stored in flatten(old).items() if key in of_all)
      if differs or not identity.same_data_folder(old, resolved):
        continue
      if not resume.has_begun(folder):
        continue
      resume.check_config(folder, resolved)
      rounds[folder] = old['rounds']
      if old['rounds'] == resolved.rounds:
        break
    except (ValueError, LookupError, TypeError, AttributeError, OSError):  # another run, or none
      continue
  return max(
    rounds, key=lambda folder: (rounds[folder] <= resolved.rounds, rounds[folder]), default=None
  )


def check_paths(resolved: Resolved, workdir: Path, files: Sequence[str] = ()) -> None:
  """Checks that a work folder can be written and that the checkpoint to start from exists.

  Args:
    resolved: of the run.
    workdir: its folder.
    files: that are written into the folder, beside a run's own.

  Raises:
    ValueError: in one line.
  """
  existing = next(p for p in (workdir.absolute(), *workdir.absolute().parents) if os.path.exists(p))
  if not existing.is_dir() or not os.access(existing, os.W_OK):
    raise ValueError(f'--workdir={workdir}: {existing} is not a folder that can be written to')
  for path in (workdir / name for name in files):
    if path.is_dir():
      raise ValueError(f'--workdir={workdir}: {path} is a folder and not a file; move or delete it')
  fresh = not os.path.exists(workdir / 'config.json')
  start = resolved.start_from and paths.given(resolved.start_from, 'start_from')
  if start and fresh and not os.path.exists(start):
    raise ValueError(
      f'start_from={resolved.start_from!r}: no such folder; name a checkpoint of another run,'
      ' as in runs/X/checkpoints/50'
    )
