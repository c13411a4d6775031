"""Folders of images as people keep them: splits, links, spellings; what is left out is noted."""

import io
import os

import numpy as np
import pytest
from PIL import Image

from fedjax_syn.data import datasets, partition
from fedjax_syn.data.builders import folder_layout

NFC, NFD = 'caf\u00e9', 'cafe\u0301'


def put(root, *paths, first=1):
  """Writes grey PNG images of 2 x 2 pixels, each of another value, whatever their names are."""
  for i, path in enumerate(paths):
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    Image.new('L', (2, 2), first + i).save(root / path, format='PNG')


def load(root, **more):
  return datasets.load('folder', str(root), **more)


def values(split):
  return sorted(split.x[:, 0, 0, 0].tolist())


def grid(*folders, images=3):
  return [f'{folder}/{i}.png' for folder in folders for i in range(images)]


# ---- what is an image


@pytest.mark.parametrize('file', ['0.jfif', '0.pjpeg', '0', '0.dat', '0.PNG', '0.png.bak'])
def test_a_file_is_what_its_content_says(tmp_path, file):
  put(tmp_path, f'ann/cat/{file}', 'ann/dog/1.png', 'test/cat/2.png')
  assert values(load(tmp_path).train) == [1, 2]


def test_what_is_left_out_is_counted_with_its_reason(tmp_path):
  put(tmp_path, *grid('ann/cat', 'bob/cat'), 'test/cat/0.png')
  put(tmp_path, '.cache/x/0.png', 'ann/cat/._0.png', '__MACOSX/ann/cat/0.png', '@eaDir/cat/0.png')
  (tmp_path / 'ann/cat/Thumbs.db').write_bytes(b'\xd0\xcf\x11\xe0')
  (tmp_path / 'labels.csv').write_text('0,cat')
  (tmp_path / 'bob/cat/_SUCCESS').write_bytes(b'')
  (tmp_path / 'zed').mkdir()
  (tmp_path / 'bob/cow').mkdir()
  os.mkfifo(tmp_path / 'ann/cat/pipe')
  found = load(tmp_path)
  assert len(found.train.y) == 6 and found.class_names == ('cat',)
  assert found.notes[0] == (
    'read 7 images of 2 clients (train 6, test 1); '
    "left out 5 (hidden or of the system: '.cache', '@eaDir', '__MACOSX' and 2 others); "
    "left out 1 (no regular file: 'ann/cat/pipe'); "
    "left out 2 (no image of a format that is read: 'bob/cat/_SUCCESS', 'labels.csv');"
    " folders without an image: 'bob/cow', 'zed'"
  )


@pytest.mark.parametrize('tag', [(254, 1), (50706, b'\1\4\0\0')], ids=['NEF', 'DNG'])
def test_raw_files_of_cameras_are_left_out(tmp_path, tag):
  """Raw files are TIFFs whose first page is a small preview; the picture often lies beside them."""
  put(tmp_path, *grid('ann/cat'), 'test/cat/0.png')
  raw, old = tmp_path / 'ann/cat/0.raw', tmp_path / 'ann/cat/0.cr2'
  Image.new('L', (2, 2), 99).save(raw, format='TIFF', tiffinfo=dict([tag]))
  old.write_bytes(b'II*\0\x10\0\0\0CR\2\0')
  found = load(tmp_path)
  assert values(found.train) == [1, 2, 3]
  assert "left out 2 (no image of a format that is read: 'ann/cat/0.cr2'," in found.notes[0]


@pytest.mark.parametrize(
  'content, line', [(b'', '9.png cannot be read'), (b'%!PS-Adobe-3.0 EPSF', '9.png cannot be read')]
)
def test_what_is_called_an_image_and_is_none_is_refused(tmp_path, content, line):
  put(tmp_path, *grid('ann/cat'), 'test/cat/0.png')
  (tmp_path / 'ann/cat/9.png').write_bytes(content)
  with pytest.raises(ValueError, match=line):
    load(tmp_path)


