"""The original archives of the image data sets: found in a folder, bound by checksums, parsed."""

import hashlib
import io
import math
import tarfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedjax_syn.data.builders import bounded
from fedjax_syn.data.builders.split import Split, check_split

Arrays = tuple[np.ndarray, np.ndarray]  # x uint8 [n, height, width, channels], y [n]


class Archive(NamedTuple):
  """One file to download, and what binds it."""

  file: str
  url: str
  size: int  # bytes; 0 if tensorflow-datasets does not register the file
  sha256: str  # of the file, as tensorflow-datasets registers it; '' if it does not
  content: str = ''  # SHA-256 of what is inside: packers write different gzip headers
  md5: str = ''  # of the file, where no SHA-256 is published


class Source(NamedTuple):
  """All that is known of a data set before it is read."""

  name: str
  title: str
  archives: tuple[Archive, ...]
  # By file: unpacked bytes, or the path if the archives are streamed -> train, test.
  parse: Callable[[Mapping[str, Any]], tuple[Arrays, Arrays]]
  shape: tuple[int, int, int]  # height, width, channels
  num_classes: int
  rows: tuple[int, int]  # training, test
  mean: tuple[float, ...]  # of the training pixels in 0..1, per channel: no other set has it
  normalisation: str
  folders: tuple[str, ...] = ()  # where a system package puts the archives
  streamed: bool = False  # the archives are too large to be held in memory
  tolerance: float = 1e-4  # of `mean`


def locate(
  source: Source, folders: Iterable[Path], others: Iterable[Source]
) -> dict[str, Path] | None:
  """Returns the source's archives from the first folder that holds them.

  Several data sets use the same file names (MNIST and Fashion-MNIST, for instance): a folder with
  another known data set's archives is passed over.

  Args:
    source: what is looked for.
    folders: where, in this order.
    others: the data sets whose archives may lie there as well.

  Returns:
    The path of every file, or None if no folder has any of them.

  Raises:
    ValueError: if a folder has some of the files, but not all.
  """
  files = {archive.file for archive in source.archives}
  foreign = {
    digest
    for other in others
    if other.name != source.name
    for archive in other.archives
    if archive.file in files  # nothing is read for names that nobody shares
    for digest in (archive.sha256, archive.content)
    if digest
  }
  for folder in folders:
    present = [folder / a.file for a in source.archives if (folder / a.file).is_file()]
    if not present:
      continue
    if foreign:
      smallest = bounded.read_bytes(min(present, key=lambda path: path.stat().st_size))
      if {_sha256(smallest), _sha256(bounded.gunzip(smallest))} & foreign:
        continue
    missing = [a.file for a in source.archives if folder / a.file not in present]
    if missing:
      raise ValueError(
        f'{folder} has only a part of {source.name}: {", ".join(missing)} is missing'
      )
    return {a.file: folder / a.file for a in source.archives}
  return None


def read(source: Source, paths: Mapping[str, Path]) -> tuple[Split, Split]:
  """Reads a data set from its original archives, in their order.

  Args:
    source: the data set.
    paths: where each of its files lies.

  Returns:
    The training and the test split.

  Raises:
    ValueError: if a file is not the one that the source's checksum binds, or holds something else.
  """
  get = verify if source.streamed else _read_archive
  contents = {a.file: get(a, paths[a.file]) for a in source.archives}
  where = str(paths[source.archives[0].file].parent)
  try:
    splits = [check_split(x, y, source.name) for x, y in source.parse(contents)]
  except (ValueError, KeyError, tarfile.TarError) as error:
    raise ValueError(f'{where}: the archives of {source.name} cannot be read: {error}') from error
  return check(source, *splits, where=where)


def check(source: Source, train: Split, test: Split, *, where: str) -> tuple[Split, Split]:
  """Refuses arrays that are not this data set's: number of rows, shape, labels, mean pixel.

  Args:
    source: what they should be.
    train: the training rows.
    test: the test rows.
    where: what the message names.

  Returns:
    The two splits as they are.

  Raises:
    ValueError: if they are not.
  """
  rows, shape = (len(train.y), len(test.y)), train.x.shape[1:]
  if rows != source.rows or shape != source.shape or test.x.shape[1:] != shape:
    raise ValueError(
      f'{where} is not {source.name}: {rows[0]} + {rows[1]} images of {list(shape)}, '
      f'expected {source.rows[0]} + {source.rows[1]} of {list(source.shape)}'
    )
  for split in (train, test):
    check_split(*split, where, source.num_classes)
  mean = train.x.mean((0, 1, 2), dtype=np.float64) / 255
  if not np.allclose(mean, source.mean, rtol=0, atol=source.tolerance):
    raise ValueError(
      f'{where} is not {source.name}: the mean training pixel is {np.round(mean, 4).tolist()}, '
      f'expected {np.round(source.mean, 4).tolist()}'
    )
  return train, test


def verify(archive: Archive, path: Path) -> Path:
  """Refuses a file that is not the published one, without holding it in memory.

  Args:
    archive: what it should be.
    path: the file.

  Returns:
    The path.

  Raises:
    ValueError: if its checksum is another one.
  """
  kind, expected = ('MD5', archive.md5) if archive.md5 else ('SHA-256', archive.sha256)
  with path.open('rb') as file:
    digest = hashlib.file_digest(file, kind.replace('-', '').lower()).hexdigest()
  if digest != expected:
    raise _another_file(path, kind, digest, expected, archive.url)
  return path


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
      data = b''.join(tar.extractfile(f'{folder}/{file}').read() for file in files)
      records = np.frombuffer(data, np.uint8).reshape(-1, labels + 3 * 32 * 32)
      x = records[:, labels:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
      return x, records[:, labels - 1]

    return split(train), split(test)


def _read_archive(archive: Archive, path: Path) -> bytes:
  raw = bounded.read_bytes(path)
  # No archive's content is empty: of what cannot be unpacked the checksum says the rest.
  content, digest = bounded.gunzip(raw), _sha256(raw)
  if digest != archive.sha256 and not (archive.content and _sha256(content) == archive.content):
    raise _another_file(path, 'SHA-256', digest, archive.sha256, archive.url)
  return content


def _another_file(path: Path, kind: str, digest: str, expected: str, url: str) -> ValueError:
  return ValueError(
    f'{path} is truncated or another file: {kind} {digest[:16]}..., expected '
    f'{expected[:16]}... of {url}'
  )


def _sha256(content: bytes) -> str:
  return hashlib.sha256(content).hexdigest()
