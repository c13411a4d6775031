"""Damaged and odd inputs for each reader of data: no traceback, no hang, no silent change.

A family writes a small valid data set, and states how it is read and which damages its files can
have. A damaged set whose reading differs must say so in a note, or the change is silent. Two kinds
of damage are invisible and do not count:
  - bytes inside an image format without checksums (JPEG, BMP, GIF, TIFF, WebP), which give another
    image of the same size; PNG has checksums, so damages of PNG files count;
  - a missing file of a set with any number of files: only the line after reading states the number.
"""

import argparse
import dataclasses
import io
import itertools
import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from fedjax_syn.data import datasets
from tools import _damages, _outcomes
from tools._damages import Damage
from tools._outcomes import Outcome, Tally


class Family(NamedTuple):
  """One kind of input."""

  name: str
  write: Callable[[Path], None]  # a valid one into an empty folder
  read: Callable[[Path], Any]  # returns a Dataset, or anything else
  files: tuple[str, ...]  # that are damaged, each in turn
  damages: Mapping[str, Damage]
  unseen: tuple[str, ...] = ()  # invisible damages


# ---- folders of images

SIDE = 16
_CHECKED = ('PNG',)  # formats with checksums


def _picture(seed: int, format: str = 'PNG') -> bytes:
  values = np.random.default_rng(seed).integers(0, 256, (SIDE, SIDE), np.uint8)
  out = io.BytesIO()
  Image.fromarray(values).save(out, format)
  return out.getvalue()