def test_a_folder_that_cannot_be_read_is_refused(tmp_path, monkeypatch):
  """Simulated: tests may run as root, who may read everything."""
  put(tmp_path, *grid('ann/cat', 'bob/cat'))
  listed = type(tmp_path).iterdir

  def refuse(path):
    if path.name == 'bob':
      raise PermissionError(13, 'Permission denied', str(path))
    return listed(path)

  monkeypatch.setattr(type(tmp_path), 'iterdir', refuse)
  with pytest.raises(ValueError, match="data.name='folder': .*bob: permission denied"):
    load(tmp_path)


# ---- links


def test_linked_folders_and_files_are_read(tmp_path):
  put(tmp_path / 'store', 'a/cat/0.png', 'a/dog/0.png', 'b/cat/0.png')
  put(tmp_path / 'root', 'ann/dog/9.png', 'test/cat/9.png', first=100)
  (tmp_path / 'root/bob').symlink_to(tmp_path / 'store/a')
  (tmp_path / 'root/ann/cat').symlink_to(tmp_path / 'store/b/cat')
  (tmp_path / 'root/ann/dog/1.png').symlink_to(tmp_path / 'store/a/dog/0.png')
  (tmp_path / 'linked').symlink_to(tmp_path / 'root')
  found = load(tmp_path / 'linked')
  assert found.client_names == ('ann', 'bob')
  rows = sorted(zip(found.clients, found.train.y, found.train.x[:, 0, 0, 0], strict=True))
  assert rows == [(0, 0, 3), (0, 1, 2), (0, 1, 100), (1, 0, 1), (1, 1, 2)]


def test_a_link_to_what_holds_it_ends(tmp_path):
  put(tmp_path, *grid('ann/cat'), 'test/cat/0.png')
  (tmp_path / 'ann/cat/up').symlink_to(tmp_path)
  found = load(tmp_path)
  assert len(found.train.y) == 3
  assert "left out 1 (a link to a folder that holds it: 'ann/cat/up')" in found.notes[0]


def test_a_client_that_is_a_link_to_another_is_said(tmp_path):
  put(tmp_path, *grid('ann/cat', images=5))
  (tmp_path / 'bob').symlink_to(tmp_path / 'ann')
  found = load(tmp_path)
  assert found.notes[:2] == (
    'read 10 images of 2 clients, a fifth of each class held out to test',
    '5 of the images are links to others of them',
  )


@pytest.mark.parametrize('name, target', [('bob', 'nowhere'), ('bob', 'bob')])
def test_a_link_that_leads_nowhere_is_refused(tmp_path, name, target):
  put(tmp_path, *grid('ann/cat'), 'test/cat/0.png')
  (tmp_path / name).symlink_to(tmp_path / target)
  with pytest.raises(ValueError, match=r'data.dir=.*/bob is a link that leads nowhere'):
    load(tmp_path)


# ---- splits


@pytest.mark.parametrize(
  'train, valid, test',
  [
    ('train', 'valid', 'test'),
    ('Train', 'Val', 'Test'),
    ('training', 'validation', 'testing'),
    ('train_set', 'val-set', 'test set'),
    ('train2017', 'val2017', 'test2017'),
  ],
)
def test_usual_splits_are_understood(tmp_path, train, valid, test):
  put(tmp_path, *(f'{s}/{c}/0.png' for s in (train, valid, test) for c in ('cat', 'dog')))
  found = load(tmp_path)
  assert [values(s) for s in (found.train, found.validation, found.test)] == [
    [1, 2],
    [3, 4],
    [5, 6],
  ]
  assert found.clients is None and found.class_names == ('cat', 'dog')
  assert datasets.brings_validation('folder', str(tmp_path))  # a sweep selects by it
  line = 'read 6 images (train 2, test 2, validation 2)'
  assert found.notes[0] == line and (f'{test!r} is the test split' in found.notes) == (
    test != 'test'
  )
  with pytest.raises(ValueError, match='brings its own validation split; use 0'):
    load(tmp_path, validation=0.5)


