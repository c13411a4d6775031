"""Data files that published Python packages carry: located, read and checked; nothing is imported.

A package is installed, or its wheel or source archive lies in `data.dir`, as `pip download` leaves
it. Only one known file of it is read, and only if its SHA-256 is the known one.
"""

import csv
import hashlib
import importlib.util
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedjax_syn.core.texts import first_line
from fedjax_syn.data.builders import bounded
from fedjax_syn.data.split import smallest_digests

ROW = ''  # the name of the column of row numbers, as R writes it
PYDATASET = 'pydataset', 'resources.tar.gz'  # package and file of R's data sets
_DAMAGED = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError)


class PackageFile(NamedTuple):
  """A file of a package, and what it must be."""

  package: str
  path: str
  """Within the package's folder, with /."""
  sha256: str
  """Of the file, or of `member`."""
  member: str = ''
  """The file is a tar archive, and this file in it is meant; '': the file itself."""


def read(name: str, file: PackageFile, data_dir: Path) -> bytes:
  """Reads a package's file from an archive in `data_dir` or `data_dir/NAME`, else as installed.

  Args:
    name: of the data set, as in the config.
    file: what to read.
    data_dir: the folder of all data sets.

  Returns:
    The content of the file, or of its member.

  Raises:
    FileNotFoundError: if the package is in neither place; the line says how to get it.
    ValueError: if an archive or a file is damaged, or the content is another one.
  """
  for path in _places(name, file, data_dir):
    content = _content(path, file)
    digest = hashlib.sha256(content).hexdigest()
    if digest != file.sha256:
      raise ValueError(
        f'{path}: {file.member or file.path} is another file than the one that {name} is made of '
        f'(SHA-256 {digest[:16]}..., expected {file.sha256[:16]}...)'
      )
    return content
  raise FileNotFoundError(
    f'data.name={name!r} is made of a file of the Python package {file.package}, which is neither '
    f'installed nor in data.dir={str(data_dir)!r}: `pip install {file.package}`, or once, where '
    f'there is a network, `pip download --no-deps --dest={data_dir} {file.package}`'
  )


def _places(name: str, file: PackageFile, data_dir: Path) -> Iterator[Path]:
  """Yields archives of the package, then its file as installed."""
  for folder in (data_dir / name, data_dir):
    for path in sorted(folder.glob(f'{file.package}-*'), reverse=True):
      if path.name.endswith(('.whl', '.tar.gz')) and path.is_file():
        yield path
  spec = importlib.util.find_spec(file.package)  # imports nothing
  for place in (spec.submodule_search_locations or ()) if spec else ():
    path = Path(place, file.path)
    if path.is_file():
      yield path


def _content(path: Path, file: PackageFile) -> bytes:
  """Returns what is meant, from an archive of the package or from the file as installed."""
  content = bounded.read_bytes(path)
  try:
    if path.name.endswith('.whl'):
      content = _from_zip(content, f'{file.package}/{file.path}')
    elif path.name != Path(file.path).name:
      content = _from_tar(content, f'/{file.package}/{file.path}')
    return _from_tar(content, file.member) if file.member else content
  except KeyError as error:
    raise ValueError(f'{path} has no file {error.args[0]}') from error
  except _DAMAGED as error:
    raise ValueError(f'{path} cannot be read: {first_line(error)}') from error


def _from_zip(content: bytes, name: str) -> bytes:
  with zipfile.ZipFile(io.BytesIO(content)) as archive:
    if name not in archive.namelist():
      raise KeyError(name)
    _check_size(archive.getinfo(name).file_size, name)
    return archive.read(name)


def _from_tar(content: bytes, end: str) -> bytes:
  """Returns the first regular file of a gzip tar archive whose path ends so."""
  with tarfile.open(fileobj=io.BytesIO(content), mode='r:gz') as archive:
    for member in archive:
      if member.isfile() and f'/{member.name}'.endswith(f'/{end.lstrip("/")}'):
        _check_size(member.size, member.name)
        return archive.extractfile(member).read()  # type: ignore[union-attr]
  raise KeyError(end.lstrip('/'))


def _check_size(size: int, name: str) -> None:
  if size > bounded.UNPACKED:
    raise OSError(f'{name} has {size} bytes, more than the {bounded.UNPACKED} that are read')


def columns(content: bytes, names: Sequence[str], where: str) -> dict[str, np.ndarray]:
  """Reads columns of a CSV file with a line of names and a column of row numbers.

  Args:
    content: the file.
    names: of the columns that are wanted.
    where: what the message names.

  Returns:
    Texts [rows] by name; ROW is the number of each row.

  Raises:
    ValueError: if a column is missing, there is no row, or a line has another length.
  """
  lines = list(csv.reader(io.StringIO(content.decode('utf-8', errors='replace'))))
  head, rows = (lines or [[]])[0], lines[1:]
  if missing := [name for name in (ROW, *names) if name not in head]:
    raise ValueError(f'{where} has no column {missing[0]!r}, only {", ".join(head) or "no line"}')
  if not rows:
    raise ValueError(f'{where} has no rows')
  if wrong := [i for i, row in enumerate(rows, 2) if len(row) != len(head)]:
    raise ValueError(f'{where}: line {wrong[0]} has not {len(head)} values')
  table = np.array(rows)
  return {name: table[:, head.index(name)] for name in (ROW, *names)}


def numbers(texts: np.ndarray, where: str) -> np.ndarray:
  """Numbers a column of 1, 2, ... from 0 on.

  Args:
    texts: [rows].
    where: what the message names.

  Returns:
    int32 [rows].

  Raises:
    ValueError: if they are others.
  """
  values = np.unique(texts)
  if set(values.tolist()) != {str(i + 1) for i in range(len(values))}:
    raise ValueError(f'{where}: clients are not numbered 1 to {len(values)}')
  return texts.astype(np.int32) - 1


def share_of_clients(
  table: Mapping[str, np.ndarray], clients: np.ndarray, share: float
) -> np.ndarray:
  """Chooses a share of each client's rows by the SHA-256 of their numbers: always the same ones.

  Args:
    table: of `columns`.
    clients: of each row, int [rows].
    share: of the rows.

  Returns:
    Whether a row is chosen, bool [rows]. A client keeps one row at least.
  """
  return smallest_digests(clients, share, [hashlib.sha256(n.encode()).digest() for n in table[ROW]])
