"""Damages of files: changed bytes, changed lines, and other things under a file's name."""

import gzip
import os
import random
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

Damage = Callable[[Path, random.Random], None]


def _bytes(change: Callable[[bytearray, random.Random], bytes | bytearray]) -> Damage:
  def damage(path: Path, rng: random.Random) -> None:
    path.write_bytes(change(bytearray(path.read_bytes() or b'x'), rng))

  return damage


def _lines(change: Callable[[list[bytes], int], list[bytes]]) -> Damage:
  def damage(content: bytearray, rng: random.Random) -> bytes:
    lines = bytes(content).splitlines(True)
    return b''.join(change(lines, rng.randrange(len(lines))))

  return _bytes(damage)


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


def _digit(content: bytearray, rng: random.Random) -> bytearray:
  digits = [i for i, byte in enumerate(content) if byte in b'0123456789']
  if not digits:
    return _flip(content, rng)
  at = rng.choice(digits)
  content[at] = b'0123456789'[(content[at] - ord('0') + rng.randrange(1, 10)) % 10]
  return content


def _replaced(create: Callable[[Path], None]) -> Damage:
  def damage(path: Path, rng: random.Random) -> None:
    path.unlink()
    create(path)

  return damage


def _socket(path: Path) -> None:
  here = os.getcwd()
  os.chdir(path.parent)  # the path of a socket has at most 108 characters
  try:
    with socket.socket(socket.AF_UNIX) as unix_socket:
      unix_socket.bind(path.name)
  finally:
    os.chdir(here)


def _folder_is_a_file(path: Path, rng: random.Random) -> None:
  shutil.rmtree(path.parent)
  path.parent.write_bytes(b'x')


JSON = (
  *(b'', b'[]', b'{}', b'3', b'null', b'"x"', b'{"config": 3}', b'{"config": {"seeds": []}}'),
  *(b'{"status": [], "test_accuracy": {}}', b'[' * 100_000, b'{"a":' * 500 + b'1' + b'}' * 500),
  *(b'{"round": NaN}', bytes(range(256))),
)
LFS = b'version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n'
OF_FILES: dict[str, Damage] = {
  # Other bytes of the same kind of file.
  'cut off': _bytes(lambda content, rng: content[: rng.randrange(len(content))]),
  'a bit flipped': _bytes(_flip),
  'zeros in it': _bytes(_zero),
  'bytes missing': _bytes(_remove),
  'bytes behind it': _bytes(lambda content, rng: content + rng.randbytes(1 + rng.randrange(64))),
  'the second half twice': _bytes(lambda content, rng: content + content[len(content) // 2 :]),
  # Other text.
  'another digit': _bytes(_digit),
  'a line twice': _lines(lambda lines, i: [*lines[: i + 1], *lines[i:]]),
  'a line missing': _lines(lambda lines, i: [*lines[:i], *lines[i + 1 :]]),
  'a line first': _lines(lambda lines, i: [lines[i], *lines[:i], *lines[i + 1 :]]),
  'other JSON': _bytes(lambda content, rng: rng.choice(JSON)),
  # Bytes of another kind of file.
  'empty': _bytes(lambda content, rng: b''),
  'text': _bytes(lambda content, rng: b'<html>404 not found</html>\n'),
  'noise': _bytes(lambda content, rng: rng.randbytes(len(content))),
  'zeros': _bytes(lambda content, rng: bytes(len(content))),
  'compressed once more': _bytes(lambda content, rng: gzip.compress(content)),
  'a pointer of Git LFS': _bytes(lambda content, rng: LFS),
  # No files: reading them would fail, never begin or never end.
  'gone': _replaced(lambda path: None),
  'a pipe': _replaced(os.mkfifo),
  'a socket': _replaced(_socket),
  'a folder': _replaced(lambda path: path.mkdir()),
  'a link to nothing': _replaced(lambda path: path.symlink_to('no such file')),
  'a link to itself': _replaced(lambda path: path.symlink_to(path.name)),
  'a link to its folder': _replaced(lambda path: path.symlink_to('.')),
  'a link to a device': _replaced(lambda path: path.symlink_to('/dev/zero')),
}
OF_FOLDERS: dict[str, Damage] = {
  'its folder gone': lambda path, rng: shutil.rmtree(path.parent),
  'its folder a file': _folder_is_a_file,
}
"""Damages of the folder that has the file."""