def test_clients_beside_splits_below_them_and_above_them(tmp_path):
  """ann/cat with valid/cat, train/ann/cat and ann/train/cat give the same clients.

  No held-out row is trained on.
  """
  put(tmp_path / '1', 'ann/cat/0', 'bob/cat/0', 'valid/cat/0', 'test/cat/0')
  put(tmp_path / '2', 'train/ann/cat/0', 'train/bob/cat/0', 'val/cat/0', 'test/cat/0')
  put(tmp_path / '3', 'ann/train/cat/0', 'bob/train/cat/0', 'ann/val/cat/0', 'bob/test/cat/0')
  for name, owners in (('1', None), ('2', None), ('3', [1])):
    found = load(tmp_path / name)
    assert found.client_names == ('ann', 'bob') and found.clients.tolist() == [0, 1]
    assert [values(s) for s in (found.train, found.validation, found.test)] == [[1, 2], [3], [4]]
    assert found.test_clients is None if owners is None else found.test_clients.tolist() == owners


def test_each_clients_own_test_rows(tmp_path):
  put(
    tmp_path,
    'train/ann/cat/0',
    'train/bob/cat/0',
    'test/bob/cat/0',
    'test/ann/cat/0',
    'test/zed/cat/0',
  )
  found = load(tmp_path)
  assert found.test_clients.tolist() == [0, 1, -1] and values(found.test) == [3, 4, 5]
  assert "clients 'zed' have test images and none to train on" in found.notes
  held = load_held(tmp_path / 'more')
  assert held.test_clients.tolist() == [0, 1]


def load_held(root):
  put(root, *grid('ann/cat', 'bob/cat', images=5))
  return load(root)


def test_validation_is_the_test_split_where_there_is_no_other(tmp_path):
  put(tmp_path, 'train/cat/0.png', 'val/cat/0.png', 'train/cat/1.png')
  found = load(tmp_path)
  assert values(found.test) == [2] and found.validation is None
  assert "the test split is 'val', as there is no folder test" in found.notes


REFUSED = {
  'two test folders': (
    ['ann/cat/0', 'test/cat/0', 'Test/cat/1'],
    "'Test', 'test' are folders of one split",
  ),
  'a client beside train': (['train/cat/0', 'ann/cat/0', 'test/cat/0'], "'ann' beside 'train'"),
  'held out by another name': (
    ['ann/cat/0', 'holdout/cat/0'],
    "'holdout': is that a client",
  ),
  'splits below classes': (
    ['cat/train/0', 'dog/train/0', 'cat/test/0'],
    "are 'test', 'train': splits belong on top",
  ),
  'no classes': (['train/0', 'test/0'], 'test/0 is out of place'),
  'nothing to train on': (['test/cat/0', 'valid/cat/0'], 'holds no images to train on'),
  'a class of test': (
    ['ann/cat/0', 'test/cat/0', 'test/dog/0'],
    "class 'dog' has images in test and none to train",
  ),
  'a class of valid': (
    ['ann/cat/0', 'test/cat/0', 'valid/dog/0'],
    "class 'dog' has images in validation",
  ),
  'classes that differ in case': (
    ['ann/Cat/0', 'bob/cat/0', 'test/cat/0'],
    "classes 'Cat' and 'cat' look alike",
  ),
  'classes that differ in spaces': (
    ['ann/cat/0', 'ann/cat /0'],
    "classes 'cat' and 'cat ' look alike",
  ),
  'classes that differ in a mark nobody sees': (
    ['ann/cat/0', 'ann/cat\u200b/0'],
    'look alike',
  ),
  'clients that differ in width': (['ann/cat/0', '\uff41nn/cat/0'], 'look alike'),
  'clients that differ in spaces': (
    ['ann/cat/0', 'ann /cat/0'],
    "clients 'ann', 'ann ' look alike",
  ),
  'no clients in train': (['train/cat/0', 'test/ann/cat/0'], 'test/ann/cat/0 is out of place'),
}


