"""The folder of a run whose command names none, and what a work folder must be."""

import glob
import itertools
import os
import pathlib
from collections.abc import Iterable, Sequence

from fedjax_syn import config as config_lib
from fedjax_syn.algorithms import own_layers
from fedjax_syn.config import identity
from fedjax_syn.core import paths
from fedjax_syn.runs import continuation

HASH = '[0-9a-f]' * 8  # at the end of a default folder's name


def default_workdir(config, config_name: str, settings: Iterable[str] = ()) -> pathlib.Path:
  """Returns runs/<config>[-<data>]-<algorithm>-<8 hex>: the same command resumes, a changed one starts anew.

  A folder of this run under another hash, of an older version for instance, is found by what its config.json says. The
  same command with more rounds goes on in the same folder, unless something depends on their number.

  Args:
    config: as it is run.
    config_name: of its file.
    settings: what the command line changed: other data than the file's are named.
  """
  resolved = config_lib.check(config)
  named = any(s.lstrip('-').startswith('config.data.name=') for s in settings)
  method = '+'.join(map(own_layers.called, resolved.algorithm.split('+')))
  words = config_name, *([resolved.data.name] if named else []), method
  name = '-'.join(words).replace(':', '.').replace('/', '.')  # 'tfds:emnist/letters' is one folder
  runs = pathlib.Path('runs')
  own = runs / f'{name}-{identity.hash_of_folder(resolved)}'
  others = (p for p in runs.glob(f'{glob.escape(name)}-{HASH}') if p != own)
  return continuation.folder_of(resolved, itertools.chain([own], others)) or own


def check_paths(resolved, workdir: pathlib.Path, files: Sequence[str] = ()) -> None:
  """Refuses a work folder that cannot be written, a beginning that does not exist, and folders where files are written."""
  existing = next(p for p in (workdir.absolute(), *workdir.absolute().parents) if os.path.exists(p))
  if not existing.is_dir() or not os.access(existing, os.W_OK):
    raise ValueError(f'--workdir={workdir}: {existing} is not a folder that can be written to')
  for path in (workdir / name for name in files):
    if path.is_dir():
      raise ValueError(f'--workdir={workdir}: {path} is a folder and not a file; move it away')
  fresh = not os.path.exists(workdir / 'config.json')
  start = resolved.start_from and paths.given(resolved.start_from, 'start_from')
  if start and fresh and not os.path.exists(start):
    raise ValueError(
      f'start_from={resolved.start_from!r}: no such folder; name a checkpoint of another run,'
      ' as in runs/X/checkpoints/50'
    )
