"""FLAIR's published layout, made small: labels, users, pixels, refusals, and a whole run."""

import json
import mmap
import shutil
import sys

import numpy as np
import pytest
import tensorflow_datasets as tfds
from PIL import Image

import fedjax_syn as fs
from fedjax_syn import config as config_lib
from fedjax_syn.data import datasets, federated
from fedjax_syn.data.builders import flair, flair_records
from fedjax_syn.data.partition import class_counts, partition
from fedjax_syn.data.split import checksum

# user, partition, labels; the users' ids are in another order than their first images.
ROWS = [
  ('93', 'train', ['plant', 'animal']),
  ('15', 'train', ['structure']),
  ('7', 'test', ['food', 'plant', 'structure']),
  ('93', 'train', []),
  ('20', 'val', ['fire']),
  ('40', 'train', ['art']),
  ('15', 'train', ['plant']),
  ('7', 'test', ['animal']),
]


def colour(row: int) -> tuple[int, int, int]:
  return 20 + 25 * row, 200 - 20 * row, 100


def write(folder, rows=ROWS):
  """Writes the layout; each image is of one colour, its lower half black."""
  (folder / 'small_images').mkdir(parents=True, exist_ok=True)
  records = []
  for i, (user, split, labels) in enumerate(rows):
    pixels = np.zeros((256, 256, 3), np.uint8)
    pixels[:128] = colour(i)
    Image.fromarray(pixels).save(folder / 'small_images' / f'im{i}.jpg', quality=95)
    record = {'user_id': user, 'image_id': f'im{i}', 'partition': split, 'labels': [*labels]}
    records.append(record | {'fine_grained_labels': ['leaf']})
  (folder / 'labels_and_metadata.json').write_text(json.dumps(records))
  return records


@pytest.mark.parametrize('below', ['', 'flair'])
def test_rows_labels_users_and_pixels(tmp_path, below):
  write(tmp_path / below)
  data = datasets.load('flair', str(tmp_path))
  assert data.shape == (64, 64, 3) and data.num_classes == 17
  splits = {'train': data.train, 'val': data.validation, 'test': data.test}
  for name, split in splits.items():
    rows = [i for i, row in enumerate(ROWS) if row[1] == name]
    for x, y, row in zip(*split, rows, strict=True):
      assert [flair_records.CLASSES[c] for c in np.flatnonzero(y)] == sorted(ROWS[row][2])
      np.testing.assert_allclose(x[:28].mean((0, 1)), colour(row), atol=4)
      np.testing.assert_allclose(x[36:].mean((0, 1)), 0, atol=4)
  assert data.clients.tolist() == [2, 0, 2, 1, 0]  # users 15, 40, 93
  assert data.checksum == checksum(data.train, data.test, data.clients)
  assert data.notes == ("no training row has the labels 'food', and test rows have",)


def test_sides_are_names_and_a_second_reading_needs_no_image(tmp_path):
  write(tmp_path)
  first = datasets.load('flair_128', str(tmp_path))
  assert first.shape == (128, 128, 3)
  owner = first.train.x
  while isinstance(owner, np.ndarray):
    owner = owner.base
  assert isinstance(owner, mmap.mmap)  # on disk, not in memory
  (tmp_path / 'labels_and_metadata.json').unlink()
  again = datasets.load('flair_128', str(tmp_path))
  np.testing.assert_array_equal(first.train.x, again.train.x)
  assert again.checksum == first.checksum
  assert {p.name for p in tmp_path.iterdir()} == {'small_images', 'flair_128-1.0.0', 'flair'}
  (tmp_path / 'flair_128-1.0.0' / 'test_x.npy').write_bytes(b'no')
  with pytest.raises(ValueError, match=r'flair_128-1\.0\.0 cannot be read: delete it'):
    datasets.load('flair_128', str(tmp_path))


def test_a_set_without_validation_rows(tmp_path):
  write(tmp_path, [row for row in ROWS if row[1] != 'val'])
  assert datasets.load('flair', str(tmp_path)).validation is None


