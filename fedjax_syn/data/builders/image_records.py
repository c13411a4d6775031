"""Images with a label, and perhaps a domain, as records of tensorflow-datasets, without TensorFlow.

The stock builders extract archives with TensorFlow. What is written here keeps the rows in their
original order. The checksum of the arrays is stored with them.
"""

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedjax_syn.data.builders import records
from fedjax_syn.data.dataset import Dataset

if TYPE_CHECKING:  # slow to import
  import tensorflow_datasets as tfds

READ_ROWS = 5000


def import_tfds(name: str) -> Any:
  """Imports tensorflow-datasets for the records of a data set; see `records.import_tfds`."""
  instead = 'its published files need none of them'
  return records.import_tfds(f'data.name={name!r} as records', instead)


def write(dataset: Dataset, data_dir: Path) -> Path:
  """Writes a data set as records: image, label and, if it has any, domain.

  Args:
    dataset: what is written; its checksum is stored with the records.
    data_dir: records are written to `data_dir/NAME/VERSION`.

  Returns:
    The folder that was written.

  Raises:
    ValueError: if tensorflow-datasets is not installed.
    OSError: if the folder cannot be written.
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

  def rows(split: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for row, (image, *numbers) in enumerate(zip(*columns[split], strict=True)):
      yield row, dict(zip(features, (image, *map(int, numbers)), strict=True))

  shards = {split: [functools.partial(rows, split)] for split in columns}
  description = f'{dataset.title}, rows in the order of the published files.'
  return records.write(
    dataset.name, data_dir, features, shards, description, checksum=dataset.checksum
  )


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
