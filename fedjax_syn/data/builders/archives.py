"""The original archives of the image data sets: located, downloaded, checked and parsed."""

import contextlib
import hashlib
import tarfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedjax_syn.core.texts import first_line
from fedjax_syn.data.builders import bounded
from fedjax_syn.data.builders.archive_formats import Arrays
from fedjax_syn.data.dataset import Dataset, make
from fedjax_syn.data.split import check_split

CONNECT_SECONDS = 10


class Archive(NamedTuple):
  """One file to download, and its checksum."""

  file: str
  url: str
  known_hash: str
  """Of the file: 'sha256:...' as tensorflow-datasets registers it, else 'md5:...' as published."""
  content: str = ''
  """SHA-256 of what is inside: packers write different gzip headers."""


class Source(NamedTuple):
  """All that is known of a data set before it is read."""

  name: str
  title: str
  archives: tuple[Archive, ...]
  parse: Callable[[Mapping[str, Any]], tuple[Arrays, Arrays]]
  """By file: unpacked bytes, or the path if the archives are streamed -> train, test."""
  shape: tuple[int, int, int]
  """Height, width, channels."""
  rows: tuple[int, int]
  """Training, test."""
  mean: tuple[float, ...]
  """Of the training pixels in 0..1, per channel: no other set has it."""
  normalisation: str
  num_classes: int = 10
  folders: tuple[str, ...] = ()
  """Where a system package puts the archives."""
  streamed: bool = False
  """The archives are too large to be held in memory."""
  tolerance: float = 1e-4
  """Of `mean`."""


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
    if archive.file in files  # other names tell sets apart without reading
    for digest in (archive.known_hash.partition(':')[2], archive.content)
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


def download(source: Source, data_dir: Path) -> dict[str, Path]:
  """Downloads a data set's archives to `data_dir/downloads/NAME`; a file is whole or not there.

  Args:
    source: the data set.
    data_dir: the folder of all data sets.

  Returns:
    The path of every file.

  Raises:
    FileNotFoundError: if a file cannot be downloaded.
    ValueError: if it is not what its checksum says.
    OSError: if the folder cannot be written.
  """
  import pooch  # slow to import, as all that downloads
  import requests

  folder = data_dir / 'downloads' / source.name
  new = [path for path in (folder, *folder.parents) if not path.exists()]
  get = pooch.HTTPDownloader(progressbar=True, chunk_size=1 << 20, timeout=CONNECT_SECONDS)
  pooch.get_logger().setLevel('WARNING')
  paths = {}
  try:
    for archive in source.archives:
      path = pooch.retrieve(archive.url, archive.known_hash, archive.file, folder, downloader=get)
      paths[archive.file] = Path(path)
  except requests.RequestException as error:
    reason = getattr(error.args[0], 'reason', error) if error.args else error
    raise FileNotFoundError(f'{archive.url}: {first_line(reason)}') from error
  except ValueError as error:
    raise ValueError(
      f'{source.name}: what was downloaded is not what is published: {first_line(error)}'
    ) from error
  finally:
    for path in new:  # a refusal leaves no empty folder
      with contextlib.suppress(OSError):
        path.rmdir()
  return paths


def read(source: Source, paths: Mapping[str, Path]) -> Dataset:
  """Reads a data set from its original archives, in their order.

  Args:
    source: the data set.
    paths: where each of its files lies.

  Raises:
    ValueError: if a file is not the one of the source's checksum, or holds something else.
  """
  get = verify if source.streamed else _read_archive
  contents = {a.file: get(a, paths[a.file]) for a in source.archives}
  where = str(paths[source.archives[0].file].parent)
  try:
    train, test = source.parse(contents)
  except (ValueError, KeyError, tarfile.TarError) as error:
    raise ValueError(f'{where}: the archives of {source.name} cannot be read: {error}') from error
  return check(source, train, test, where)


def check(source: Source, train: Arrays, test: Arrays, where: str) -> Dataset:
  """Checks that arrays are this data set's: number of rows, shape, labels, mean pixel.

  Args:
    source: what they should be.
    train: the training rows.
    test: the test rows.
    where: what the message names.

  Raises:
    ValueError: if they are not.
  """
  splits = [check_split(x, y, where, source.num_classes) for x, y in (train, test)]
  rows, shapes = tuple(len(split.y) for split in splits), [split.x.shape[1:] for split in splits]
  if rows != source.rows or shapes != [source.shape] * 2:
    raise ValueError(
      f'{where} is not {source.name}: {rows[0]} + {rows[1]} images of {list(shapes[0])}, '
      f'expected {source.rows[0]} + {source.rows[1]} of {list(source.shape)}'
    )
  mean = splits[0].x.mean((0, 1, 2), dtype=np.float64) / 255
  if not np.allclose(mean, source.mean, rtol=0, atol=source.tolerance):
    raise ValueError(
      f'{where} is not {source.name}: the mean training pixel is {np.round(mean, 4).tolist()}, '
      f'expected {np.round(source.mean, 4).tolist()}'
    )
  described = source.name, source.title
  return make(*described, splits[0], splits[1], source.num_classes, source.normalisation)


def verify(archive: Archive, path: Path) -> Path:
  """Checks that a file is the published one, without holding it in memory.

  Args:
    archive: what it should be.
    path: the file.

  Returns:
    The path.

  Raises:
    ValueError: if its checksum is another one.
  """
  with path.open('rb') as file:
    _compare(archive, path, hashlib.file_digest(file, archive.known_hash.partition(':')[0]))
  return path


def _read_archive(archive: Archive, path: Path) -> bytes:
  raw = bounded.read_bytes(path)
  # Content that cannot be unpacked is b''; then the checksum of the file refuses it.
  content = bounded.gunzip(raw)
  if not archive.content or _sha256(content) != archive.content:
    _compare(archive, path, hashlib.sha256(raw))
  return content


def _compare(archive: Archive, path: Path, digest: Any) -> None:
  kind, _, expected = archive.known_hash.partition(':')
  if digest.hexdigest() != expected:
    kind = {'md5': 'MD5', 'sha256': 'SHA-256'}[kind]
    raise ValueError(
      f'{path} is truncated or another file: {kind} {digest.hexdigest()[:16]}..., expected '
      f'{expected[:16]}... of {archive.url}'
    )


def _sha256(content: bytes) -> str:
  return hashlib.sha256(content).hexdigest()
