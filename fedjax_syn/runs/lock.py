"""A work folder belongs to one process at a time: its lock, and which process holds it."""

import contextlib
import fcntl
import os
import re
import socket
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import IO

ATTEMPTS = 4  # `owner` in another process holds a lock for a moment


class InUseError(ValueError):
  """Another process works in the folder."""


@contextlib.contextmanager
def hold(folder: Path) -> Iterator[None]:
  """Holds a work folder; the system releases it when the process ends, however it ends.

  Args:
    folder: created if it does not exist, and removed again if no run began in it.

  Raises:
    InUseError: if another process holds it.
    ValueError: if it cannot be created.
  """
  new = [path for path in (folder, *folder.parents) if not os.path.exists(path)]
  try:
    folder.mkdir(parents=True, exist_ok=True)
  except OSError as error:  # beyond permissions: /proc, a quota, a read-only disk
    raise ValueError(f'workdir={folder} cannot be created ({error.strerror})') from error
  path = folder / '.lock'
  if path.is_dir():
    raise ValueError(f'workdir={folder}: {path} is a folder and not a file; move or delete it')
  with _locked(path) as file:
    file.truncate(0)
    file.write(f'process {os.getpid()} on {socket.gethostname()}\n')
    file.flush()
    try:
      yield
    finally:
      file.truncate(0)  # without locks the name alone says who works here
      if not (folder / 'config.json').exists():  # refused: nothing of it stays
        path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # not empty: it holds files of someone else
          for path in new:
            path.rmdir()


def owner(folder: Path) -> str:
  """Returns which process works in a folder, '' if none does; writes nothing."""
  try:
    with (folder / '.lock').open() as file:
      try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
      except BlockingIOError:
        return _name_in(file)
      except OSError:  # a file system without locks
        return name if _is_alive(name := _name_in(file)) else ''
  except OSError:
    pass
  return ''


def _name_in(file: IO[str]) -> str:
  file.seek(0)
  return file.read().strip() or 'another process'


def _is_alive(name: str) -> bool:
  """Returns whether the process named in a lock file is another living process of this machine."""
  match = re.fullmatch(r'process (\d+) on (.*)', name)
  if not match or match[2] != socket.gethostname() or int(match[1]) == os.getpid():
    return False
  try:
    os.kill(int(match[1]), 0)
  except ProcessLookupError:
    return False
  except OSError:  # it belongs to another user
    pass
  return True


def _locked(path: Path) -> IO[str]:
  """Opens a lock file and locks it."""
  folder, attempts = path.parent, 0
  while True:
    folder.mkdir(parents=True, exist_ok=True)
    file = path.open('a+')
    try:
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
      name, held = _name_in(file), isinstance(error, BlockingIOError)
      if not held and not _is_alive(name):  # a file system without locks
        warnings.warn(
          f'workdir={folder} cannot be locked ({error}): start no second run on it', stacklevel=4
        )
        return file
      file.close()
      attempts += 1
      if held and attempts < ATTEMPTS:
        time.sleep(0.02)
        continue
      raise InUseError(
        f'workdir={folder}: {name} uses this folder; wait, or name another folder'
      ) from error
    # A refused run removes its lock: the locked file may be the old one.
    if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
      return file
    file.close()
