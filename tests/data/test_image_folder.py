"""A user's own images: a folder per client, and what tensorflow-datasets has prepared."""

import numpy as np
import pytest
from PIL import Image

from fedjax_syn import config as config_lib
from fedjax_syn.data import datasets, scaling
from fedjax_syn.data.builders import archives, image_records
from tests.data import fakes
from tests.run_helpers import config_of

# Clients, and how many images they have of the classes cat and dog; 5 % of grey levels apart.
HELD = {'ann': (5, 10), 'bob': (10, 0), 'eve': (1, 5)}


def put(path, value, size=(4, 6), mode='L'):
  path.parent.mkdir(parents=True, exist_ok=True)
  Image.new(mode, size, value).save(path)


@pytest.fixture
def root(tmp_path):
  """31 grey images of 4 x 6 pixels (width x height), all different."""
  value = 0
  for client, counts in HELD.items():
    for name, count in zip(('cat', 'dog'), counts, strict=True):
      for i in range(count):
        put(tmp_path / client / name / f'{i}.png', value)
        value += 5
  return tmp_path


def load(root, **more):
  return datasets.load('folder', str(root), **more)


def test_a_fifth_of_every_group_is_held_out(root):
  """Of 31 images six: one, two, two, none (the only one stays), one."""
  (root / 'notes.txt').write_text('no image')
  put(root / '.cache' / 'x' / 'hidden.png', 0)
  found = load(root)
  assert found.train.x.shape[1:] == (6, 4, 1) and found.num_classes == 2
  assert (found.client_names, found.class_names) == (('ann', 'bob', 'eve'), ('cat', 'dog'))
  counts = np.zeros((3, 2), int)
  np.add.at(counts, (found.clients, found.train.y), 1)
  np.testing.assert_array_equal(counts, [[4, 8], [8, 0], [1, 4]])
  assert len(found.test.y) == 6
  values = sorted([*found.train.x[:, 0, 0, 0], *found.test.x[:, 0, 0, 0]])
  assert values == list(range(0, 155, 5))  # every image once
  # ann's cats are 0..20, ann's dogs 25..70, bob's cats 75..120, eve's cat 125, her dogs 130..150
  first = found.train.x[:, 0, 0, 0]
  assert ((first >= 75) & (first <= 120) == (found.clients == 1)).all()
  assert load(root).checksum == found.checksum


def test_a_test_folder_is_the_test_split(root):
  for i in range(3):
    put(root / 'test' / 'dog' / f'{i}.png', 200 + i)
  found = load(root)
  assert len(found.train.y) == 31
  assert sorted(found.test.x[:, 0, 0, 0]) == [200, 201, 202] and (found.test.y == 1).all()


def test_without_folders_of_clients_there_are_none(tmp_path):
  for i in range(10):
    put(tmp_path / ('cat', 'dog')[i % 2] / f'{i}.png', i)
  found = load(tmp_path)
  assert found.clients is None and len(found.train.y) == 8 and len(found.test.y) == 2


def test_one_coloured_image_makes_all_of_them_rgb(root):
  put(root / 'ann' / 'cat' / '0.png', (10, 20, 30), mode='RGB')
  put(root / 'test' / 'cat' / '0.png', 7)
  found = load(root)
  assert found.train.x.shape[1:] == (6, 4, 3)
  assert (found.test.x == 7).all()  # grey, three times
  assert (found.train.x == [10, 20, 30]).all(axis=(1, 2, 3)).sum() == 1


def test_images_are_cut_to_squares_and_resized(root):
  """4 x 2 pixels: the middle square is pixels 1 and 2 of each row; its mean is one pixel."""
  pixels = np.array([[0, 10, 20, 99], [0, 30, 40, 99]], np.uint8)
  Image.fromarray(pixels).save(root / 'ann' / 'cat' / '0.png')
  found = load(root, size=1)
  assert found.train.x.shape[1:] == (1, 1, 1)
  resized = np.asarray(scaling.resize_square(Image.fromarray(pixels), 1))
  assert resized == 25


@pytest.mark.parametrize(
  'spoil, words',
  [
    (lambda root: put(root / 'ann' / 'cat' / '9.png', 0, (5, 5)), ['4x6', '5x5', 'data.size=32']),
    (
      lambda root: (root / 'eve' / 'cat' / '0.png').write_bytes(b'GIF89a?'),
      ['0.png cannot be read'],
    ),
    (lambda root: put(root / 'ann' / '0.png', 0), ['ann/0.png is out of place', 'CLIENT/CLASS']),
    (
      lambda root: put(root / 'test' / 'x' / 'ann' / 'cat' / '0.png', 0),
      ['out of place', 'test/CLASS'],
    ),
  ],
)
def test_refusals(root, spoil, words):
  spoil(root)
  with pytest.raises(ValueError) as refused:
    load(root)
  assert '\n' not in str(refused.value) and all(word in str(refused.value) for word in words)


def test_folders_that_hold_nothing(tmp_path):
  with pytest.raises(ValueError, match='holds no images'):
    load(tmp_path)
  with pytest.raises(FileNotFoundError, match='no such folder'):
    load(tmp_path / 'away')
  with pytest.raises(ValueError, match="data.dir='': name the folder"):
    datasets.load('folder')
  with pytest.raises(ValueError, match='data.size=32: only folder'):
    datasets.load('digits', size=32)


@pytest.fixture(scope='module')
def prepared(tmp_path_factory):
  """A set of 40 + 20 images that tensorflow-datasets finds by its name."""
  folder = tmp_path_factory.mktemp('tfds')
  values = fakes.arrays(0)
  source = fakes.mnist('mnist', values, folder / 'archives')._replace(name='my_digits')
  paths = {a.file: folder / 'archives' / a.file for a in source.archives}
  image_records.write(archives.read(source, paths), folder)
  return folder, values


def test_what_tensorflow_datasets_prepared_is_read(prepared):
  folder, values = prepared
  found = datasets.load('tfds:my_digits', str(folder))
  np.testing.assert_array_equal(found.train.x, values['train_x'])
  np.testing.assert_array_equal(found.test.y, values['test_y'])
  assert found.num_classes == 10 and found.title == 'my_digits'
  assert found.class_names == ()  # numbers are no names
  assert datasets.load('tfds:my_digits', str(folder), size=3).shape == (3, 3, 1)


def test_what_is_not_prepared_says_how(prepared):
  with pytest.raises(
    FileNotFoundError, match=r"data.name='tfds:nosuch_set'.*tfds build nosuch_set"
  ):
    datasets.load('tfds:nosuch_set', str(prepared[0]))


def test_names_are_accepted_before_anything_is_loaded():
  for name in ('folder', 'tfds:anything'):
    assert config_lib.check(config_of(**{'data.name': name})).data.name == name
  with pytest.raises(ValueError, match='data.name='):
    config_lib.check(config_of(**{'data.name': 'tfds:'}))