def _images(format: str, suffix: str):
  def write(root: Path) -> None:
    for i in range(20):
      path = root / ('ann', 'bob')[i % 2] / ('cat', 'dog')[i // 10] / f'{i}.{suffix}'
      path.parent.mkdir(parents=True, exist_ok=True)
      path.write_bytes(_picture(i, format))

  return write


ODD_IMAGES: dict[str, Damage] = {
  'a bomb': _damages.replace_by(_damages.png_of(40000, 40000)),
  'a bomb of many pixels': _damages.replace_by(_damages.png_of(14000, 14000, bytes(14000 * 14001))),
  'no pixels': _damages.replace_by(_damages.png_of(SIDE, SIDE)),
  'no width': _damages.replace_by(_damages.png_of(0, SIDE)),
  'a strip': _damages.replace_by(_damages.png_of(SIDE * SIDE, 1, bytes(SIDE * SIDE + 1))),
  'PostScript': _damages.replace_by(
    b'%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 16 16\nshowpage\n'
  ),
  'a picture in words': _damages.replace_by(b'<svg xmlns="http://www.w3.org/2000/svg"/>'),
  'XBM': _damages.replace_by(
    b'#define a_width 16\n#define a_height 16\nstatic char a_bits[] = {0};'
  ),
}


def _folders() -> Iterator[Family]:
  formats = {'PNG': 'png', 'JPEG': 'jpg', 'BMP': 'bmp', 'GIF': 'gif', 'TIFF': 'tif', 'WEBP': 'webp'}
  for format, suffix in formats.items():
    damages = _damages.ANY_FILE | ODD_IMAGES
    yield Family(
      f'folder of {format}',
      _images(format, suffix),
      lambda root: datasets.load('folder', str(root)),
      (f'ann/cat/4.{suffix}',),
      damages,
      () if format in _CHECKED else tuple(_damages.BYTES),
    )


# ---- arrays


def _arrays(root: Path) -> None:
  rng = np.random.default_rng(0)
  for name, rows in (('train', 40), ('test', 20)):
    x = rng.integers(0, 256, (rows, 6, 5, 1), np.uint8)
    np.savez(root / f'{name}.npz', x=x, y=np.arange(rows) % 4)
  (root / 'meta.json').write_text(
    '{"name": "mine", "normalisation": {"mean": [0.5], "std": [0.5]}}'
  )


def _npz(**changes: Any) -> Damage:
  def damage(path: Path, rng: random.Random) -> None:
    with np.load(path) as file:
      arrays = dict(file)
    for name, change in changes.items():
      arrays[name] = change(arrays.get(name, arrays['y']))
    np.savez(path, **arrays)

  return damage


def _member(change: Callable[[dict[str, bytes]], None], **options: Any) -> Damage:
  """Changes the files inside a zip file."""
  import zipfile

  def damage(path: Path, rng: random.Random) -> None:
    with zipfile.ZipFile(path) as file:
      members = {name: file.read(name) for name in file.namelist()}
    change(members)
    with zipfile.ZipFile(path, 'w', **options) as file:
      for name, content in members.items():
        file.writestr(name, content)

  return damage


def _header(shape: str, dtype: str = '|u1') -> bytes:
  """The head of an npy file that promises a shape."""
  text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + '\n'
  return b'\x93NUMPY\x01\x00' + len(text).to_bytes(2, 'little') + text.encode()


def encrypted(path: Path, rng: random.Random) -> None:
  """Sets the flag of encryption on every member, in both of a zip file's lists."""
  content = bytearray(path.read_bytes())
  for mark, offset in ((b'PK\x03\x04', 6), (b'PK\x01\x02', 8)):
    at = -1
    while (at := content.find(mark, at + 1)) >= 0:
      content[at + offset] |= 1
  path.write_bytes(content)


def _promise(shape: str, dtype: str = '|u1', size: int = 100) -> Damage:
  return _member(lambda m: m.update({'x.npy': _header(shape, dtype) + bytes(size)}))


ODD_ARRAYS: dict[str, Damage] = {
  'objects': _npz(x=lambda x: x.astype(object)),
  'objects in y': _npz(y=lambda y: np.array([{} for _ in y], object)),
  'floats': _npz(x=lambda x: x * 1.5),
  'not finite': _npz(x=lambda x: np.full(x.shape, np.nan)),
  'complex': _npz(x=lambda x: x * 1j),
  'dates': _npz(y=lambda y: y.astype('datetime64[D]')),
  'words': _npz(y=lambda y: y.astype(str)),
  'records': _npz(x=lambda x: np.zeros(x.shape, [('a', 'u1'), ('b', 'u1')])),
  'one number': _npz(y=lambda y: np.array(3)),
  'no rows': _npz(x=lambda x: x[:0], y=lambda y: y[:0]),
  'one row': _npz(x=lambda x: x[:1], y=lambda y: y[:1] * 0),
  'no pixels': _npz(x=lambda x: x[:, :0]),
  'labels beyond 64 bits': _npz(y=lambda y: y.astype(np.uint64) + np.uint64(2**63)),
  'labels beyond 32 bits': _npz(y=lambda y: y + 2**33),
  'labels of a billion': _npz(y=lambda y: y * 10**9 // 3),
  'negative labels': _npz(y=lambda y: y - 1),
  'clients of strings': _npz(clients=lambda y: np.array(['\udcff$[red]'] * len(y))),
  'clients of objects': _npz(clients=lambda y: np.array([None] * len(y), object)),
  'clients not finite': _npz(clients=lambda y: np.full(len(y), np.nan)),
  'rows promised': _promise(f'({2**40}, 6, 5, 1)'),
  'more rows than bytes can count': _promise(f'({2**62}, 6, 5, 1)'),
  'a negative number of rows': _promise('(-40, 6, 5, 1)'),
  'a header that is no tuple': _promise('{}'),
  'a header that nests': _promise('(' * 60 + ')' * 60),
  'a header that asks for code': _promise('__import__("os").getpid()'),
  'an odd type': _promise('(40, 6, 5, 1)', '|V1000000000'),
  'a bomb': _member(
    lambda m: m.update({'x.npy': _header('(200000, 60, 50, 1)') + bytes(600_000_000)}),
    compression=8,
  ),
  'encrypted': encrypted,
  'other names': _member(lambda m: m.update({'images.npy': m.pop('x.npy')})),
  'folders in it': _member(lambda m: m.update({'../x.npy': m.pop('x.npy')})),
}
ODD_META: dict[str, Damage] = {
  name: _damages.replace_by(text.encode('utf-8', 'surrogateescape'))
  for name, text in {
    'a nest': '[' * 100_000,
    'a long number': '{"normalisation": ' + '9' * 10_000 + '}',
    'not finite': '{"normalisation": {"mean": [NaN], "std": [Infinity]}}',
    'a zero': '{"normalisation": {"mean": [0.5], "std": [0.0]}}',
    'too large': '{"normalisation": {"mean": [1e999], "std": [1e308]}}',
    'words': '{"normalisation": {"mean": ["a"], "std": [null]}}',
    'a list': '[1, 2]',
    'no text': '{"name": 3}',
    'not UTF-8': '{"name": "caf\udce9"}',
    'half a surrogate': '{"name": "\\ud800 $x [red]"}',
    'nothing': 'null',
  }.items()
}


def _folders_of_arrays() -> Iterator[Family]:
  read = lambda root: datasets.load('arrays', str(root))
  yield Family('arrays', _arrays, read, ('train.npz', 'test.npz'), _damages.ANY_FILE | ODD_ARRAYS)
  gone = _damages.SPECIAL | _damages.OTHER | ODD_META
  # The file is optional. JSON has no checksum, so a changed digit is a digit.
  yield Family('meta.json', _arrays, read, ('meta.json',), gone, ('gone', 'half a surrogate'))


# ---- the hunt


def families() -> list[Family]:
  """Returns all families."""
  from tools import _published

  return [*_folders(), *_folders_of_arrays(), *_published.families()]


def cases(seed: int, count: int) -> list[tuple[Family, str, str, random.Random]]:
  """Chooses inputs: all families in turn, their files and damages in random order.

  Args:
    seed: of the order and of the damages.
    count: of inputs.

  Returns:
    For each input the family, the file, the damage, and the damage's random numbers.
  """
  rng = random.Random(seed)
  turns = []
  for family in families():
    pairs = [(file, name) for file in family.files for name in family.damages]
    rng.shuffle(pairs)
    turns.append([(family, *pair) for pair in pairs])
  dealt = [case for row in itertools.zip_longest(*turns) for case in row if case is not None]
  repeated = itertools.islice(itertools.cycle(dealt), count)
  return [(*case, random.Random(f'{seed} {i}')) for i, case in enumerate(repeated)]


def plain(read: Any) -> dict[str, Any]:
  """Returns what a reading comes to, as values that can be compared."""
  if dataclasses.is_dataclass(read):
    read = {f.name: getattr(read, f.name) for f in dataclasses.fields(read)}
  if hasattr(read, '_asdict'):
    read = read._asdict()
  if isinstance(read, Mapping):
    return {f'{k}.{n}': v for k, item in read.items() for n, v in plain(item).items()}
  if isinstance(read, list | tuple) and not all(isinstance(v, str | int | float) for v in read):
    return {f'{i}.{n}': v for i, item in enumerate(read) for n, v in plain(item).items()}
  return {'': read.tobytes() if isinstance(read, np.ndarray) else repr(read)}


def judged(done: Outcome, whole: dict[str, Any], unseen: bool) -> Outcome:
  """A reading that differs from that of the whole input must say so."""
  if done.kind != 'accepted' or unseen:
    return done
  now = plain(done.value)
  changed = [key for key in {**whole, **now} if whole.get(key) != now.get(key)]
  if changed and not any(key.startswith('notes') for key in changed):
    return done._replace(kind='silent', text=f'differs in {", ".join(changed[:5])}')
  return done


def hunt(options: argparse.Namespace, scratch: Path) -> Iterator[Tally]:
  """Damages inputs and reads them.

  Args:
    options: the `count` of inputs, and the `seed` of the choice and of the bytes.
    scratch: an empty folder.

  Yields:
    The outcomes.
  """
  tally = Tally('inputs')
  wholes: dict[str, dict[str, Any]] = {}
  root = scratch / 'data'  # always the same: titles name it

  def write(family: Family) -> None:
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    family.write(root)

  for family, file, name, rng in cases(options.seed, options.count):
    if family.name not in wholes:
      write(family)
      wholes[family.name] = plain(family.read(root))
    write(family)
    family.damages[name](root / file, rng)
    result = _outcomes.outcome(lambda family=family: family.read(root))
    result = judged(result, wholes[family.name], name in family.unseen)
    tally.add(f'{family.name}: {file}: {name}', result)
  yield tally
