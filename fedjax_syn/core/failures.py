"""Failures that a run did not cause: a full disk, or the loss of another of its processes."""

import errno
import os
from collections.abc import Iterator

NO_SPACE = {code: os.strerror(code) for code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)}
NAMES = {errno.errorcode[code]: text for code, text in NO_SPACE.items()}
# What the collectives of JAX's back ends and its coordination service say of a process that is
# gone.
GONE = (
  'Gloo',
  'NCCL',
  'Connection reset by peer',
  'Connection closed by peer',
  'coordination service',
  'CoordinationService',
  'Barrier timed out',
  'heartbeat timeout',
)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
  """An error, and those that it came from."""
  seen: set[int] = set()
  while error is not None and id(error) not in seen:
    seen.add(id(error))
    yield error
    error = error.__cause__ or error.__context__


def no_space(error: BaseException) -> str:
  """States in a line what could not be written to a full disk; '' if this is no such error.

  Args:
    error: an OSError, or what a library makes of one (Orbax says it in its text).
  """
  for part in _chain(error):
    if isinstance(part, OSError) and part.errno in NO_SPACE:
      where = f'{part.filename}: ' if part.filename else ''
      return f'{where}{NO_SPACE[part.errno]}'
    for name, text in NAMES.items():
      if name in str(part) or text in str(part):
        return text
  return ''


def pass_on(error: OSError, path: os.PathLike) -> None:
  """Raises an error of a full disk again, with the path; returns if it is no such error."""
  if no_space(error):
    raise OSError(error.errno, error.strerror, str(path)) from error


def peer_lost(error: BaseException) -> bool:
  """Returns whether an error of a run of several processes means that another one is gone."""
  return any(any(word in str(part) for word in GONE) for part in _chain(error))
