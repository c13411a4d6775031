"""Reads regular files only, within the memory of this machine."""

import gzip
import io
import json
import os
import zlib
from pathlib import Path
from typing import Any

from fedjax_syn.core.texts import first_line

ONE_FILE = 1 << 30  # bytes of a file that is read at once
UNPACKED = 1 << 29  # bytes of its content: CIFAR's archives hold some 180 MB


def memory() -> int:
  """Returns the bytes of memory of this machine."""
  return os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE')


def check_bytes(count: int, what: str) -> None:
  """Refuses what would take more memory than there is.

  Args:
    count: bytes.
    what: takes them; the message begins with it.

  Raises:
    ValueError: naming both numbers.
  """
  if count > memory():
    raise ValueError(
      f'{what} would take {count / 1e9:,.1f} GB, and this machine has {memory() / 1e9:,.1f} GB of '
      'memory'
    )


def read_bytes(path: Path, most: int = ONE_FILE) -> bytes:
  """Reads a regular file; a pipe may never begin, and a device may never end.

  Args:
    path: the file, or a link to one.
    most: bytes.

  Returns:
    Its content.

  Raises:
    FileNotFoundError: if it is not there.
    ValueError: if it is not a regular file, or larger.
    OSError: if it cannot be read.
  """
  size = path.stat().st_size
  if not path.is_file():
    raise ValueError(f'{path} is not a regular file')
  if size > most:
    raise ValueError(f'{path} has {size} bytes, more than the {most} that are read')
  return path.read_bytes()


def read_json(path: Path) -> Any:
  """Reads a JSON file; some editors write a byte order mark into it.

  Raises:
    FileNotFoundError: if it is not there.
    ValueError: if it is no JSON.
  """
  try:
    return json.loads(read_bytes(path).decode('utf-8-sig'))
  except (ValueError, RecursionError) as error:  # not JSON, or not text
    raise ValueError(f'{path} is not JSON: {first_line(error)}') from error


def gunzip(raw: bytes, most: int = UNPACKED) -> bytes:
  """Unpacks a gzip file.

  Args:
    raw: its content.
    most: bytes to unpack.

  Returns:
    What is inside; b'' if it is no whole gzip file, or holds more.
  """
  try:
    content = gzip.GzipFile(fileobj=io.BytesIO(raw)).read(most + 1)
  except (OSError, EOFError, zlib.error):
    return b''
  return content if len(content) <= most else b''
