"""Where a named data set is taken from: its cache, its archives, its records, or the network.

Original archives are parsed within a second (CINIC-10's PNG files: half a minute). Records that
tensorflow-datasets has prepared take some ten seconds for 60,000 images, so that their arrays are
kept beside them in a cache, bound by the checksum that is stored with the records.
"""

import contextlib
import json
from pathlib import Path
from types import ModuleType

from fedjax_syn.data import archives
from fedjax_syn.data.archives import Source
from fedjax_syn.data.builders import arrays, bounded
from fedjax_syn.data.builders.sources import SOURCES
from fedjax_syn.data.builders.split import Split, checksum

CACHE = 'cache.npz'


def read(source: Source, data_dir: Path) -> tuple[Split, Split]:
  """Reads a named data set, in the order of its original archives.

  Args:
    source: the data set.
    data_dir: the folder of all data sets.

  Returns:
    The training and the test split.

  Raises:
    FileNotFoundError: if it is nowhere and cannot be downloaded.
    ValueError: if what is there is damaged or another data set.
    OSError: if a folder cannot be read or written.
  """
  ready = find(source, data_dir)
  if ready and (ready / CACHE).exists():
    return read_prepared(source, ready)
  paths = locate(source, data_dir)
  if paths:
    return archives.read(source, paths)
  return read_prepared(source, ready or _prepare(source, data_dir, None))


def prepare(source: Source, data_dir: Path) -> tuple[Split, Split]:
  """Writes a data set's records and their cache, and reads back what was written.

  Args:
    source: the data set.
    data_dir: records are written to `data_dir/NAME/VERSION`, unless they are there already.

  Returns:
    The training and the test split.

  Raises:
    FileNotFoundError: if its archives are nowhere and cannot be downloaded.
    ValueError: if what is there is damaged or another data set.
    OSError: if a folder cannot be read or written.
  """
  ready = find(source, data_dir)
  return read_prepared(source, ready or _prepare(source, data_dir, locate(source, data_dir)))


def locate(source: Source, data_dir: Path) -> dict[str, Path] | None:
  """Returns the paths of a data set's archives in a folder or a system package, or None."""
  places = (data_dir / source.name, data_dir, *map(Path, source.folders))
  return archives.locate(source, places, SOURCES.values())


def find(source: Source, data_dir: Path) -> Path | None:
  """Returns the newest `data_dir/NAME/VERSION` whose records can be read, own versions first.

  Args:
    source: the data set.
    data_dir: the folder of all data sets.

  Returns:
    The folder, or None.
  """
  found = [info.parent for info in (data_dir / source.name).glob('*/dataset_info.json')]
  usable = [
    folder
    for folder in found
    if _json(folder / 'dataset_info.json').get('fileFormat') == 'array_record'
  ]
  return max(usable, key=lambda folder: (bool(_stored(folder)), folder.name), default=None)


def read_prepared(source: Source, folder: Path) -> tuple[Split, Split]:
  """Reads prepared records from their cache; without one they are read and the cache is written.

  Args:
    source: what it should be.
    folder: `data_dir/NAME/VERSION`.

  Returns:
    The training and the test split.

  Raises:
    ValueError: if the cache or the records are damaged, have lost rows or are another data set.
  """
  cache, stored = folder / CACHE, _stored(folder)
  if cache.exists():
    return archives.check(source, *arrays.read_cache(cache, stored), where=str(cache))
  train, test = _images(source).read(source, folder)
  found = checksum(train, test)
  if stored and found != stored:
    raise ValueError(
      f'{folder} has changed since it was prepared (SHA-256 {found[:16]}..., expected '
      f'{stored[:16]}...): delete it, it is prepared anew'
    )
  with contextlib.suppress(OSError):  # a folder that is only read goes without
    arrays.write_cache(cache, train, test)
  return train, test


def _prepare(source: Source, data_dir: Path, paths: dict[str, Path] | None) -> Path:
  try:
    return _images(source).prepare(source, data_dir, paths)
  except FileNotFoundError as error:
    files = ', '.join(archive.file for archive in source.archives)
    raise FileNotFoundError(
      f'data.name={source.name!r} is not in data.dir={str(data_dir)!r} and cannot be downloaded '
      f'({arrays.first_line(error)}): put {files} there, or run `python -m '
      f'fedjax_syn.data.datasets {source.name} --dir={data_dir}` where there is a network'
    ) from error


def _images(source: Source) -> ModuleType:
  # Imported where it is needed: arrays and archives are read where tensorflow-datasets is absent.
  try:
    from fedjax_syn.data.builders import images
  except ImportError as error:
    raise ValueError(
      f'data.name={source.name!r} as records needs tensorflow-datasets, importlib_resources and '
      f'array_record ({arrays.first_line(error)}); its original archives, or a folder of train.npz '
      'and test.npz, need none of them'
    ) from error
  return images


def _stored(folder: Path) -> str:
  return str(_json(folder / 'metadata.json').get('checksum', ''))


def _json(path: Path) -> dict:
  try:
    content = json.loads(bounded.read_bytes(path).decode())
  except (FileNotFoundError, ValueError, RecursionError):
    return {}
  return content if isinstance(content, dict) else {}