def test_natural_partitions(tmp_path):
  """All users; or two of the three, and only their rows go to the device."""
  write(tmp_path)
  data = datasets.load('flair', str(tmp_path))
  p = partition('natural', data.train.y, 3, client_ids=data.clients)
  assert p.size.tolist() == [2, 1, 2]
  counts = class_counts(p, data.train.y, 17)
  assert counts[2][[flair_records.CLASSES.index(c) for c in ('plant', 'animal')]].tolist() == [1, 1]
  for seed in range(4):
    p = partition('natural_sample', data.train.y, 2, client_ids=data.clients, seed=seed)
    placed = federated.from_partition(data, p)
    assert placed.x.shape[0] == p.size.sum() == len(p.order) < 5
    users = data.clients[p.order]
    assert len(set(users)) == 2 and (np.diff(users) >= 0).all()
    np.testing.assert_array_equal(placed.x[placed.order], data.train.x[p.order])
    np.testing.assert_array_equal(placed.y[placed.order], data.train.y[p.order])
  with pytest.raises(ValueError, match='the data set has 3 clients'):
    partition('natural_sample', data.train.y, 4, client_ids=data.clients)


def test_training(tmp_path):
  write(tmp_path)
  data = datasets.load('flair', str(tmp_path))
  method = fs.FedAvg(lr=1e-3, optimizer='sgd', batch_size=2)
  of = {'clients': 2, 'partition': 'natural_sample', 'layout': fs.Layout(devices=1)}
  result = fs.run(method, data, 'mlp', rounds=1, **of)
  assert 'test/o_f1' in result.history[-1]


def test_records_are_the_published_files_in_order(tmp_path, monkeypatch):
  """tensorflow-datasets' own builder writes records with the same bytes, labels, users and images.

  Five training rows fill three shards of two; what is read comes in batches of two at most.
  """
  monkeypatch.setattr(flair_records, 'BATCH', 2)
  write(tmp_path / 'published')
  folder = flair_records.prepare(tmp_path / 'published', tmp_path)
  assert folder == tmp_path / 'flair' / '1.0.0'
  made = tfds.builder_from_directory(folder)
  assert made.info.features['labels'].feature.names == list(flair_records.CLASSES)
  assert {k: (v.num_examples, v.num_shards) for k, v in made.info.splits.items()} == {
    'train': (5, 3),
    'val': (1, 1),
    'test': (2, 1),
  }
  for split in flair_records.SPLITS:
    rows = [i for i, row in enumerate(ROWS) if row[1] == split]
    count, batches = flair_records.read(folder, split)
    batches = list(batches)
    assert count == len(rows) and all(len(batch) <= 2 for batch in batches)
    for row, found in zip(rows, sum(batches, []), strict=True):
      path = tmp_path / 'published' / 'small_images' / f'{found["image_id"].decode()}.jpg'
      assert found['image'] == path.read_bytes()
      assert [found[k].decode() for k in ('image_id', 'user_id')] == [f'im{row}', ROWS[row][0]]
      assert [flair_records.CLASSES[c] for c in found['labels']] == ROWS[row][2]
  decoded = made.as_data_source('train')[1]['image']  # by anyone, without this library
  np.testing.assert_allclose(decoded[:100].mean((0, 1)), colour(1), atol=4)


def test_another_side_is_made_of_the_records_alone(tmp_path):
  write(tmp_path / 'flair')
  small = datasets.load('flair', str(tmp_path))
  for file in (tmp_path / 'flair').glob('*.json'):
    file.unlink()
  shutil.rmtree(tmp_path / 'flair' / 'small_images')
  large = datasets.load('flair_128', str(tmp_path))
  assert large.shape == (128, 128, 3) and large.clients.tolist() == small.clients.tolist()
  np.testing.assert_array_equal(large.train.y, small.train.y)
  np.testing.assert_allclose(large.train.x[:, 20, 20], small.train.x[:, 10, 10], atol=4)
  (next((tmp_path / 'flair' / '1.0.0').glob('*train*'))).write_bytes(b'no')
  with pytest.raises(ValueError, match=r'flair/1\.0\.0 cannot be read: .* delete it'):
    datasets.load('flair_256', str(tmp_path))


def test_prepared_arrays_are_read_without_tensorflow_datasets(tmp_path, monkeypatch):
  write(tmp_path)
  datasets.load('flair', str(tmp_path))
  monkeypatch.setitem(sys.modules, 'tensorflow_datasets', None)
  assert datasets.load('flair', str(tmp_path)).shape == (64, 64, 3)
  with pytest.raises(
    ValueError, match="to prepare data.name='flair_128' needs tensorflow-datasets"
  ):
    datasets.load('flair_128', str(tmp_path))


