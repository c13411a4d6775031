"""Small data sets in the formats of the real ones: archives, their checksums and what is inside."""

import bz2
import gzip
import hashlib
import io
import tarfile
from pathlib import Path

import numpy as np
from PIL import Image

from fedjax_syn.data.builders.archive_formats import CINIC_CLASSES as CLASSES
from fedjax_syn.data.builders.archives import Archive, Source
from fedjax_syn.data.builders.sources import SOURCES

TRAIN, TEST = 40, 20


def idx(array: np.ndarray) -> bytes:
  """Writes an IDX file of unsigned bytes by its definition."""
  sizes = b''.join(int(size).to_bytes(4, 'big') for size in array.shape)
  return bytes([0, 0, 8, array.ndim]) + sizes + array.astype(np.uint8).tobytes()


def tar(files: dict[str, bytes]) -> bytes:
  """Packs files into a .tar.gz."""
  packed = io.BytesIO()
  with tarfile.open(fileobj=packed, mode='w:gz') as archive:
    for name, content in files.items():
      info = tarfile.TarInfo(name)
      info.size = len(content)
      archive.addfile(info, io.BytesIO(content))
  return packed.getvalue()


def arrays(seed: int, shape: tuple = (6, 5, 1), classes: int = 10) -> dict[str, np.ndarray]:
  """Draws random images and labels; every class appears."""
  rng = np.random.default_rng(seed)
  return {
    'train_x': rng.integers(0, 256, (TRAIN, *shape), np.uint8),
    'train_y': rng.permutation(np.arange(TRAIN) % classes).astype(np.uint8),
    'test_x': rng.integers(0, 256, (TEST, *shape), np.uint8),
    'test_y': rng.permutation(np.arange(TEST) % classes).astype(np.uint8),
  }


def write_arrays(folder: Path, values: dict[str, np.ndarray], **train: np.ndarray) -> None:
  """Writes a folder of arrays; `train` adds further arrays to train.npz."""
  folder.mkdir(parents=True, exist_ok=True)
  np.savez(folder / 'train.npz', x=values['train_x'], y=values['train_y'], **train)
  np.savez(folder / 'test.npz', x=values['test_x'], y=values['test_y'])


def mnist(name: str, values: dict[str, np.ndarray], folder: Path, base: str = '') -> Source:
  """Writes MNIST's four files and returns the source that binds them.

  Args:
    name: 'mnist' or 'fashion_mnist'.
    values: from `arrays`.
    folder: where the files are written.
    base: where the source says that they are downloaded from.
  """
  content = {}
  for prefix, split in (('train', 'train'), ('t10k', 'test')):
    content[f'{prefix}-images-idx3-ubyte.gz'] = idx(values[f'{split}_x'][..., 0])
    content[f'{prefix}-labels-idx1-ubyte.gz'] = idx(values[f'{split}_y'])
  files = {file: gzip.compress(inside, mtime=0) for file, inside in content.items()}
  return _write(name, files, content, values, folder, base)


def cifar(name: str, values: dict[str, np.ndarray], folder: Path, base: str = '') -> Source:
  """Writes CIFAR's one file and returns the source that binds it; see `mnist`."""
  labels = SOURCES[name].parse.keywords['labels']
  layout = {'train': [f'data_batch_{i}.bin' for i in range(1, 6)], 'test': ['test_batch.bin']}
  files = {}
  for split in ('train', 'test'):
    x, y = values[f'{split}_x'], values[f'{split}_y']
    other = np.full((len(y), labels - 1), 19, np.uint8)  # CIFAR-100's coarse label
    records = np.concatenate(
      [other, y[:, None], x.transpose(0, 3, 1, 2).reshape(len(x), -1)], axis=1
    )
    parts = np.array_split(records, len(layout[split]))
    for file, part in zip(layout[split], parts, strict=True):
      files[f'cifar/{file}'] = part.tobytes()
  packed = {SOURCES[name].archives[0].file: tar(files)}
  return _write(name, packed, {}, values, folder, base)


def png(pixels: np.ndarray) -> bytes:
  """Encodes pixels, uint8 [height, width] or [height, width, 3]."""
  packed = io.BytesIO()
  Image.fromarray(pixels).save(packed, 'PNG')
  return packed.getvalue()


def cinic(name: str, values: dict[str, np.ndarray], folder: Path, base: str = '') -> Source:
  """Writes CINIC-10's one file and returns the source that binds it by its MD5; see `mnist`."""
  files = {}
  for split in ('train', 'test'):
    for row, (x, y) in enumerate(zip(values[f'{split}_x'], values[f'{split}_y'], strict=True)):
      files[f'{split}/{CLASSES[y]}/cifar10-train-{row}.png'] = png(x)
  files['valid/cat/n02123394_123.png'] = png(values['train_x'][0])
  packed = tar(files)
  (archive,) = SOURCES[name].archives
  source = _write(name, {archive.file: packed}, {}, values, folder, base)
  return source._replace(
    archives=(archive._replace(url=base + archive.file, known_hash=md5(packed)),)
  )


def usps(values: dict[str, np.ndarray], folder: Path) -> Source:
  """Writes USPS's two files and returns the source that binds them by their MD5; see `mnist`."""
  (train, test), source = SOURCES['usps'].archives, SOURCES['usps']
  archives = []
  for archive, split in ((train, 'train'), (test, 'test')):
    x = values[f'{split}_x'].reshape(len(values[f'{split}_y']), -1) / 127.5 - 1
    lines = [
      ' '.join([str(y + 1), *(f'{i}:{v:.6f}' for i, v in enumerate(row, 1))])
      for row, y in zip(x, values[f'{split}_y'], strict=True)
    ]
    packed = bz2.compress(('\n'.join(lines) + '\n').encode())
    (folder / archive.file).write_bytes(packed)
    archives.append(archive._replace(known_hash=md5(packed)))
  return source._replace(
    archives=tuple(archives),
    rows=(len(values['train_y']), len(values['test_y'])),
    mean=tuple((values['train_x'] / 255).mean((0, 1, 2)).tolist()),
  )


def _write(name, files, content, values, folder, base) -> Source:
  folder.mkdir(parents=True, exist_ok=True)
  for file, packed in files.items():
    (folder / file).write_bytes(packed)
  return SOURCES[name]._replace(
    archives=tuple(
      Archive(file, base + file, f'sha256:{sha256(packed)}', sha256(content.get(file, b'')))
      for file, packed in files.items()
    ),
    shape=values['train_x'].shape[1:],
    rows=(len(values['train_y']), len(values['test_y'])),
    mean=tuple((values['train_x'] / 255).mean((0, 1, 2)).tolist()),
    folders=(),
  )


def md5(content: bytes) -> str:
  """Returns the known hash of a file that is published with its MD5."""
  return f'md5:{hashlib.md5(content).hexdigest()}'


def sha256(content: bytes) -> str:
  """Returns the checksum of bytes; '' if there are none."""
  return hashlib.sha256(content).hexdigest() if content else ''


def same(split, values: dict[str, np.ndarray], name: str) -> bool:
  """Says whether a split holds exactly the given rows in the given order."""
  x, y = values[f'{name}_x'], values[f'{name}_y']
  return np.array_equal(split.x, x) and np.array_equal(split.y, y) and split.y.dtype == np.int32
