"""Images with a label, and perhaps a domain, as records of tensorflow-datasets, without TensorFlow.

The stock builders extract archives with TensorFlow. Builders made here keep the rows in their
original order and write `array_record`, the one format that tensorflow-datasets reads without
TensorFlow and without losing rows. The checksum of the arrays is stored with them.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedjax_syn.data.builders import records
from fedjax_syn.data.dataset import Dataset

if TYPE_CHECKING:  # slow to import
  import tensorflow_datasets as tfds

VERSION = '1.0.0'  # of what is written here; the stock builders' 3.x beside it is left alone
READ_ROWS = 5000


def import_tfds(name: str) -> Any:
  """Imports tensorflow-datasets for the records of a data set; see `records.import_tfds`."""
  instead = 'its published files need none of them'
  return records.import_tfds(f'data.name={name!r} as records', instead)


def make_builder(dataset: Dataset, data_dir: Path) -> 'tfds.core.GeneratorBasedBuilder':
  """Makes the tensorflow-datasets builder of a data set: image, label and, if it has any, domain.

  Args:
    dataset: what it writes.
    data_dir: where it is prepared: `data_dir/NAME/VERSION`.

  Returns:
    A builder that writes `array_record`, unregistered: a stock one of this name stays available.
  """
  tfds = import_tfds(dataset.name)
  features = {
    # Bytes: as an array each pixel would take eight bytes. An Image feature would have to be
    # encoded first.
    'image': tfds.features.Tensor(
      shape=dataset.shape, dtype=np.uint8, encoding=tfds.features.Encoding.BYTES
    ),
    'label': tfds.features.ClassLabel(num_classes=dataset.num_classes),
  }
  columns: dict[str, tuple] = {'train': dataset.train, 'test': dataset.test}
  if dataset.domains:
    features['domain'] = tfds.features.ClassLabel(names=dataset.domains)
    numbers = {'train': dataset.clients, 'test': dataset.test_domains}
    columns = {split: (*rows, numbers[split]) for split, rows in columns.items()}

  class Images(tfds.core.GeneratorBasedBuilder, skip_registration=True):  # type: ignore[call-arg, name-defined]
    name = dataset.name
    VERSION = tfds.core.Version(VERSION)

    def _info(self) -> Any:
      return tfds.core.DatasetInfo(
        builder=self,
        description=f'{dataset.title}, rows in the order of the published files.',
        features=tfds.features.FeaturesDict(features),
        supervised_keys=('image', 'label'),
        disable_shuffling=True,
        metadata=tfds.core.MetadataDict(checksum=dataset.checksum),
      )

    def _split_generators(self, dl_manager: Any) -> dict[str, Iterator]:
      del dl_manager  # nothing is downloaded
      return {split: self._generate_examples(split) for split in columns}

    def _generate_examples(self, split: str) -> Iterator[tuple[int, dict[str, Any]]]:
      for row, (image, *numbers) in enumerate(zip(*columns[split], strict=True)):
        values = (image, *map(int, numbers))
        yield row, dict(zip(features, values, strict=True))

  return Images(data_dir=data_dir, file_format='array_record')


def write(dataset: Dataset, data_dir: Path) -> Path:
  """Writes a data set as records; see `make_builder`.

  Returns:
    The folder that was written, `data_dir/NAME/VERSION`.

  Raises:
    ValueError: if tensorflow-datasets is not installed.
    OSError: if the folder cannot be written.
  """
  return records.prepare(make_builder(dataset, data_dir))


def read(
  folder: Path, keys: tuple[str, ...] = ('label',)
) -> tuple[list[np.ndarray], list[np.ndarray]]:
  """Reads prepared records, in the order in which they were written.

  Args:
    folder: where they were prepared, `data_dir/NAME/VERSION`.
    keys: what is read beside the images, 'label' or 'domain'.

  Returns:
    Of the training and of the test split: images uint8 [n, height, width, channels] and, for each
    key, int32 [n].

  Raises:
    ValueError: if they are damaged, or tensorflow-datasets is not installed.
  """
  import_tfds(folder.parent.name)
  with records.reading(folder):
    builder = records.open_builder(folder)
    train, test = (_read_split(builder, split, keys) for split in ('train', 'test'))
  return train, test


def _read_split(
  builder: 'tfds.core.DatasetBuilder', split: str, keys: tuple[str, ...]
) -> list[np.ndarray]:
  rows = builder.as_data_source(split)
  columns = {'image': np.empty((len(rows), *builder.info.features['image'].shape), np.uint8)}
  columns |= {key: np.empty(len(rows), np.int32) for key in keys}
  # All at once would take twice the memory.
  for i, batch in enumerate(records.batches(rows, READ_ROWS)):
    for key, column in columns.items():
      own = column[i * READ_ROWS : i * READ_ROWS + len(batch)]
      np.stack([row[key] for row in batch], out=own)
  return list(columns.values())
