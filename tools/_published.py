"""Published layouts, prepared records and config files as families of inputs (`_inputs`)."""

import functools
import random
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import scipy.io

from fedjax_syn import config as config_lib
from fedjax_syn.config import files
from fedjax_syn.data import datasets
from fedjax_syn.data.builders import archives, image_records
from fedjax_syn.data.builders.domain_sources import DOMAIN_SOURCES
from fedjax_syn.data.builders.sources import SOURCES
from tests.data import fakes, test_domains, test_flair
from tools import _damages
from tools._damages import Damage
from tools._inputs import Family, encrypted


def _once(write: Callable[[Path], None]) -> Callable[[Path], None]:
  """Writes an input once and copies it from then on."""

  @functools.cache
  def master() -> Path:
    folder = Path(tempfile.mkdtemp())
    write(folder)
    return folder

  return lambda root: shutil.copytree(master(), root, dirs_exist_ok=True)


def _reader(sources: dict[str, Any], name: str, source: Any) -> Callable[[Path], Any]:
  def read(root: Path) -> Any:
    with mock.patch.dict(sources, {name: source}):
      return datasets.load(name, str(root))

  return read


def _zeros(path: Path, rng: random.Random) -> None:
  """A gzip file of 4 MB that unpacks to 4 GB."""
  import gzip

  part = gzip.compress(bytes(1 << 28))
  path.write_bytes(part * 16)


def _mnist() -> Family:
  values = fakes.arrays(0)
  source = fakes.mnist('mnist', values, Path(tempfile.mkdtemp()))

  read = _reader(SOURCES, 'mnist', source)
  files = tuple(archive.file for archive in source.archives[:2])
  damages = {k: v for k, v in _damages.ANY_FILE.items() if k != 'a folder'} | {'a bomb': _zeros}
  write = lambda root: fakes.mnist('mnist', values, root)
  # Bytes behind a gzip stream or in its header change no content, which has a checksum.
  return Family('archives of MNIST', write, read, files, damages)


def _office() -> Family:
  source = DOMAIN_SOURCES['office_home']._replace(rows=((8, 2),) * 4, num_classes=2)

  read = _reader(DOMAIN_SOURCES, 'office_home', source)

  def bomb(path: Path, rng: random.Random) -> None:
    with zipfile.ZipFile(path, 'a', zipfile.ZIP_DEFLATED) as file:
      file.writestr('OfficeHomeDataset_10072016/Art/Webcam/00009.jpg', bytes(1 << 31))

  def member(content: bytes) -> Damage:
    def damage(path: Path, rng: random.Random) -> None:
      with zipfile.ZipFile(path, 'a') as file:
        file.writestr('OfficeHomeDataset_10072016/Art/Webcam/00009.jpg', content)

    return damage

  damages = _damages.ANY_FILE | {
    'encrypted': encrypted,
    'a bomb': bomb,
    'an image that is none': member(b'GIF'),
    'a PNG bomb': member(_damages.png_of(40000, 40000)),
  }
  write = _once(lambda root: test_domains.office(root, packed=True))
  return Family(
    'zip of Office-Home', write, read, (f'{test_domains.office_home.FOLDER}.zip',), damages
  )


def _five() -> Family:
  source = DOMAIN_SOURCES['digit_five']._replace(rows=((4, 4),) * 5)

  read = _reader(DOMAIN_SOURCES, 'digit_five', source)

  def other(**content: Any) -> Damage:
    def damage(path: Path, rng: random.Random) -> None:
      known = {k: v for k, v in scipy.io.loadmat(path).items() if not k.startswith('__')}
      scipy.io.savemat(path, {k: content.get('every', lambda v: v)(v) for k, v in known.items()})

    return damage

  shapes: dict[str, Damage] = {
    'one axis less': other(every=lambda v: v[0]),
    'one axis more': other(every=lambda v: v[None]),
    'a number': other(every=lambda v: 3),
    'words': other(every=lambda v: 'text'),
    'no rows': other(every=lambda v: v[:0]),
    'turned around': other(every=lambda v: v.T),
    'cells': other(every=lambda v: np.array([[v, v]], object)),
    'complex': other(every=lambda v: v * 1j if v.dtype != object else v),
    'not finite': other(every=lambda v: v * np.nan if v.dtype != object else v),
    'of HDF5': _damages.replace_by(
      b'MATLAB 7.3 MAT-file'.ljust(124) + b'\0\2IM' + b'\x89HDF\r\n\x1a\n'
    ),
  }
  write = _once(test_domains.digit_five)
  names = ('mnist_data.mat', 'syn_number.mat', 'usps_28x28.mat', 'svhn_test_32x32.mat')
  files = tuple(f'Digit-Five/{name}' for name in names)
  # An uncompressed MATLAB file has no checksum: bytes of its arrays are as good as others.
  return Family(
    'MATLAB files', write, read, files, _damages.ANY_FILE | shapes, tuple(_damages.BYTES)
  )


