"""Data sets of several domains through tensorflow-datasets, without TensorFlow; see `images`."""

from pathlib import Path

import importlib_resources  # noqa: F401  tensorflow-datasets needs it and does not declare it
import numpy as np
import tensorflow_datasets as tfds

from fedjax_syn.data.builders import domain_sources, records
from fedjax_syn.data.builders.arrays import first_line
from fedjax_syn.data.builders.domain_sources import DomainSource
from fedjax_syn.data.builders.images import FORMAT, READ_ROWS, VERSION
from fedjax_syn.data.builders.split import Split, check_split, checksum
from fedjax_syn.data.domains import Joined


def make_builder(source: DomainSource, data_dir: Path) -> tfds.core.GeneratorBasedBuilder:
  """Makes the tensorflow-datasets builder of a data set: image, label and domain, in the order of its domains.

  Args:
    source: the data set.
    data_dir: where its published layout lies, and where it is prepared: `data_dir/NAME/VERSION`.

  Returns:
    A builder that writes `array_record`, unregistered.
  """
  shape = (source.side, source.side, source.channels)

  class Domains(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    name = source.name
    VERSION = tfds.core.Version(VERSION)
    MANUAL_DOWNLOAD_INSTRUCTIONS = source.fetch

    def _info(self):
      return tfds.core.DatasetInfo(
        builder=self,
        description=f'{source.title}, rows domain by domain: {", ".join(source.domains)}.',
        features=tfds.features.FeaturesDict(
          {
            'image': tfds.features.Tensor(
              shape=shape, dtype=np.uint8, encoding=tfds.features.Encoding.BYTES
            ),
            'label': tfds.features.ClassLabel(num_classes=source.num_classes),
            'domain': tfds.features.ClassLabel(names=source.domains),
          }
        ),
        supervised_keys=('image', 'label'),
        disable_shuffling=True,
        metadata=tfds.core.MetadataDict(),
      )

    def _split_generators(self, dl_manager):
      del dl_manager  # nothing is downloaded
      found = domain_sources.parse(source, data_dir)
      self.info.metadata['checksum'] = checksum(found.train, found.test, found.clients)
      return {
        'train': self._generate_examples(found.train, found.clients),
        'test': self._generate_examples(found.test, found.test_domains),
      }

    def _generate_examples(self, split: Split, numbers: np.ndarray):
      for row, (x, y, domain) in enumerate(zip(*split, numbers, strict=True)):
        yield row, {'image': x, 'label': int(y), 'domain': int(domain)}

  return Domains(data_dir=data_dir, file_format=FORMAT)


def prepare(source: DomainSource, data_dir: Path) -> None:
  """Writes the records; see `domain_prepared.prepare`."""
  config = tfds.download.DownloadConfig(try_download_gcs=False, manual_dir=data_dir)
  make_builder(source, data_dir).download_and_prepare(download_config=config)


def read(source: DomainSource, data_dir: Path) -> Joined:
  """Reads what was prepared, and compares it with the checksum that is stored beside it.

  Raises:
    ValueError: if it is damaged or has lost rows.
  """
  newest = max((data_dir / source.name).glob('*/dataset_info.json')).parent
  try:
    made = records.open_builder(newest)
    parts = [_split(made, name, newest) for name in ('train', 'test')]
    stored = made.info.metadata['checksum']
  except Exception as error:  # the readers below raise whatever they like
    raise ValueError(
      f'{newest} cannot be read: {first_line(error)}; delete it, it is prepared anew'
    ) from error
  (train, clients), (test, test_domains) = parts
  if checksum(train, test, clients) != stored:
    raise ValueError(f'{newest} has changed since it was prepared: delete it, it is prepared anew')
  return Joined(train, test, clients, test_domains, source.domains)


def _split(made: tfds.core.DatasetBuilder, name: str, where: Path) -> tuple[Split, np.ndarray]:
  rows = made.as_data_source(name)
  x = np.empty((len(rows), *made.info.features['image'].shape), np.uint8)
  y, domain = np.empty(len(rows), np.int32), np.empty(len(rows), np.int32)
  for start in range(0, len(rows), READ_ROWS):
    part = rows.__getitems__(range(start, min(start + READ_ROWS, len(rows))))
    np.stack([row['image'] for row in part], out=x[start : start + len(part)])
    y[start : start + len(part)] = [row['label'] for row in part]
    domain[start : start + len(part)] = [row['domain'] for row in part]
  return check_split(x, y, str(where)), domain
