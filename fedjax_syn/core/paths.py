"""Paths as people write them, and files that are written whole or not at all."""

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import fedjax_syn

# In a checkout this is a link to configs/ beside the package.
CONFIGS = (Path(fedjax_syn.__file__).parent / 'configs').resolve()
DEFAULT_CONFIG = CONFIGS / 'one_digit.py'


def shipped_configs() -> dict[str, Path]:
  """Returns the configs that come with the package, by name."""
  return {file.stem: file for file in sorted(CONFIGS.glob('[a-z]*.py'))}


def given(path: str | Path, key: str = '') -> Path:
  """Returns a path as written by a person, with `~` and `~user` expanded.

  Args:
    path: as written; a shell expands `~` at the beginning of a word only, so not in
      `--workdir=~/runs`.
    key: what the message names, '--workdir' for instance.

  Raises:
    ValueError: if there is no such user: nobody wants a folder that is called so.
  """
  expanded = os.path.expanduser(path)
  if os.fspath(expanded).startswith('~'):
    name = f'{key}={path}' if key else str(path)
    raise ValueError(
      f'{name}: there is no such home folder; a folder with this name is written ./{path}'
    )
  return Path(expanded)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
  """Replaces a file in one step: it has the old content or the new one, and no other file stays.

  Args:
    path: of the file, in an existing folder; several processes may write it at the same time.

  Yields:
    A file for the new content, which is on the disk under `path` when the block ends.

  Raises:
    OSError: if it cannot be written.
  """
  half = path.with_name(f'.{os.getpid()}.tmp')
  try:
    with half.open('wb') as file:
      yield file
    fsync(half)
    half.replace(path)
  except BaseException:
    half.unlink(missing_ok=True)
    raise
  fsync(path.parent)


def write_whole(path: Path, content: bytes) -> None:
  """Replaces a file's content in one step; see `replacing`."""
  with replacing(path) as file:
    file.write(content)


def digest(path: str | Path) -> str:
  """Returns the SHA-256 of a file's content."""
  with open(path, 'rb') as file:
    return hashlib.file_digest(file, 'sha256').hexdigest()


def fsync(path: Path) -> None:
  """Waits until a file, or the names in a folder, are on the disk."""
  descriptor = os.open(path, os.O_RDONLY)
  try:
    os.fsync(descriptor)
  finally:
    os.close(descriptor)
