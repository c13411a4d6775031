"""Where a named data set is taken from: its cache, its archives, its records, or the network.

Original archives are parsed within a second (CINIC-10's PNG files: half a minute). Records that
tensorflow-datasets has prepared take some ten seconds for 60,000 images, so that a cache beside
them keeps their arrays; the checksum that is stored with the records holds for it, too.
"""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedjax_syn.core import paths
from fedjax_syn.core.texts import first_line
from fedjax_syn.data import domains
from fedjax_syn.data.builders import archives, arrays, bounded, image_records
from fedjax_syn.data.builders.archives import Source
from fedjax_syn.data.builders.domain_sources import DOMAIN_SOURCES, DomainSource
from fedjax_syn.data.builders.sources import SOURCES
from fedjax_syn.data.dataset import Dataset
from fedjax_syn.data.domains import Domain
from fedjax_syn.data.split import Split, check_split, checksum

CACHE = 'cache.npz'
_CACHED = ('train_x', 'train_y', 'test_x', 'test_y', 'checksum')


def load(name: str, data_dir: Path, mapped: bool = False) -> Dataset:
  """Reads a data set of `SOURCES` from a folder of arrays (see `arrays.load`), else as `read`."""
  source = SOURCES[name]
  for folder in (data_dir / name, data_dir):
    if arrays.is_folder(folder):
      return arrays.load(name, folder, source.num_classes, source.normalisation, mapped)
  return read(source, data_dir, mapped)


def read(source: Source, data_dir: Path, mapped: bool = False) -> Dataset:
  """Reads a named data set, in the order of its original archives.

  Args:
    source: the data set.
    data_dir: the folder of all data sets.
    mapped: whether the pixels of prepared records stay in their file until they are used.

  Raises:
    FileNotFoundError: if it is nowhere and cannot be downloaded.
    ValueError: if what is there is damaged or another data set.
    OSError: if a folder cannot be read or written.
  """
  ready = find(source, data_dir)
  if ready and (ready / CACHE).exists():
    return read_prepared(source, ready, mapped)
  if located := locate(source, data_dir):
    return archives.read(source, located)
  return prepare(source, data_dir)


def prepare(source: Source, data_dir: Path) -> Dataset:
  """Writes a data set's records and their cache, and reads back what was written.

  Args:
    source: the data set.
    data_dir: records are written to `data_dir/NAME/VERSION`, unless they are there already.

  Raises:
    FileNotFoundError: if its archives are nowhere and cannot be downloaded.
    ValueError: if what is there is damaged or another data set.
    OSError: if a folder cannot be read or written.
  """
  ready = find(source, data_dir)
  if ready is None:
    image_records.import_tfds(source.name)  # before anything is downloaded
    located = locate(source, data_dir) or _download(source, data_dir)
    ready = image_records.write(archives.read(source, located), data_dir)
  return read_prepared(source, ready)


def locate(source: Source, data_dir: Path) -> dict[str, Path] | None:
  """Returns the paths of a data set's archives in a folder or a system package, or None."""
  folders = (data_dir / source.name, data_dir, *map(Path, source.folders))
  return archives.locate(source, folders, SOURCES.values())


def find(source: Source | DomainSource, data_dir: Path) -> Path | None:
  """Returns the newest `data_dir/NAME/VERSION` whose records can be read, own versions first.

  Args:
    source: the data set.
    data_dir: the folder of all data sets.

  Returns:
    The folder, or None.
  """
  readable = [
    info.parent
    for info in (data_dir / source.name).glob('*/dataset_info.json')
    if _json(info).get('fileFormat') == 'array_record'
  ]
  return max(readable, key=lambda folder: (bool(_stored(folder)), folder.name), default=None)


def read_prepared(source: Source, folder: Path, mapped: bool = False) -> Dataset:
  """Reads prepared records from their cache; without one they are read and the cache is written.

  Args:
    source: what it should be.
    folder: `data_dir/NAME/VERSION`.
    mapped: see `read`.

  Raises:
    ValueError: if the cache or the records are damaged, have lost rows or are another data set.
  """
  cache, stored = folder / CACHE, _stored(folder)
  if cache.exists():
    on_disk = ('train_x', 'test_x') if mapped else ()
    values, _ = arrays.load_arrays(cache, _CACHED, mapped=on_disk)
    train, test = (
      check_split(values[f'{split}_x'], values[f'{split}_y'], str(cache))
      for split in ('train', 'test')
    )
    digest, expected = checksum(train, test), stored or str(values['checksum'])
    if digest != expected:
      raise ValueError(
        f'{cache} is not the cache of the data set beside it (SHA-256 {digest[:16]}..., expected '
        f'{expected[:16]}...): delete it, it is written anew'
      )
    return archives.check(source, train, test, str(cache))
  (x, y), (test_x, test_y) = image_records.read(folder)
  dataset = archives.check(source, (x, y), (test_x, test_y), str(folder))
  if stored:
    _compare(dataset, folder)
  with contextlib.suppress(OSError):  # a folder that is only read goes without
    write_cache(cache, dataset)
  return dataset


