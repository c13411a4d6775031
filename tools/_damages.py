"""What can happen to a file: bytes that change, and other things under its name."""

import gzip
import os
import random
import socket
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

Damage = Callable[[Path, random.Random], None]


def _bytes(change: Callable[[bytearray, random.Random], bytes | bytearray]) -> Damage:
  def damage(path: Path, rng: random.Random) -> None:
    path.write_bytes(change(bytearray(path.read_bytes()), rng))

  return damage


def _flip(content: bytearray, rng: random.Random) -> bytearray:
  content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
  return content


def _zero(content: bytearray, rng: random.Random) -> bytearray:
  start = rng.randrange(len(content))
  size = min(1 + rng.randrange(64), len(content) - start)
  content[start : start + size] = bytes(size)
  return content


def _remove(content: bytearray, rng: random.Random) -> bytearray:
  start = rng.randrange(len(content))
  del content[start : start + 1 + rng.randrange(16)]
  return content


# Bytes of a file that is still a file.
BYTES: dict[str, Damage] = {
  'cut off': _bytes(lambda content, rng: content[: rng.randrange(1, len(content))]),
  'a bit flipped': _bytes(_flip),
  'zeros in it': _bytes(_zero),
  'bytes missing': _bytes(_remove),
  'bytes behind it': _bytes(lambda content, rng: content + rng.randbytes(1 + rng.randrange(64))),
  'the second half twice': _bytes(lambda content, rng: content + content[len(content) // 2 :]),
}
# Bytes of something else.
OTHER: dict[str, Damage] = {
  'empty': _bytes(lambda content, rng: b''),
  'text': _bytes(lambda content, rng: b'<html>404 not found</html>\n'),
  'noise': _bytes(lambda content, rng: rng.randbytes(len(content))),
  'zeros': _bytes(lambda content, rng: bytes(len(content))),
  'compressed once more': _bytes(lambda content, rng: gzip.compress(content)),
  'a pointer of Git LFS': _bytes(
    lambda content, rng: b'version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n'
  ),
}


def _gone(make: Callable[[Path], None]) -> Damage:
  def damage(path: Path, rng: random.Random) -> None:
    path.unlink()
    make(path)

  return damage


def _socket(path: Path) -> None:
  here = os.getcwd()
  os.chdir(path.parent)  # the path of a socket has 108 characters at most
  try:
    with socket.socket(socket.AF_UNIX) as made:
      made.bind(path.name)
  finally:
    os.chdir(here)


# Things that are no files, and from which reading would not end or not begin.
SPECIAL: dict[str, Damage] = {
  'gone': _gone(lambda path: None),
  'a pipe': _gone(os.mkfifo),
  'a socket': _gone(_socket),
  'a folder': _gone(lambda path: path.mkdir()),
  'a link to nothing': _gone(lambda path: path.symlink_to('no such file')),
  'a link to itself': _gone(lambda path: path.symlink_to(path.name)),
  'a link to its folder': _gone(lambda path: path.symlink_to('.')),
  'a link to a device': _gone(lambda path: path.symlink_to('/dev/zero')),
}


def png_of(width: int, height: int, content: bytes = b'') -> bytes:
  """Returns a PNG file whose header says a size, and whose pixels are what is given."""
  chunk = lambda name, data: (
    struct.pack('>I', len(data)) + name + data + struct.pack('>I', zlib.crc32(name + data))
  )
  header = struct.pack('>IIBBBBB', width, height, 8, 0, 0, 0, 0)
  parts = (b'IHDR', header), (b'IDAT', zlib.compress(content)), (b'IEND', b'')
  return b'\x89PNG\r\n\x1a\n' + b''.join(chunk(*part) for part in parts)


def writing(content: bytes) -> Damage:
  """Returns a damage that puts other bytes there."""
  return _bytes(lambda *_: content)
