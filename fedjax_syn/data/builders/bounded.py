"""Reading that ends: regular files alone, and no more memory than there is."""

import os
import zlib
from pathlib import Path

ONE_FILE = 1 << 30  # bytes of a file that is read at once
UNPACKED = 1 << 29  # of what is packed in it: CIFAR's archives hold some 180 MB


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
  """Reads a regular file; a pipe or a device would be waited for, or would not end.

  Args:
    path: the file, or a link to one.
    most: bytes.

  Returns:
    Its content.

  Raises:
    FileNotFoundError: if it is not there.
    ValueError: if it is no regular file, or larger.
    OSError: if it cannot be read.
  """
  size = path.stat().st_size
  if not path.is_file():
    raise ValueError(f'{path} is no regular file')
  if size > most:
    raise ValueError(f'{path} has {size} bytes, more than the {most} that are read')
  return path.read_bytes()


def gunzip(raw: bytes, most: int = UNPACKED) -> bytes:
  """Unpacks a gzip file.

  Args:
    raw: its content.
    most: bytes to unpack.

  Returns:
    What is inside; b'' if it is no whole gzip file, or holds more.
  """
  content = bytearray()
  try:
    while raw:  # one member after the other
      unpack = zlib.decompressobj(wbits=31)
      content += unpack.decompress(raw, most + 1 - len(content))
      if len(content) > most or not unpack.eof:
        return b''
      raw = unpack.unused_data.lstrip(b'\0')
  except zlib.error:
    return b''
  return bytes(content)
