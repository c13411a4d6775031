"""What can happen to a file of a run's folder, at random: for `tools/damage.py`."""

import os
import pathlib
import random
import shutil
from collections.abc import Callable

SHAPES = (
  b'',
  b'[]',
  b'{}',
  b'3',
  b'null',
  b'"x"',
  b'{"config": 3}',
  b'{"config": {"seeds": []}}',
  b'{"status": [], "test_accuracy": {}}',
  b'[' * 100_000,
  b'{"a":' * 500 + b'1' + b'}' * 500,
  b'{"round": NaN}',
  bytes(range(256)),
)


def cut(path: pathlib.Path, rng: random.Random) -> str:
  os.truncate(path, size := rng.randrange(path.stat().st_size + 1))
  return f'cut to {size} bytes'


def flip(path: pathlib.Path, rng: random.Random) -> str:
  data = bytearray(path.read_bytes() or b'x')
  data[at := rng.randrange(len(data))] ^= 1 << rng.randrange(8)
  path.write_bytes(bytes(data))
  return f'a bit of byte {at}'


def digit(path: pathlib.Path, rng: random.Random) -> str:
  data = bytearray(path.read_bytes())
  places = [i for i, c in enumerate(data) if c in b'0123456789']
  if not places:
    return flip(path, rng)
  at = rng.choice(places)
  data[at] = ord(str((int(chr(data[at])) + rng.randrange(1, 10)) % 10))
  path.write_bytes(bytes(data))
  return f'a digit, byte {at}'


def of_lines(change: Callable[[list[bytes], int], list[bytes]], words: str):
  def damage(path: pathlib.Path, rng: random.Random) -> str:
    lines = path.read_bytes().splitlines(True) or [b'x\n']
    at = rng.randrange(len(lines))
    path.write_bytes(b''.join(change(lines, at)))
    return f'{words} {at + 1}'

  return damage


def delete(path: pathlib.Path, rng: random.Random) -> str:
  path.unlink()
  return 'deleted'


def fill(path: pathlib.Path, rng: random.Random) -> str:
  content = rng.choice(SHAPES)
  path.write_bytes(content)
  return f'filled with {content[:20]!r}'


def put_folder(path: pathlib.Path, rng: random.Random) -> str:
  path.unlink()
  path.mkdir()
  return 'a folder'


def put_pipe(path: pathlib.Path, rng: random.Random) -> str:
  path.unlink()
  os.mkfifo(path)
  return 'a pipe'


def put_link(path: pathlib.Path, rng: random.Random) -> str:
  path.unlink()
  path.symlink_to(rng.choice([path.name, '/nowhere', '/dev/zero']))
  return f'a link to {os.readlink(path)}'


def another(path: pathlib.Path, rng: random.Random) -> str:
  """The content of another file of the folder with the same ending."""
  root = next(p for p in path.parents if p.name.startswith('copy'))
  others = sorted(p for p in root.rglob(f'*{path.suffix}') if p.is_file() and p != path)
  if not others:
    return delete(path, rng)
  source = rng.choice(others)
  path.write_bytes(source.read_bytes())
  return f'replaced by {source.relative_to(root)}'


def delete_folder(path: pathlib.Path, rng: random.Random) -> str:
  shutil.rmtree(path.parent)
  return f'{path.parent.name}/ deleted'


def file_for_folder(path: pathlib.Path, rng: random.Random) -> str:
  shutil.rmtree(path.parent)
  path.parent.write_bytes(b'x')
  return f'{path.parent.name}/ is a file'


DAMAGES = (
  cut,
  flip,
  flip,
  digit,
  digit,
  of_lines(lambda t, i: [*t[: i + 1], *t[i:]], 'doubled line'),
  of_lines(lambda t, i: [*t[:i], *t[i + 1 :]], 'without line'),
  of_lines(lambda t, i: [t[i], *t[:i], *t[i + 1 :]], 'first is line'),
  delete,
  fill,
  fill,
  put_folder,
  put_pipe,
  put_link,
  another,
)
OF_FOLDERS = (delete_folder, file_for_folder)


def damage(root: pathlib.Path, rng: random.Random) -> str:
  """Damages one file or folder of a run; files at the top are as likely as all below together."""
  files = sorted(p for p in root.rglob('*') if p.is_file() and p.name != '.lock')
  top = [p for p in files if p.parent == root]
  path = rng.choice(top if rng.random() < 0.5 else files)
  below = path.parent != root
  change = rng.choice(DAMAGES + OF_FOLDERS) if below else rng.choice(DAMAGES)
  return f'{path.relative_to(root)}: {change(path, rng)}'
