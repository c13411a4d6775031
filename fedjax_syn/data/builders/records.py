"""Folders that tensorflow-datasets prepares: written here, found by name, opened after a check.

`features.json` names a class for every feature, and tensorflow-datasets imports the module that it
says. Names and templates of files may lead out of the folder. Both are refused unless the caller
trusts the folder.
"""

import contextlib
import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedjax_syn.core.texts import first_line
from fedjax_syn.data.builders import bounded

if TYPE_CHECKING:  # slow to import
  import tensorflow_datasets as tfds

VERSION = '1.0.0'  # of what is written here; the stock builders' 3.x beside it is left alone
Shard = Callable[[], Iterator[tuple[int, dict[str, Any]]]]
OWN = 'tensorflow_datasets.core.features.'  # where its own features are
_CLASS_KEYS = ('pythonClassName', 'python_class_name', 'type')  # as both generations write it
_FILE_KEYS = ('name', 'filepathTemplate', 'filepath_template')
_FEATURE = '\0'  # stands for a key itself, which is no text that JSON gives
_FILE = re.compile(r'(?!\.\.)[\w{}.@ +-]*')
_WORD = re.compile(r'(?P<name>\w+)(?:/(?P<config>[\w.+-]+))?(?::(?P<version>[\d.*]+))?')
_VERSION = re.compile(r'\d+\.\d+\.\d+')


def import_tfds(what: str, instead: str = '') -> Any:
  """Imports tensorflow-datasets, where it is needed: other data are read where it is absent.

  Args:
    what: needs it; the message begins with it.
    instead: what would work without it.

  Raises:
    ValueError: if it, or what it needs and does not declare, is not installed.
  """
  try:
    import importlib_resources  # noqa: F401
    import tensorflow_datasets
  except ImportError as error:
    raise ValueError(
      f'{what} needs tensorflow-datasets, importlib_resources and array_record '
      f'({first_line(error)}){instead and "; "}{instead}'
    ) from error
  return tensorflow_datasets


def write(
  dataset: str,
  data_dir: Path,
  features: dict[str, Any],
  shards: Mapping[str, Sequence[Shard]],
  description: str,
  **metadata: str,
) -> Path:
  """Writes records of images as `array_record`, in order and shard by shard.

  `array_record` is the one format that tensorflow-datasets reads without TensorFlow and without
  losing rows. One shard is held in memory at a time: `GeneratorBasedBuilder` would sort a whole
  split, and needs TensorFlow for more than 1 GB of it. The builder is not registered: a stock one
  of its name stays available.

  Args:
    dataset: its name.
    data_dir: records are written to `data_dir/DATASET/VERSION`, unless they are there already.
    features: of tensorflow-datasets, by name: the image, what is predicted, others.
    shards: by split, functions that yield the number and the features of each row.
    description: is kept with the records.
    **metadata: is kept with the records.

  Returns:
    The folder.

  Raises:
    OSError: if it cannot be written.
  """
  tfds = import_tfds(f'data.name={dataset!r}')

  class Images(tfds.core.ShardBasedBuilder, skip_registration=True):  # type: ignore[call-arg, name-defined]
    name = dataset
    VERSION = tfds.core.Version(VERSION)

    def _info(self) -> Any:
      return tfds.core.DatasetInfo(
        builder=self,
        description=description,
        features=tfds.features.FeaturesDict(features),
        supervised_keys=tuple(features)[:2],
        disable_shuffling=True,
        metadata=tfds.core.MetadataDict(metadata),
      )

    def _shard_iterators_per_split(self, dl_manager: Any) -> Mapping[str, Sequence[Shard]]:
      return shards

  builder = Images(data_dir=data_dir, file_format='array_record')
  config = tfds.download.DownloadConfig(try_download_gcs=False)
  with tempfile.TemporaryDirectory() as scratch:  # tensorflow-datasets makes folders for downloads
    builder.download_and_prepare(download_dir=scratch, download_config=config)
  return Path(builder.data_dir)


def batches(rows: Any, size: int) -> Iterator[list[Any]]:
  """Yields all rows of a data source, `size` at once: row by row takes three times as long."""
  for start in range(0, len(rows), size):
    yield rows.__getitems__(range(start, min(start + size, len(rows))))