def _records() -> Iterator[Family]:
  rng = np.random.default_rng(0)

  def write(root: Path) -> None:
    values = {
      'train_x': rng.integers(0, 256, (40, 8, 8, 1), np.uint8),
      'train_y': (np.arange(40) % 10).astype(np.uint8),
      'test_x': rng.integers(0, 256, (20, 8, 8, 1), np.uint8),
      'test_y': (np.arange(20) % 10).astype(np.uint8),
    }
    folder = root / 'archives'
    source = fakes.mnist('mnist', values, folder)._replace(name='my_digits')
    paths = {archive.file: folder / archive.file for archive in source.archives}
    image_records.write(archives.read(source, paths), root)
    shutil.rmtree(folder)

  folder = 'my_digits/1.0.0'
  files = (
    f'{folder}/my_digits-train.array_record-00000-of-00001',
    f'{folder}/features.json',
    f'{folder}/dataset_info.json',
  )
  read = lambda root: datasets.load('tfds:my_digits', str(root))
  code = {
    'a class of elsewhere': _damages.replace_by(
      b'{"pythonClassName": "os.system", "type": "os.system"}'
    ),
    'a nest': _damages.replace_by(b'[' * 100_000),
  }
  # A name or a number in these JSON files is what it is; the records have checksums.
  yield Family('records', _once(write), read, files[:1], _damages.ANY_FILE)
  yield Family(
    'JSON of records',
    _once(write),
    read,
    files[1:],
    _damages.ANY_FILE | code,
    tuple(_damages.BYTES),
  )


def _flair() -> Iterator[Family]:
  read = lambda root: datasets.load('flair', str(root))
  write = _once(test_flair.write)
  texts = {
    'a nest': b'[' * 100_000,
    'a number': b'3',
    'numbers': b'[1, 2]',
    'no labels': b'[{"image_id": "im0"}]',
    'a path for an image': b'[{"image_id": "../../../etc/passwd", "user_id": "1", '
    b'"partition": "train", "labels": []}]',
    'labels of another kind': b'[{"image_id": "im0", "user_id": 1, "partition": "train", '
    b'"labels": {"a": 1}}]',
  }
  odd = {name: _damages.replace_by(text) for name, text in texts.items()}
  # JSON has no checksum: another digit is another user.
  yield Family(
    'FLAIR labels',
    write,
    read,
    ('labels_and_metadata.json',),
    _damages.OTHER | _damages.SPECIAL | odd,
  )
  yield Family(
    'FLAIR images', write, read, ('small_images/im0.jpg',), _damages.ANY_FILE, tuple(_damages.BYTES)
  )


_CONFIG = """
import ml_collections as m
from fedjax_syn.config import get_default
def get_config():
  c = get_default().unlock()
  {}
  return c
"""
CONFIGS = {
  'exits': 'import sys; sys.exit()',
  'exits with 0': 'raise SystemExit(0)',
  'recurses': 'return get_config()',
  'asserts': 'assert False',
  'a text of many lines': 'raise ValueError("a\\nb\\x1b[31m" * 10**5)',
  'no text': 'raise type("E", (Exception,), {"__str__": lambda self: 1 / 0})',
  'returns nothing': 'return None',
  'returns a class': 'return dict',
  'wrong types': 'c = get_default(); c.client.lr = "fast"; return c',
  'unlocked': 'c.client.x = object()',
  'nests itself': 'c.client = c',
  'a placeholder': 'c.rounds = m.config_dict.placeholder(int)',
  'a required placeholder': 'c.rounds = m.config_dict.required_placeholder(int)',
  'a reference': 'c.client.lr = m.FieldReference(None, field_type=float)',
  'numbers as keys': 'return m.ConfigDict({1: 2})',
  'no algorithm': 'c.algorithm = None',
  'outside of nowhere': 'c.outside = ("no:such",)',
  'prints': 'print("x" * 10)',
  'much memory': 'return bytearray(10**13)',
}


def _configs() -> Family:
  def read(root: Path) -> Any:
    return config_lib.to_dict(config_lib.check(files.load_config(str(root / 'mine.py'))))

  write = lambda root: (root / 'mine.py').write_text(_CONFIG.format('pass'))
  odd = {name: _damages.replace_by(_CONFIG.format(line).encode()) for name, line in CONFIGS.items()}
  odd |= {
    'a null': _damages.replace_by(b'x = 1\0'),
    'not UTF-8': _damages.replace_by(b'x = "\xe9"\n'),
    'a nest': _damages.replace_by(b'x = ' + b'[' * 5000),
    'a deep sum': _damages.replace_by(b'x = ' + b'1+' * 100_000 + b'1'),
    'another encoding': _damages.replace_by(b'# -*- coding: nosuch -*-\nx = 1\n'),
  }
  # A program is what it says, whatever it said before.
  return Family(
    'config file', write, read, ('mine.py',), _damages.ANY_FILE | odd, tuple(_damages.BYTES)
  )


def families() -> list[Family]:
  """Returns the families of published layouts, prepared records and config files."""
  return [_mnist(), _office(), _five(), *_records(), *_flair(), _configs()]
