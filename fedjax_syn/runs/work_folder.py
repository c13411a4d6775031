"""A run's folder: its lock and its config.json."""

import contextlib
import fcntl
import importlib.metadata
import json
import os
import platform
import re
import socket
import subprocess
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import jax

import fedjax_syn
from fedjax_syn import config as config_lib
from fedjax_syn.data.dataset import Dataset
from fedjax_syn.runs import continuation, run_folder, stored_files
from fedjax_syn.runs.checkpoint import fsync

# What a run leaves; a folder that holds some of it and no config.json is none to begin a run in.
LEFT = (
  'metrics.jsonl',
  'checkpoints',
  'summary.json',
  'partition.npz',
  'clients',
  'synthetic',
  'figures',
  'hparams',
  'events.out.*',
)
PACKAGES = ('jax', 'jaxlib', 'flax', 'optax', 'chex', 'orbax-checkpoint', 'numpy')


LOOKS = 3  # at a lock that is held, before it is believed


class InUseError(ValueError):
  """Another process works in the folder."""


@contextlib.contextmanager
def lock(folder: Path) -> Iterator[None]:
  """Holds a run's folder; the system releases it when the process ends, however it ends.

  Args:
    folder: made if it is not there, and taken away again if no run was begun in it.

  Raises:
    InUseError: if another process holds it.
    ValueError: if it cannot be made.
  """
  new = [path for path in (folder, *folder.parents) if not os.path.exists(path)]
  try:
    folder.mkdir(parents=True, exist_ok=True)
  except OSError as error:  # the rights are not all: /proc, a quota, a disk that is read only
    raise ValueError(f'workdir={folder} cannot be made ({error.strerror})') from error
  path = folder / '.lock'
  if path.is_dir():
    raise ValueError(f'workdir={folder}: {path} is a folder and not a file; move it away')
  with _held(path) as file:
    file.truncate(0)
    file.write(f'process {os.getpid()} on {socket.gethostname()}\n')
    file.flush()
    try:
      yield
    finally:
      file.truncate(0)  # without locks its name alone says who is at work
      if not (folder / 'config.json').exists():  # refused: nothing of it stays
        path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # not empty: somebody else's
          for path in new:
            path.rmdir()


def owner(folder: Path) -> str:
  """Says which process is at work in a folder; '' if none is.

  Args:
    folder: a run's; nothing is written into it.
  """
  try:
    with (folder / '.lock').open() as file:
      try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
      except BlockingIOError:
        return _named(file)
      except OSError:  # a file system without locks
        return named if _lives(named := _named(file)) else ''
  except OSError:
    pass
  return ''


def _named(file: IO[str]) -> str:
  file.seek(0)
  return file.read().strip() or 'another process'


def _lives(named: str) -> bool:
  """Says whether the process that a lock file names is another one of this machine that is alive."""
  match = re.fullmatch(r'process (\d+) on (.*)', named)
  if not match or match[2] != socket.gethostname() or int(match[1]) == os.getpid():
    return False
  try:
    os.kill(int(match[1]), 0)
  except ProcessLookupError:
    return False
  except OSError:  # it belongs to somebody else
    pass
  return True


def _held(path: Path) -> IO[str]:
  """Opens a lock file and locks it."""
  looks = 0
  while True:
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open('a+')
    try:
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
      with file:
        named = _named(file)
      if looks < LOOKS:  # `owner` holds it for a moment
        looks += 1
        time.sleep(0.02)
        continue
      raise InUseError(
        f'workdir={path.parent}: {named} is at work here; wait, or name another folder'
      ) from error
    except OSError as error:  # a file system without locks
      if _lives(named := _named(file)):
        file.close()
        raise InUseError(
          f'workdir={path.parent}: {named} is at work here; wait, or name another folder'
        ) from error
      warnings.warn(
        f'workdir={path.parent} cannot be locked ({error}): start no second run on it', stacklevel=4
      )
      return file
    # A run that was refused takes its lock away: what was locked may be the old file.
    if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
      return file
    file.close()


def write_json(path: Path, value: Any) -> None:
  """Writes a JSON file that is either complete or not there; a dict with the digest of what it holds, see `stored`."""
  value = stored_files.sealed(value) if isinstance(value, dict) else value
  temporary = path.with_name(f'.{path.name}.tmp')
  try:
    temporary.write_text(json.dumps(value, indent=1, allow_nan=False) + '\n')
    fsync(temporary)
  except OSError:
    temporary.unlink(missing_ok=True)
    raise
  os.replace(temporary, path)
  fsync(path.parent)


def check_config(folder: Path, resolved: config_lib.Resolved) -> None:
  """Checks that a folder is free, or holds this run: of no more rounds than are asked for now.

  Args:
    folder: the run's folder.
    resolved: the config of the command that was given now.

  Raises:
    ValueError: if the run was started under another config, or the folder holds something else.
  """
  before = run_folder.config(folder)
  if before is None:
    if foreign := sorted(p.name for name in LEFT for p in folder.glob(name)):
      raise ValueError(
        f'workdir={folder}: holds {foreign[0]} but no config.json; name another folder'
      )
    return
  if continuation.begun(folder):
    continuation.check_settings(folder, before, resolved)


def check_data(folder: Path, dataset: Dataset) -> None:
  """Checks that a run that goes on finds the data that it began with, see `continuation.check_data`."""
  if continuation.begun(folder):
    continuation.check_data(folder, run_folder.config(folder) or {}, dataset)


def environment() -> dict[str, Any]:
  """Returns versions, devices and the commit that a result comes from."""
  versions = {'python': platform.python_version(), 'fedjax_syn': fedjax_syn.__version__}
  versions |= {name: importlib.metadata.version(name) for name in PACKAGES}
  return {
    'versions': versions,
    'devices': [f'{d.platform} {d.device_kind}' for d in jax.devices()],
    'host': {'name': socket.gethostname(), 'machine': platform.machine(), 'cores': os.cpu_count()},
    'commit': _commit(),
  }


def _commit() -> str | None:
  """The package's own commit, with '-dirty' behind it if files differ; None outside a checkout."""
  root = Path(fedjax_syn.__file__).resolve().parent.parent
  command = ['git', 'describe', '--always', '--dirty', '--abbrev=40', '--exclude=*']
  if not (root / '.git').exists():
    return None
  try:
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=10)
  except (OSError, subprocess.TimeoutExpired):
    return None
  return done.stdout.strip() or None