@pytest.mark.parametrize('name', REFUSED)
def test_what_cannot_be_told_is_refused(tmp_path, name):
  paths, line = REFUSED[name]
  put(tmp_path, *paths)
  with pytest.raises(ValueError, match=line) as error:
    load(tmp_path)
  assert '\n' not in str(error.value) and str(error.value).startswith('data.dir=')


def test_what_a_folder_is_called():
  """A person is no split: 'Valerie', 'Tessa', 'Dev', 'trainer'."""
  assert [folder_layout.role(n) for n in ('Train', 'TEST', ' val ', 'valid_data')] == [
    'train',
    'test',
    *['validation'] * 2,
  ]
  assert not any(
    map(folder_layout.role, ('Valerie', 'Tessa', 'Dev', 'trainer', 'test1', 'set', '2017', ''))
  )


# ---- names


@pytest.mark.parametrize('place', ['{}/cat', 'ann/{}'])
def test_two_unicode_spellings_are_one_name(tmp_path, place):
  paths = [f'{place.format(n)}/{i}' for i, n in enumerate((NFC, NFD))]
  put(tmp_path, *paths, *(['test/cat/9'] if place == '{}/cat' else [f'test/{NFD}/9']))
  found = load(tmp_path)
  assert NFC in found.client_names + found.class_names and found.num_classes == 1
  assert len(found.client_names) == 1 and values(found.train) == [1, 2]
  assert f"'{NFC}': two Unicode spellings, taken as one name" in found.notes


def test_letters_in_two_cases_are_two_classes_where_they_lie_beside_each_other(tmp_path):
  put(tmp_path, 'Ann/a/0', 'Ann/A/0', 'ann/a/0', 'test/A/0')
  found = load(tmp_path)
  assert found.class_names == ('A', 'a') and found.client_names == ('Ann', 'ann')
  assert "'Ann', 'ann' are 2 clients, though they differ in case alone" in found.notes


def test_the_same_image_in_train_and_test_is_said(tmp_path):
  put(tmp_path, 'ann/cat/0', 'ann/cat/1', 'bob/cat/0')
  put(tmp_path, 'test/cat/0', 'test/cat/1', first=2)
  put(tmp_path, 'test/cat/2', first=9)
  assert '2 of 3 test rows are training rows as well' in load(tmp_path).notes


def test_images_in_memory_are_what_was_written(tmp_path):
  """An independent reading: every file through Pillow, by hand."""
  put(tmp_path, 'ann/b/0.jfif', 'ann/a/0', 'bob/a/1', 'test/a/2')
  found = load(tmp_path)
  by_hand = [('ann', 'a', '0'), ('ann', 'b', '0.jfif'), ('bob', 'a', '1')]
  read = [np.asarray(Image.open(io.BytesIO((tmp_path.joinpath(*p)).read_bytes()))) for p in by_hand]
  np.testing.assert_array_equal(found.train.x[..., 0], read)


# ---- the number of clients


def test_the_number_of_clients_is_what_the_data_say(tmp_path):
  """Eight of ten rows are held out, or half of them.

  A client without rows keeps its number, even zed as the last one.
  """
  put(tmp_path, *grid('ann/cat', images=6), *grid('bob/cat', 'zed/cat', images=2), 'test/cat/0')
  empty = set()
  for seed in range(5):
    for held in ({'validation': 0.8}, {'proxy': 'held_out', 'proxy_share': 0.5}):
      found = load(tmp_path, seed=seed, **held)
      assert found.num_clients() == 3 and found.client_names == ('ann', 'bob', 'zed')
      ids = found.clients
      dealt = partition.partition(
        'natural', found.train.y, 3, client_ids=ids, natural_clients=found.num_clients()
      )
      assert dealt.size.tolist() == np.bincount(ids, minlength=3).tolist()
      assert partition.names_of(dealt, found.client_names) == found.client_names
      empty |= set(np.flatnonzero(dealt.size == 0))
  assert {1, 2} <= empty  # every small client has lost all its rows once
