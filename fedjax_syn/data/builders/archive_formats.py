"""Formats of the original archives: IDX (MNIST), the binary version of CIFAR, LIBSVM (USPS)."""

import io
import math
import tarfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

Arrays = tuple[np.ndarray, np.ndarray]  # x uint8 [n, height, width, channels], y [n]
USPS_FILES = ('usps.bz2', 'usps.t.bz2')


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


def parse_cifar(
  contents: Mapping[str, bytes],
  *,
  folder: str,
  train: tuple[str, ...],
  test: tuple[str, ...],
  labels: int,
) -> tuple[Arrays, Arrays]:
  """Parses the binary version of CIFAR: records of label bytes and 3 x 32 x 32 pixels.

  Args:
    contents: the one unpacked tar file.
    folder: the folder inside it.
    train: files of the training rows.
    test: files of the test rows.
    labels: label bytes per record; the last one is used (CIFAR-100: coarse, fine).

  Returns:
    Training and test images, uint8 [n, 32, 32, 3], and labels [n].

  Raises:
    ValueError: if a file is no whole number of records.
    KeyError: if a file is missing.
  """
  (content,) = contents.values()
  with tarfile.open(fileobj=io.BytesIO(content)) as tar:

    def split(files: tuple[str, ...]) -> Arrays:
      parts = [tar.extractfile(f'{folder}/{file}') for file in files]
      data = b''.join(part.read() for part in parts if part)
      records = np.frombuffer(data, np.uint8).reshape(-1, labels + 3 * 32 * 32)
      x = records[:, labels:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
      return x, records[:, labels - 1]

    return split(train), split(test)


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
