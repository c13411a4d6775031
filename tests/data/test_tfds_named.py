"""Splits of a set that tensorflow-datasets prepared: which are read, and which lack a class."""

import numpy as np
import pytest
import tensorflow_datasets as tfds

from fedjax_syn.data import datasets
from fedjax_syn.data.facts import Choice


def prepare(folder, **splits):
  """Writes a set `mine`; each split has one image of 2 x 2 pixels for each of its labels."""
  value = iter(range(1, 200))

  class Mine(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    name = 'mine'
    VERSION = tfds.core.Version('1.0.0')

    def _info(self):
      shape = tfds.features.Tensor(shape=(2, 2, 1), dtype=np.uint8)
      features = {'image': shape, 'label': tfds.features.ClassLabel(num_classes=3)}
      return tfds.core.DatasetInfo(
        builder=self,
        features=tfds.features.FeaturesDict(features),
        supervised_keys=('image', 'label'),
      )

    def _split_generators(self, dl_manager):
      return {name: self._generate_examples(labels) for name, labels in splits.items()}

    def _generate_examples(self, labels):
      for i, label in enumerate(labels):
        yield i, {'image': np.full((2, 2, 1), next(value), np.uint8), 'label': label}

  config = tfds.download.DownloadConfig(try_download_gcs=False)
  Mine(data_dir=folder, file_format='array_record').download_and_prepare(
    download_dir=folder / 'scratch', download_config=config
  )


def test_splits_that_are_not_read_are_said(tmp_path):
  prepare(tmp_path, train=[0, 1, 2, 0], validation=[1, 2], test=[0, 1, 2], extra=[0])
  found = datasets.load('tfds:mine', str(tmp_path))
  assert (len(found.train.y), len(found.test.y)) == (4, 3)
  assert found.notes == (
    'read 4 images of split train and 3 of split test',
    "split 'extra' (1 rows) not read",
    "split 'validation' (2 rows) not read",
  )


def test_validation_is_the_test_split_where_there_is_no_other(tmp_path):
  prepare(tmp_path, train=[0, 1], validation=[1, 0])
  assert datasets.load('tfds:mine', str(tmp_path)).notes[1] == (
    "the test split is 'validation', as there is no split test"
  )


def test_splits_and_slices_by_name(tmp_path):
  prepare(tmp_path, train=[0, 1, 2] * 4, validation=[1, 2], test=[0, 1, 2], extra=[0, 2, 1, 0])
  load = lambda *names: datasets.load('tfds:mine', str(tmp_path), choice=Choice(*names))
  found = load('extra', 'validation')
  assert (len(found.train.y), len(found.test.y)) == (4, 2)
  assert found.notes[0] == 'read 4 images of split extra and 2 of split validation'
  assert len(found.notes) == 3 and "split 'test' (3 rows) not read" in found.notes
  whole = load()
  parts = load('train[:75%]', 'train[75%:]')
  assert np.array_equal(parts.train.x, whole.train.x[:9])
  assert np.array_equal(parts.test.x, whole.train.x[9:])
  joined = load('train+extra[:50%]', 'test')
  assert len(joined.train.y) == 14 and joined.notes[1] == "split 'validation' (2 rows) not read"
  with pytest.raises(ValueError, match="data.train_split='most': has splits .*and slices such as"):
    load('most')
  with pytest.raises(ValueError, match="data.test_split='train\\[12:\\]': has no row"):
    load('', 'train[12:]')


def test_a_class_that_only_the_test_split_has_is_refused(tmp_path):
  prepare(tmp_path, train=[0, 1], test=[0, 2])
  with pytest.raises(
    ValueError, match="'tfds:mine': split train: no row has label 2, and test rows have"
  ):
    datasets.load('tfds:mine', str(tmp_path))


def test_labels_that_are_missing_are_refused(tmp_path):
  """Sets of competitions keep the labels of their test split back: -1."""
  prepare(tmp_path, train=[0, 1], test=[-1, -1])
  with pytest.raises(ValueError, match="data.name='tfds:mine': .*label"):
    datasets.load('tfds:mine', str(tmp_path))
