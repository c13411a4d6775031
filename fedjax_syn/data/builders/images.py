"""Named image data sets through tensorflow-datasets, without TensorFlow.

The stock builders extract archives with TensorFlow. These builders download with the published
checksums, parse the archives themselves, keep the rows in their original order and write
`array_record`, the one format that tensorflow-datasets reads without TensorFlow and without losing
rows. The checksum of the arrays is stored with them and compared on every reading.
"""

import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

import importlib_resources  # noqa: F401  tensorflow-datasets needs it and does not declare it
import numpy as np
import tensorflow_datasets as tfds
from tensorflow_datasets.core.download.checksums import UrlInfo
from tensorflow_datasets.core.download.download_manager import NonMatchingChecksumError

from fedjax_syn.data import archives
from fedjax_syn.data.archives import Archive, Source
from fedjax_syn.data.builders import records
from fedjax_syn.data.builders.arrays import first_line
from fedjax_syn.data.builders.split import Split, check_split, checksum

VERSION = '1.0.0'  # of what is written here; the stock builders' 3.x beside it is left alone
FORMAT = 'array_record'
CONNECT_SECONDS = 10
READ_ROWS = 5000


def prepare(source: Source, data_dir: Path, paths: Mapping[str, Path] | None) -> Path:
  """Writes a data set as `array_record`, unless it is there already.

  Args:
    source: the data set.
    data_dir: it is written to `data_dir/NAME/VERSION`.
    paths: its original archives; None downloads them.

  Returns:
    The folder that was written.

  Raises:
    FileNotFoundError: if the archives cannot be downloaded.
    ValueError: if an archive is not what its checksum says.
    OSError: if the folder cannot be written.
  """
  if paths is None:
    _connect(source.archives[0].url)
  scratch = data_dir / 'downloads' / source.name
  config = tfds.download.DownloadConfig(
    # A folder of its own: tensorflow-datasets finds extracted files by name, and several data sets
    # share the names of their files.
    extract_dir=scratch / 'extracted',
    try_download_gcs=False,
    force_checksums_validation=all(a.sha256 for a in source.archives),  # others: `_download`
  )
  made = make_builder(source, data_dir, paths)
  made.download_and_prepare(download_dir=scratch, download_config=config)
  return Path(made.data_dir)


def read(source: Source, folder: Path) -> tuple[Split, Split]:
  """Reads a prepared data set, in the order in which it was written.

  Args:
    source: what it should be.
    folder: where it was prepared, `data_dir/NAME/VERSION`.

  Returns:
    The training and the test split.

  Raises:
    ValueError: if it is damaged, has lost rows or is another data set.
  """
  try:
    made = records.open_builder(folder)
    splits = [_read_split(made, name, folder) for name in ('train', 'test')]
  except Exception as error:  # the readers below raise whatever they like
    raise ValueError(
      f'{folder} cannot be read: {first_line(error)}; delete it, it is prepared anew'
    ) from error
  return archives.check(source, *splits, where=str(folder))


def make_builder(
  source: Source, data_dir: Path, paths: Mapping[str, Path] | None = None
) -> tfds.core.GeneratorBasedBuilder:
  """Makes the tensorflow-datasets builder of a data set.

  Args:
    source: the data set.
    data_dir: where it is prepared: `data_dir/NAME/VERSION`.
    paths: its original archives; None downloads them.

  Returns:
    A builder that writes `array_record`, unregistered: the stock one of this name stays available.
  """

  class Images(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    name = source.name
    VERSION = tfds.core.Version(VERSION)
    url_infos = {a.url: UrlInfo(a.size, a.sha256, a.file) for a in source.archives if a.sha256}

    def _info(self):
      return tfds.core.DatasetInfo(
        builder=self,
        description=f'{source.title}, rows in the order of the original archives.',
        features=tfds.features.FeaturesDict(
          {
            # Bytes: as an array each pixel would take eight bytes. An Image feature would have to
            # be encoded first.
            'image': tfds.features.Tensor(
              shape=source.shape, dtype=np.uint8, encoding=tfds.features.Encoding.BYTES
            ),
            'label': tfds.features.ClassLabel(num_classes=source.num_classes),
          }
        ),
        supervised_keys=('image', 'label'),
        disable_shuffling=True,
        metadata=tfds.core.MetadataDict(),
      )

    def _split_generators(self, dl_manager):
      train, test = archives.read(source, paths or _download(source, dl_manager))
      self.info.metadata['checksum'] = checksum(train, test)
      return {'train': self._generate_examples(train), 'test': self._generate_examples(test)}

    def _generate_examples(self, split: Split):
      for row, (x, y) in enumerate(zip(*split, strict=True)):
        yield row, {'image': x, 'label': int(y)}

  return Images(data_dir=data_dir, file_format=FORMAT)


def _download(source: Source, dl_manager: tfds.download.DownloadManager) -> dict[str, Path]:
  urls = {a.file: a.url for a in source.archives}
  try:
    paths = {file: Path(path) for file, path in dl_manager.download(urls).items()}
  except NonMatchingChecksumError as error:
    raise ValueError(
      f'{source.name}: what was downloaded is not what is registered: {first_line(error)}'
    ) from error
  except Exception as error:  # requests, urllib3 and tensorflow-datasets share no base class
    raise FileNotFoundError(f'{source.archives[0].url}: {first_line(error)}') from error
  for archive in source.archives:
    if not archive.sha256:
      _verify_download(source, archive, paths[archive.file])
  return paths


def _verify_download(source: Source, archive: Archive, path: Path) -> None:
  try:
    archives.verify(archive, path)
  except ValueError as error:
    # tensorflow-datasets, which knows no checksum of it, would take it again; `.INFO` goes with it.
    for file in path.parent.glob(f'{path.name}*'):
      file.unlink()
    raise ValueError(
      f'{source.name}: what was downloaded is not what is published: {first_line(error)}'
    ) from error


def _connect(url: str) -> None:
  """Fails within seconds where there is no network; tensorflow-datasets retries for minutes."""
  request = urllib.request.Request(url, method='HEAD')
  try:
    urllib.request.urlopen(request, timeout=CONNECT_SECONDS).close()
  except OSError as error:
    # Any answer below 500 is for the download itself to judge.
    if not isinstance(error, urllib.error.HTTPError) or error.code >= 500:
      raise FileNotFoundError(f'{url}: {first_line(error)}') from error


def _read_split(made: tfds.core.DatasetBuilder, name: str, folder: Path) -> Split:
  rows = made.as_data_source(name)
  x = np.empty((len(rows), *made.info.features['image'].shape), np.uint8)
  y = np.empty(len(rows), np.int32)
  # Many at once: row by row takes three times as long. All would take the memory twice.
  for start in range(0, len(rows), READ_ROWS):
    part = rows.__getitems__(range(start, min(start + READ_ROWS, len(rows))))
    np.stack([row['image'] for row in part], out=x[start : start + len(part)])
    y[start : start + len(part)] = [row['label'] for row in part]
  return check_split(x, y, str(folder))