@pytest.mark.parametrize(
  'change, message',
  [
    (lambda r: r[2].pop('user_id'), 'record 2 has no user_id'),
    (
      lambda r: r[1].update(partition='dev'),
      "record 1 is of partition 'dev'; known: train, val, test",
    ),
    (lambda r: r[0]['labels'].append('cat'), "record 0 has the label 'cat'; known: animal, "),
    (
      lambda r: r[4].update(image_id='gone'),
      'gone.jpg is missing, and labels_and_metadata.json names',
    ),
    (lambda r: [v.update(partition='train') for v in r], "has no record of partition 'test'"),
    (lambda r: r[2].update(image_id='im0'), "has 2 records of image_id 'im0': expected one"),
    (lambda r: r.clear(), "has no record of partition 'train'"),
  ],
)
def test_records_are_checked(tmp_path, capsys, change, message):
  records = write(tmp_path)
  change(records)
  (tmp_path / 'labels_and_metadata.json').write_text(json.dumps(records))
  assert datasets.main(['flair', f'--dir={tmp_path}']) == 2
  (line,) = capsys.readouterr().err.splitlines()
  assert message in line
  assert {p.name for p in tmp_path.iterdir()} == {'small_images', 'labels_and_metadata.json'}


@pytest.mark.parametrize(
  'name, content, message',
  [
    ('labels_and_metadata.json', b'{', 'is not JSON'),
    ('labels_and_metadata.json', b'{}', 'must hold a list of records'),
    ('small_images/im3.jpg', b'no', 'im3.jpg is no JPEG file that can be read'),
  ],
)
def test_files_are_checked(tmp_path, capsys, name, content, message):
  write(tmp_path)
  (tmp_path / name).write_bytes(content)
  assert datasets.main(['flair', f'--dir={tmp_path}']) == 2
  (line,) = capsys.readouterr().err.splitlines()
  assert message in line


def test_another_size_and_nowhere(tmp_path):
  write(tmp_path)
  Image.new('RGB', (300, 200)).save(tmp_path / 'small_images' / 'im0.jpg')
  with pytest.raises(ValueError, match='im0.jpg has 300 x 200 pixels, expected 256 x 256'):
    datasets.load('flair', str(tmp_path))
  with pytest.raises(
    FileNotFoundError, match='put labels_and_metadata.json and small_images/ there'
  ):
    datasets.load('flair', str(tmp_path / 'none'))


@pytest.mark.parametrize(
  'fields, message',
  [
    ({'algorithm': 'scaffold+dynafed'}, "algorithm='scaffold+dynafed': needs one class per sample"),
    ({'algorithm': 'fedmix'}, "algorithm='fedmix': needs one class per sample"),
    ({'algorithm': 'fedavg+vhl'}, "algorithm='fedavg+vhl': needs one class per sample"),
    ({'algorithm': 'fedavg'}, "data.partition='balanced_dirichlet': needs one class per row"),
  ],
)
def test_what_cannot_work_is_refused_before_anything_is_read(fields, message):
  with pytest.raises(config_lib.ConfigError) as error:
    config_lib.check(fields | {'data': {'name': 'flair'}})
  assert str(error.value).startswith(message) and '\n' not in str(error.value)
  data = {'name': 'flair', 'partition': 'natural_sample', 'clients': 200}
  config_lib.check({'algorithm': 'moon', 'data': data})


def test_of_two_preparations_at_a_time_the_first_stays(tmp_path, monkeypatch):
  """Somebody may have its files open already."""
  ready = tmp_path / 'ready'
  ready.mkdir()
  (ready / flair.INFO).write_text('{}')
  (ready / 'opened').touch()
  monkeypatch.setattr(flair, '_load', lambda _: {'train': 0, 'test': 0, 'clients': 0})
  monkeypatch.setattr(flair, 'checksum', lambda *_: '')
  assert flair._write({'train': (1, []), 'test': (1, [])}, ready, 2) == ready
  assert sorted(path.name for path in tmp_path.rglob('*')) == sorted(
    ['ready', flair.INFO, 'opened']
  )
