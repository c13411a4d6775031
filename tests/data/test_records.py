"""tensorflow-datasets' records: pixels by range; code and paths that a folder names are refused."""

import json
import shutil
import sys

import importlib_resources  # noqa: F401  tensorflow-datasets needs it and does not declare it
import numpy as np
import pytest
import tensorflow_datasets as tfds

from fedjax_syn.data import datasets
from fedjax_syn.data.builders import records
from tests.data.image_bytes import POSTSCRIPT, saved, turned

ROWS = 6
X = np.random.default_rng(0).integers(0, 256, (ROWS, 4, 5, 1), np.uint8)
Y = np.arange(ROWS) % 2
Image, Tensor = tfds.features.Image, tfds.features.Tensor
SHAPE = (4, 5, 1)


def prepare(folder, feature, value, splits=('train', 'test'), extra=None, hidden=()):
  """Writes a set as tensorflow-datasets does, without TensorFlow."""
  more = {} if extra is None else {'more': extra[0]}
  labels = tfds.features.ClassLabel(num_classes=2)

  class Own(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    name = 'own'
    VERSION = tfds.core.Version('1.0.0')

    def _info(self):
      features = tfds.features.FeaturesDict({'image': feature, 'label': labels, **more})
      return tfds.core.DatasetInfo(
        builder=self, features=features, supervised_keys=('image', 'label'), disable_shuffling=True
      )

    def _split_generators(self, dl_manager):
      return {split: self._generate_examples(split) for split in splits}

    def _generate_examples(self, split):
      for i in range(ROWS):
        row = {'image': value(X[i]), 'label': -1 if split in hidden else int(Y[i])}
        yield i, row | ({} if extra is None else {'more': extra[1]})

  Own(data_dir=folder, file_format='array_record').download_and_prepare()
  return folder / 'own' / '1.0.0'


def load(folder, **more):
  return datasets.load('tfds:own', str(folder), **more)


def bits(pixels, image=None):
  """Floats as tensorflow-datasets stores them: four bytes as four channels."""
  return saved(np.float32(pixels / 255).view(np.uint8).reshape(4, 5, 4), 'PNG')


@pytest.mark.parametrize(
  'feature, value, note',
  [
    (Tensor(shape=SHAPE, dtype=np.uint8), lambda x: x, ''),
    (Tensor(shape=SHAPE[:2], dtype=np.uint8), lambda x: x[..., 0], ''),
    (Tensor(shape=SHAPE, dtype=np.float32), lambda x: np.float32(x / 255), 'float32, 0..1'),
    (Tensor(shape=SHAPE, dtype=np.uint16), lambda x: x * np.uint16(257), 'uint16, 16 bits'),
    (Tensor(shape=SHAPE, dtype=np.int64), lambda x: x.astype(int), 'int64, 8 bits'),
    (Image(shape=SHAPE), lambda x: saved(x[..., 0], 'PNG'), ''),
    (
      Image(shape=SHAPE, dtype=np.uint16),
      lambda x: saved(x[..., 0] * np.uint16(257), 'PNG'),
      '16 bits',
    ),
    (Image(shape=(None, None, 1)), lambda x: turned(x[::-1, ::-1, 0], 'PNG', 3), 'upright'),
  ],
  ids=lambda value: None if callable(value) else str(value)[:40],
)
def test_pixels_by_their_range(tmp_path, feature, value, note):
  prepare(tmp_path, feature, value)
  found = load(tmp_path)
  np.testing.assert_array_equal(found.train.x, X)
  np.testing.assert_array_equal(found.test.x, X)
  scaled = [line for line in found.notes if 'scaled' in line or 'upright' in line]
  assert note in ' '.join(scaled) and bool(note) == bool(scaled)
  assert load(tmp_path, size=3).shape == (3, 3, 1)


def test_grey_files_of_a_coloured_feature_have_its_channels(tmp_path):
  prepare(tmp_path, Image(shape=(None, None, 3)), lambda x: saved(x[..., 0], 'PNG'))
  np.testing.assert_array_equal(load(tmp_path).train.x, np.repeat(X, 3, -1))


def test_float_images(tmp_path, monkeypatch):
  """Stored as PNG with four channels; encoding would need TensorFlow, so the bytes are given."""
  feature = Image(shape=SHAPE, dtype=np.float32)
  monkeypatch.setattr(feature._image_encoder, 'encode_image_or_path', lambda content: content)
  prepare(tmp_path, feature, bits)
  found = load(tmp_path)
  np.testing.assert_array_equal(found.train.x, X)
  assert 'pixels scaled from float32, 0..1' in found.notes


@pytest.mark.parametrize(
  'feature, value, words',
  [
    (Tensor(shape=SHAPE, dtype=np.float32), lambda x: np.float32(x), 'train are float32 0..248'),
    (Tensor(shape=SHAPE, dtype=np.int32), lambda x: x.astype(np.int32) - 9, 'int32 -'),
    (Image(shape=SHAPE), lambda x: POSTSCRIPT, 'image 0 of train cannot be read'),
    (Image(shape=SHAPE), lambda x: saved(x[..., 0], 'PNG')[:50], 'image 0 of train cannot be read'),
  ],
  ids=lambda value: None if callable(value) else str(value)[:40],
)
def test_pixels_without_a_range_are_refused(tmp_path, feature, value, words):
  prepare(tmp_path, feature, value)
  with pytest.raises(ValueError, match=words) as refused:
    load(tmp_path)
  assert '\n' not in str(refused.value)


def test_a_test_split_without_labels_is_passed_over(tmp_path):
  feature = Tensor(shape=SHAPE, dtype=np.uint8)
  prepare(tmp_path, feature, lambda x: x, ('train', 'validation', 'test'), hidden=('test',))
  found = load(tmp_path)
  assert "the test split is 'validation', as split test has no labels" in found.notes
  np.testing.assert_array_equal(found.test.y, Y)
  shutil.rmtree(tmp_path / 'own')
  prepare(tmp_path, feature, lambda x: x, hidden=('test',))
  with pytest.raises(ValueError, match='no row of test has a label'):
    load(tmp_path)


def test_other_features_are_not_decoded(tmp_path):
  """Sounds would start ffmpeg, and a picture beside the picture whatever Pillow opens."""
  extra = Image(shape=(None, None, 3)), POSTSCRIPT
  prepare(tmp_path, Tensor(shape=SHAPE, dtype=np.uint8), lambda x: x, extra=extra)
  np.testing.assert_array_equal(load(tmp_path).train.x, X)


@pytest.fixture(scope='module')
def prepared(tmp_path_factory):
  folder = tmp_path_factory.mktemp('own')
  prepare(folder, Tensor(shape=SHAPE, dtype=np.uint8), lambda x: x)
  return folder


@pytest.fixture
def copy(prepared, tmp_path, monkeypatch):
  """A copy, beside a module that would say that it was imported."""
  shutil.copytree(prepared / 'own', tmp_path / 'own')
  (tmp_path / 'spoilt.py').write_text('raise SystemExit("it was run")')
  monkeypatch.syspath_prepend(tmp_path)
  return tmp_path


def rewrite(file, change):
  content = json.loads(file.read_text())
  file.write_text(json.dumps(change(content) or content))


def name_image(**entry):
  def change(features):
    features['featuresDict']['features']['image'].update(entry)

  return change


LEGACY = {
  'type': 'tensorflow_datasets.core.features.features_dict.FeaturesDict',
  'content': {'image': {'type': 'spoilt.Feature', 'content': {}}},
}


@pytest.mark.parametrize(
  'change',
  [
    name_image(pythonClassName='spoilt.Feature'),
    name_image(pythonClassName='tensorflow_datasets.scripts.spoilt.Feature'),
    lambda features: features.update(pythonClassName='spoilt.Feature'),
    lambda features: LEGACY,
    lambda features: {  # names of protocol buffers, which are read as well, and JSON in a text
      'python_class_name': 'tensorflow_datasets.core.features.features_dict.FeaturesDict',
      'json_feature': {'json': json.dumps(LEGACY['content'])},
    },
    lambda features: features['featuresDict']['features'].update(
      {'a': {'sequence': {'feature': {'pythonClassName': 'spoilt.Feature'}}}}
    ),
  ],
)
def test_what_features_json_names_is_not_imported(copy, change):
  rewrite(copy / 'own' / '1.0.0' / 'features.json', change)
  with pytest.raises(
    ValueError, match=r"features.json names '.*spoilt.*data.trusted=true"
  ) as refused:
    load(copy)
  assert '\n' not in str(refused.value) and 'spoilt' not in sys.modules


def test_a_trusted_folder_may_name_modules(copy):
  (copy / 'spoilt.py').write_text(
    'from tensorflow_datasets.core.features import Tensor\nclass Feature(Tensor): pass\n'
  )
  rewrite(copy / 'own' / '1.0.0' / 'features.json', name_image(pythonClassName='spoilt.Feature'))
  with pytest.raises(ValueError, match='data.trusted=true'):
    load(copy)
  with pytest.raises(
    ValueError, match='needs splits'
  ):  # imported, and no kind of image that is known
    load(copy, trusted=True)
  assert sys.modules.pop('spoilt')


@pytest.mark.parametrize(
  'file, change',
  [
    ('dataset_info.json', lambda info: info.update(name='../own')),
    ('dataset_info.json', lambda info: info['splits'][0].update(name='../train')),
    (
      'dataset_info.json',
      lambda info: info['splits'][0].update(filepathTemplate='/etc/{SPLIT}.{FILEFORMAT}'),
    ),
    (
      'features.json',
      lambda features: features['featuresDict']['features'].update({'../../label': {}}),
    ),
  ],
)
def test_paths_that_leave_the_folder_are_refused(copy, file, change):
  rewrite(copy / 'own' / '1.0.0' / file, change)
  with pytest.raises(ValueError, match='leads out of the folder; data.trusted=true'):
    load(copy)


def test_folders_are_found_by_their_names_alone(prepared, tmp_path):
  for place in (
    'own/1.0.0',
    'own/1.10.0',
    'own/1.9.0',
    'two/a/1.0.0',
    'two/b/1.0.0',
    'one/a/2.0.0',
  ):
    shutil.copytree(prepared / 'own' / '1.0.0', tmp_path / place)
  find = lambda word: records.find(word, tmp_path).relative_to(tmp_path).as_posix()
  assert [find(word) for word in ('own', 'own:1.9.*', 'one', 'two/b', 'one/a:2.0.0')] == [
    *('own/1.10.0', 'own/1.9.0', 'one/a/2.0.0', 'two/b/1.0.0', 'one/a/2.0.0')
  ]
  with pytest.raises(ValueError, match='holds a, b; name one'):
    find('two')
  for word in ('huggingface:own', 'kaggle:own/x:1.0.0', '../own', '/etc', 'own/../own'):
    with pytest.raises((ValueError, FileNotFoundError)):
      find(word)
  with pytest.raises(FileNotFoundError, match='no prepared version 3.0.0'):
    find('own:3.0.0')


def test_our_own_records_need_no_trust_and_get_none(copy):
  """What this library prepares is opened by the same look."""
  folder = copy / 'own' / '1.0.0'
  assert records.open_builder(folder).info.splits['train'].num_examples == ROWS
  rewrite(folder / 'features.json', name_image(pythonClassName='spoilt.Feature'))
  for name in ('image_records', 'flair_records'):
    module = __import__(f'fedjax_syn.data.builders.{name}', fromlist=['records'])
    with pytest.raises(ValueError, match='names'):
      module.records.open_builder(folder)
  with pytest.raises(ValueError, match='is not JSON'):
    (folder / 'features.json').write_text('{')
    records.open_builder(folder)