def write_cache(path: Path, dataset: Dataset) -> None:
  """Keeps arrays and their checksum in one uncompressed file, written whole or not at all.

  Raises:
    OSError: if the folder cannot be written.
  """
  values = (*dataset.train, *dataset.test, np.array(dataset.checksum))
  named: dict[str, Any] = dict(zip(_CACHED, values, strict=True))
  with paths.replacing(path) as file:
    np.savez(file, **named)


def load_domains(name: str, data_dir: Path) -> Dataset:
  """Reads a data set of `DOMAIN_SOURCES` from its records, else from its published layout.

  Args:
    name: of the data set.
    data_dir: the folder of all data sets.

  Raises:
    FileNotFoundError: if it is not there; the line says what to fetch.
    ValueError: if what is there is damaged or another data set.
  """
  source = DOMAIN_SOURCES[name]
  ready = find(source, data_dir)
  if ready is None:
    return _parse_domains(source, data_dir)
  (x, y, d), (test_x, test_y, test_d) = image_records.read(ready, ('label', 'domain'))
  parts = [
    Domain(domain, Split(x[d == i], y[d == i]), Split(test_x[test_d == i], test_y[test_d == i]))
    for i, domain in enumerate(source.domains)
  ]
  dataset = _join(source, parts, ready)
  _compare(dataset, ready)
  return dataset


def prepare_domains(source: DomainSource, data_dir: Path) -> None:
  """Writes a data set's records, unless they are there; reading them is faster."""
  if find(source, data_dir) is None:
    image_records.write(_parse_domains(source, data_dir), data_dir)


def _parse_domains(source: DomainSource, data_dir: Path) -> Dataset:
  path = source.locate(data_dir)
  if path is None:
    raise FileNotFoundError(
      f'data.name={source.name!r} is not in data.dir={str(data_dir)!r}: {source.fetch}'
    )
  return _join(source, source.parse(path), path)


def _join(source: DomainSource, parts: Sequence[Domain], where: Path) -> Dataset:
  """Joins domains and checks that they are this data set's: rows of each and labels."""
  dataset = domains.join(source.name, source.title, source.num_classes, parts, source.side, 3)
  of_row = dataset.clients, dataset.test_domains
  counts = [np.bincount(np.asarray(n), minlength=len(source.domains)).tolist() for n in of_row]
  rows = tuple(zip(*counts, strict=True))
  if rows != source.rows:
    raise ValueError(
      f'{where} is not {source.name}: {rows} images by domain, expected {source.rows}'
    )
  classes = 1 + int(max(dataset.train.y.max(), dataset.test.y.max()))
  if classes != source.num_classes:
    raise ValueError(f'{where} is not {source.name}: {classes} classes, not {source.num_classes}')
  return dataset


def _download(source: Source, data_dir: Path) -> dict[str, Path]:
  try:
    return archives.download(source, data_dir)
  except FileNotFoundError as error:
    files = ', '.join(archive.file for archive in source.archives)
    raise FileNotFoundError(
      f'data.name={source.name!r} is not in data.dir={str(data_dir)!r} and cannot be downloaded '
      f'({first_line(error)}): put {files} there, or run `python -m '
      f'fedjax_syn.data.datasets {source.name} --dir={data_dir}` where there is a network'
    ) from error


def _compare(dataset: Dataset, folder: Path) -> None:
  """Compares what was read with the checksum that is stored beside it."""
  stored = _stored(folder)
  if dataset.checksum != stored:
    raise ValueError(
      f'{folder} has changed since it was prepared (SHA-256 {dataset.checksum[:16]}..., expected '
      f'{stored[:16]}...): delete it, it is prepared anew'
    )


def _stored(folder: Path) -> str:
  return str(_json(folder / 'metadata.json').get('checksum', ''))


def _json(path: Path) -> dict:
  try:
    content = bounded.read_json(path)
  except (FileNotFoundError, ValueError):
    return {}
  return content if isinstance(content, dict) else {}
