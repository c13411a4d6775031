"""Formats of the original archives: IDX (MNIST), binary CIFAR, LIBSVM (USPS), PNG (CINIC-10)."""

import io
import math
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from fedjax_syn.data.builders.pixels import read_rgb

Arrays = tuple[np.ndarray, np.ndarray]  # x uint8 [n, height, width, channels], y [n]
USPS_FILES = ('usps.bz2', 'usps.t.bz2')
_CINIC = 'airplane automobile bird cat deer dog frog horse ship truck'
CINIC_CLASSES = tuple(_CINIC.split())
CINIC_SPLITS = ('train', 'test')
CINIC_SIDE = 32


def parse_idx(contents: Mapping[str, bytes]) -> tuple[Arrays, Arrays]:
  """Parses the four IDX files of MNIST and its relatives.

  Args:
    contents: unpacked bytes by file name.

  Returns:
    Training and test images, uint8 [n, height, width, 1], and labels [n].

  Raises:
    ValueError: if a header does not fit its file.
  """

  def split(prefix: str) -> Arrays:
    x = idx_array(contents[f'{prefix}-images-idx3-ubyte.gz'])
    return x[..., None], idx_array(contents[f'{prefix}-labels-idx1-ubyte.gz'])

  return split('train'), split('t10k')


def idx_array(content: bytes) -> np.ndarray:
  """Parses one IDX file of unsigned bytes: 0, 0, 8, rank, rank big-endian sizes, the values."""
  if content[:3] != b'\x00\x00\x08' or len(content) < 4 + 4 * content[3]:
    raise ValueError(f'not an IDX file of unsigned bytes, it begins with {content[:4].hex()}')
  start = 4 + 4 * content[3]
  shape = tuple(np.frombuffer(content[4:start], '>u4').tolist())
  if len(content) - start != math.prod(shape):
    raise ValueError(f'the header says {shape}, but {len(content) - start} values follow')
  return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def parse_cifar(contents: Mapping[str, bytes], labels: int) -> tuple[Arrays, Arrays]:
  """Parses the binary version of CIFAR: records of label bytes and 3 x 32 x 32 pixels.

  Args:
    contents: the one unpacked tar file; its files `test*.bin` hold the test rows, and other `.bin`
      files, in the order of their names, the training rows.
    labels: label bytes per record; the last one is used (CIFAR-100: coarse, fine).

  Returns:
    Training and test images, uint8 [n, 32, 32, 3], and labels [n].

  Raises:
    ValueError: if a file is no whole number of records, or there is none.
  """
  (content,) = contents.values()
  data = {'train': b'', 'test': b''}
  with tarfile.open(fileobj=io.BytesIO(content)) as tar:
    for member in sorted(tar, key=lambda member: member.name):
      file = Path(member.name)
      if file.suffix == '.bin':
        data['test' if file.stem.startswith('test') else 'train'] += tar.extractfile(member).read()  # type: ignore[union-attr]

  def split(name: str) -> Arrays:
    if not data[name]:
      raise ValueError(f'no .bin file of {name} rows')
    records = np.frombuffer(data[name], np.uint8).reshape(-1, labels + 3 * 32 * 32)
    x = records[:, labels:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return x, records[:, labels - 1]

  return split('train'), split('test')


def parse_usps(paths: Mapping[str, Path]) -> tuple[Arrays, Arrays]:
  """Parses USPS (Hull, 1994) in LIBSVM's layout: scanned digits of 16 x 16 pixels.

  Lines are `label index:value ...`; the label 1 is the digit 0.

  Args:
    paths: of the two files.

  Returns:
    Training and test images, uint8 [n, 16, 16, 1], values -1..1 rounded to 0..255, and labels [n].

  Raises:
    ValueError: if a file is not in that layout.
  """
  from sklearn.datasets import load_svmlight_file  # slow to import

  def read(file: str) -> Arrays:
    values, labels = load_svmlight_file(str(paths[file]), n_features=16 * 16)
    pixels = np.rint((values.toarray() + 1) * 127.5).clip(0, 255).astype(np.uint8)
    return pixels.reshape(-1, 16, 16, 1), labels.astype(np.int32) - 1

  return read(USPS_FILES[0]), read(USPS_FILES[1])


def parse_cinic(paths: Mapping[str, Path]) -> tuple[Arrays, Arrays]:
  """Parses CINIC-10 (Darlow et al., 2018): PNG files in a folder per split and class.

  The official train folder is for training and the test folder for testing, as in DynaFed.
  The third folder, valid, is not used: rows to tune on come out of the training rows
  (`data.validation`), as for every other data set. Greyscale files become RGB. The archive is
  streamed: unpacked it is larger than the arrays that come out of it.

  Args:
    paths: the one archive.

  Returns:
    Training and test images, uint8 [n, 32, 32, 3], and labels [n], in the archive's order.

  Raises:
    ValueError: if a folder has no PNG files, or a file is no PNG of 32 x 32 pixels.
    tarfile.TarError: if the archive is damaged.
  """
  (path,) = paths.values()
  # Growing buffers: joining an array per image at the end would take twice the memory.
  pixels: dict[str, bytearray] = {split: bytearray() for split in CINIC_SPLITS}
  labels: dict[str, bytearray] = {split: bytearray() for split in CINIC_SPLITS}
  for split, folder, file, content in _cinic_files(path):
    pixels[split] += _cinic_pixels(f'{split}/{folder}/{file}', content)
    labels[split].append(CINIC_CLASSES.index(folder))
  for split in CINIC_SPLITS:
    present = set(labels[split])
    missing = [f'{split}/{c}' for i, c in enumerate(CINIC_CLASSES) if i not in present]
    if missing:
      raise ValueError(
        f'{path.name} has no PNG files in {", ".join(missing if present else [split])}; the '
        f'published archive has train/, valid/ and test/, each with {", ".join(CINIC_CLASSES)}'
      )

  def arrays(split: str) -> Arrays:
    x = np.frombuffer(pixels[split], np.uint8).reshape(-1, CINIC_SIDE, CINIC_SIDE, 3)
    return x, np.frombuffer(labels[split], np.uint8)

  return arrays('train'), arrays('test')


def _cinic_files(path: Path) -> Iterator[tuple[str, str, str, bytes]]:
  """Yields split, class, file name and content of the files that are used."""
  with tarfile.open(path, 'r|gz') as tar:
    while (member := tar.next()) is not None:
      # What is above the split ('.', say) depends on the packer.
      split, folder, file = ['', '', *member.name.split('/')][-3:]
      wanted = split in CINIC_SPLITS and folder in CINIC_CLASSES and file.endswith('.png')
      # Some packers write metadata files, whose names begin with a dot.
      if member.isfile() and wanted and not file.startswith('.'):
        yield split, folder, file, tar.extractfile(member).read()  # type: ignore[union-attr]
      # tarfile remembers every member: 270,000 take 100 MiB.
      tar.members.clear()  # type: ignore[attr-defined]


def _cinic_pixels(name: str, content: bytes) -> bytes:
  try:
    x = read_rgb(content, formats=('PNG',))
  except ValueError as error:
    raise ValueError(f'{name} is no PNG file that can be read') from error
  if x.shape[:2] != (CINIC_SIDE, CINIC_SIDE):
    raise ValueError(f'{name} has {x.shape[1]} x {x.shape[0]} pixels, expected 32 x 32')
  return x.tobytes()