@contextlib.contextmanager
def reading(folder: Path) -> Iterator[None]:
  """Turns whatever the readers of a prepared folder raise into a line that names the folder."""
  try:
    yield
  except Exception as error:  # they share no base class
    raise ValueError(
      f'{folder} cannot be read: {first_line(error)}; delete it, it is prepared anew'
    ) from error


def find(word: str, data_dir: Path) -> Path:
  """Finds a prepared data set; nothing of it is imported.

  Args:
    word: NAME, NAME/CONFIG, NAME:VERSION or NAME/CONFIG:VERSION.
    data_dir: the folder of all data sets.

  Returns:
    `data_dir/NAME[/CONFIG]/VERSION`, the newest version that fits.

  Raises:
    FileNotFoundError: if it is not there.
    ValueError: if the word is another, or the config has to be named.
  """
  parts = _WORD.fullmatch(word)
  if not parts:
    raise ValueError('it must be NAME, NAME/CONFIG or NAME:VERSION, without a namespace')
  folder = data_dir / parts['name']
  if parts['config']:
    folder = folder / parts['config']
  elif not _versions(folder):
    folder = folder / _config(folder)
  wanted = re.escape(parts['version'] or '*').replace(r'\*', '.*')
  fitting = [path for path in _versions(folder) if re.fullmatch(wanted, path.name)]
  if not fitting:
    raise FileNotFoundError(
      f'{folder} holds no prepared version{" " + parts["version"] if parts["version"] else ""}'
    )
  return fitting[-1]


def _config(folder: Path) -> str:
  """Returns the only config, or the default that was written, where none is named."""
  configs = sorted({path.parents[1].name for path in folder.glob('*/*/features.json')})
  written = folder / '.config' / 'metadata.json'
  default = bounded.read_json(written).get('default_config_name') if written.exists() else None
  if default in configs:
    return default
  if len(configs) > 1:
    raise ValueError(
      f'{folder} holds {", ".join(configs)}; name one, as in {folder.name}/{configs[0]}'
    )
  return configs[0] if configs else ''


def open_builder(folder: Path, trusted: bool = False) -> 'tfds.core.DatasetBuilder':
  """Opens a prepared folder.

  Args:
    folder: of one version, with `dataset_info.json` and `features.json`.
    trusted: whether modules that the folder names may be imported, and files outside of it read.

  Returns:
    The builder, which only reads.

  Raises:
    ValueError: if the folder names a module or a path that needs trust, or holds something else
      than files.
  """
  for path in folder.iterdir():  # the readers would wait for a pipe
    if not path.is_file() and not path.is_dir():
      raise ValueError(f'{path} is not a regular file')
  if not trusted:
    _check(folder)
  return import_tfds(str(folder)).builder_from_directory(folder)


def _check(folder: Path) -> None:
  trust = 'data.trusted=true says that you trust this folder'
  features, info = folder / 'features.json', folder / 'dataset_info.json'
  for key, value in _entries(bounded.read_json(features)):
    if key in _CLASS_KEYS and value and not value.startswith(OWN):
      raise ValueError(f'{features} names {value!r}, and reading it would import that; {trust}')
    if key == _FEATURE and '..' in value.split('/'):
      raise ValueError(f'{features} names {value!r}, which leads out of the folder; {trust}')
  for key, value in _entries(bounded.read_json(info)):
    if key in _FILE_KEYS and not _FILE.fullmatch(value):
      raise ValueError(f'{info} names {value!r}, which leads out of the folder; {trust}')


def _entries(value: Any, key: str = '') -> Iterator[tuple[str, str]]:
  """Yields every text of a JSON value with its key, and every key; JSON inside of a text, too."""
  if isinstance(value, dict):
    for name, inner in value.items():
      yield _FEATURE, name
      yield from _entries(inner, name)
  elif isinstance(value, list):
    for inner in value:
      yield from _entries(inner, key)
  elif isinstance(value, str):
    yield key, value
    if value.lstrip()[:1] in ('{', '['):
      with contextlib.suppress(ValueError):
        yield from _entries(json.loads(value), key)


def _versions(folder: Path) -> list[Path]:
  """Returns the folders of versions that hold a prepared set, oldest first."""
  folders = (path.parent for path in folder.glob('*/features.json'))
  versions = filter(lambda path: _VERSION.fullmatch(path.name), folders)
  return sorted(versions, key=lambda path: tuple(map(int, path.name.split('.'))))
