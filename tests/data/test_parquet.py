"""Parquet as Hugging Face writes it, written here with pyarrow alone."""

import io
import json
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from fedjax_syn.config import check
from fedjax_syn.data import datasets
from fedjax_syn.data.facts import Choice
from tests.data import fakes

pa = pytest.importorskip('pyarrow')
pq = pytest.importorskip('pyarrow.parquet')

NAMES = ['cat', 'dog', 'cow']
IMAGE = pa.struct([('bytes', pa.binary()), ('path', pa.string())])


def images(arrays):
  return pa.array([{'bytes': fakes.png(a), 'path': None} for a in arrays], IMAGE)


def write(path, columns, names=None, features=None, rows=10):
  """Writes a table; `features` are Hugging Face's metadata, `rows` the size of a row group."""
  if names is not None:
    features = {'image': {'_type': 'Image'}, 'label': {'names': names, '_type': 'ClassLabel'}}
  table = pa.table(columns)
  if features is not None:
    said = {'huggingface': json.dumps({'info': {'features': features}})}
    table = table.replace_schema_metadata(said)
  path.parent.mkdir(parents=True, exist_ok=True)
  pq.write_table(table, path, row_group_size=rows)


@pytest.fixture
def values():
  rng = np.random.default_rng(0)
  x = rng.integers(0, 256, (24, 5, 4, 3), np.uint8)
  return x, np.arange(24) % 3


def test_splits_of_several_files(tmp_path, values):
  x, y = values
  write_part = lambda name, own: write(
    tmp_path / 'data' / f'{name}.parquet',
    {'image': images(x[own]), 'label': y[own], 'writer': [f'w{i // 4}' for i in range(24)][own]},
    NAMES,
    rows=3,
  )
  write_part('train-00000-of-00002', slice(0, 10))
  write_part('train-00001-of-00002', slice(10, 16))
  write_part('test-00000-of-00001', slice(12, 20))
  write_part('extra-00000-of-00001', slice(20, 24))
  data = datasets.load(f'parquet:{tmp_path}', choice=Choice(client_column='writer'))
  assert np.array_equal(data.train.x, x[:16]) and data.train.y.tolist() == y[:16].tolist()
  assert np.array_equal(data.test.x, x[12:20]) and data.test.y.tolist() == y[12:20].tolist()
  assert data.class_names == ('cat', 'dog', 'cow') and data.num_classes == 3
  assert data.client_names == ('w0', 'w1', 'w2', 'w3')
  assert data.clients.tolist() == [i // 4 for i in range(16)]
  assert data.test_clients.tolist() == [3] * 4 + [-1] * 4
  assert np.array_equal(data.unseen.x, x[16:20]) and data.unseen_owners.tolist() == [0] * 4
  assert data.notes[:2] == (
    'read 16 training and 8 test images of 4 clients',
    "split 'extra' not read",
  )
  # The column is not read unless it is named, and another split may be tested on.
  other = datasets.load('parquet', str(tmp_path), choice=Choice(test_split='extra'))
  assert np.array_equal(other.test.x, x[20:24]) and other.clients is None
  assert "columns 'writer' not used" in other.notes


def test_without_a_test_split_every_fifth_row_of_a_client_tests(tmp_path, values):
  x, y = values
  owner = np.array([0, 1] * 12)  # 12 rows each: their rows 4 and 9 are rows 8, 18 and 9, 19
  columns = {'image': images(x), 'label': pa.array(y, pa.int64()), 'user': owner}
  write(tmp_path / 'train.parquet', columns)
  data = datasets.load('parquet', str(tmp_path), choice=Choice(client_column='user'))
  held = [8, 9, 18, 19]
  assert np.array_equal(data.test.x, x[held]) and data.test_clients.tolist() == [0, 1, 0, 1]
  rest = np.setdiff1d(np.arange(24), held)
  assert np.array_equal(data.train.x, x[rest]) and data.clients.tolist() == owner[rest].tolist()
  assert 'there is no test split: every fifth row of each client tests' in data.notes


def test_texts_as_labels_grey_images_and_sizes(tmp_path, values):
  x, y = values
  grey = [a[..., 0] for a in x[:4]] + list(x[4:16])  # colours begin with image 4
  labels = [NAMES[i] for i in y]
  write(tmp_path / 'train.parquet', {'image': images(grey), 'label': labels[:16]})
  write(tmp_path / 'test.parquet', {'image': images(x[16:]), 'label': labels[16:]})
  data = datasets.load('parquet', str(tmp_path))
  assert np.array_equal(data.train.x[:4], np.repeat(x[:4, ..., :1], 3, axis=-1))
  assert np.array_equal(data.train.x[4:], x[4:16])
  assert data.class_names == ('cat', 'cow', 'dog')
  assert [data.class_names[c] for c in data.test.y] == labels[16:]
  assert datasets.load('parquet', str(tmp_path), size=2).shape == (2, 2, 3)


def test_numbers_as_a_table(tmp_path):
  rng = np.random.default_rng(0)
  values, y = rng.normal(size=(30, 4)).astype(np.float32), np.arange(30) % 2
  columns = {
    'age': values[:, 0],
    'label': pa.array(['no', 'yes'] * 15),
    'ward': pa.array([f'w{i % 3}' for i in range(30)]).dictionary_encode(),
    'ill': pa.array(values[:, 1] > 0),
    'vector': pa.array(values[:, 2:].tolist(), pa.list_(pa.float32())),
    'note': ['text'] * 30,
    'id': np.arange(30),
    '__index_level_0__': np.arange(30),
  }
  write(tmp_path / 'train.parquet', columns, rows=7)
  write(tmp_path / 'test.parquet', {k: v[20:] for k, v in columns.items()}, rows=7)
  choice = Choice(client_column='ward', ignore_columns=('id',))
  data = datasets.load('parquet', str(tmp_path), choice=choice)
  expected = np.column_stack([values[:, 0], values[:, 1] > 0, values[:, 2:]]).astype(np.float32)
  assert data.kind == 'table' and data.train.x.dtype == np.float32
  assert np.array_equal(data.train.x, expected) and np.array_equal(data.test.x, expected[20:])
  assert data.feature_names == ('age', 'ill', 'vector[0]', 'vector[1]')
  assert data.class_names == ('no', 'yes') and data.train.y.tolist() == y.tolist()
  assert data.client_names == ('w0', 'w1', 'w2') and data.test_clients.tolist()[:3] == [2, 0, 1]
  assert "columns 'note', 'id', '__index_level_0__' not used" in data.notes
  # Every fifth row of a client without a test split: rows 12, 13, 14 and 27, 28, 29.
  (tmp_path / 'test.parquet').unlink()
  held = datasets.load('parquet', str(tmp_path), choice=choice)
  assert np.array_equal(held.test.x, expected[[12, 13, 14, 27, 28, 29]])


TABLES = {
  'missing': ({'a': [1.0, None]}, 'row 1 of x has nan in column 0'),
  'lists': ({'a': [[1.0], [1.0, 2.0]]}, "column 'a' has lists of 1 and 2 numbers"),
  'digits': ({'a': [1e9, 1e9 + 1]}, 'which float32 does not hold'),
  'none': ({'a': ['x', 'y']}, 'no column holds images (bytes, path), and none numbers'),
}


@pytest.mark.parametrize('case', TABLES)
def test_wrong_tables_are_refused_in_one_line(tmp_path, case):
  columns, line = TABLES[case]
  for name in ('train', 'test'):
    write(tmp_path / f'{name}.parquet', columns | {'label': [0, 1]})
  with pytest.raises(ValueError) as error:
    datasets.load('parquet', str(tmp_path))
  assert line in str(error.value) and '\n' not in str(error.value)


def _good(x, y, **changed):
  return {'image': images(x), 'label': y} | changed


def _stored(content):
  return pa.array([{'bytes': content, 'path': 'a.png'}] * 24, IMAGE)


def _odd(x):
  file = io.BytesIO()
  Image.fromarray(x[0, :, :, 0].astype(np.uint16) * 200).save(file, 'PNG')
  return _stored(file.getvalue())


WRONG = {
  'no image': (lambda x, y: {'label': y}, {}, 'no column holds images (bytes, path), and'),
  'two images': (lambda x, y: _good(x, y, other=images(x)), {}, "'image', 'other' hold images"),
  'no label': (lambda x, y: {'image': images(x)}, {}, 'data.label_column= must name the column'),
  'label column': (_good, {'label_column': 'z'}, "data.label_column='z': has columns 'image', 'la"),
  'client column': (_good, {'client_column': 'z'}, "data.client_column='z': has columns"),
  'split': (_good, {'test_split': 'z'}, "data.test_split='z': has splits train"),
  'same split': (_good, {'test_split': 'train'}, "data.test_split='train' is the training split"),
  'null': (lambda x, y: _good(x, pa.array([None, *y[1:].tolist()])), {}, "has no value in row 0"),
  'hidden': (lambda x, y: _good(x, y - 1), {}, 'row 0 of train has label -1, which is none'),
  'floats': (lambda x, y: _good(x, y / 2), {}, "column 'label' is double; integers or texts"),
  'damaged': (lambda x, y: _good(x, y, image=_stored(b'x')), {}, 'image 0 of train cannot be read'),
  'null image': (lambda x, y: _good(x, y, image=_stored(None)), {}, 'bytes is null'),
  'sizes': (lambda x, y: _good([*x[:23], x[23, :2]], y), {}, 'have 4x5 and 4x2 pixels; data.size'),
  'bits': (lambda x, y: _good(x, y, image=_odd(x)), {}, 'image 0 of train has more than 8 bits'),
}  # fmt: skip


@pytest.mark.parametrize('case', WRONG)
def test_wrong_files_are_refused_in_one_line(tmp_path, values, case):
  columns, choice, line = WRONG[case]
  write(tmp_path / 'train.parquet', columns(*values))
  with pytest.raises(ValueError) as error:
    datasets.load('parquet', str(tmp_path), choice=Choice(**choice))
  assert line in str(error.value) and '\n' not in str(error.value)


def test_wrong_folders_are_refused_in_one_line(tmp_path, values):
  with pytest.raises(FileNotFoundError, match='no Parquet file, as in train-00000-of-00002'):
    datasets.load('parquet', str(tmp_path))
  (tmp_path / 'train.parquet').write_bytes(b'PAR1 no more')
  with pytest.raises(ValueError, match='no Parquet that can be read'):
    datasets.load('parquet', str(tmp_path))
  (tmp_path / 'train.parquet').unlink()
  write(tmp_path / 'train-00000-of-00002.parquet', _good(*values))
  with pytest.raises(ValueError, match="split 'train' has 1 files and names 2 parts"):
    datasets.load('parquet', str(tmp_path))
  (tmp_path / 'train-00000-of-00002.parquet').rename(tmp_path / 'all.parquet')
  with pytest.raises(ValueError, match='has splits all; data.train_split=all names one'):
    datasets.load('parquet', str(tmp_path))
  assert len(datasets.load('parquet', str(tmp_path), choice=Choice('all')).test.y) == 3
  with pytest.raises(
    ValueError, match="data.client_column='a': is for parquet and csv, not digits"
  ):
    datasets.load('digits', choice=Choice(client_column='a'))
  with pytest.raises(ValueError, match="data.test_split='a': is for parquet and tfds:NAME, not"):
    datasets.load('digits', choice=Choice(test_split='a'))


def test_a_client_column_of_the_config_reaches_the_data(tmp_path, values):
  from fedjax_syn.runs import assemble

  x, y = values
  write(tmp_path / 'train.parquet', _good(x, y, user=np.arange(24) // 12))
  settings = {'data.name': f'parquet:{tmp_path}', 'data.client_column': 'user'}
  assert assemble.read(check(settings)).num_clients() == 2


MEMORY = """
import pathlib, sys
from fedjax_syn.data import datasets

def peak():
  lines = pathlib.Path('/proc/self/status').read_text().splitlines()
  return int(next(line.split()[1] for line in lines if line.startswith('VmHWM:'))) * 1024

datasets.load('parquet', sys.argv[1])
before = peak()
data = datasets.load('parquet', sys.argv[2])
print(before, peak(), data.train.x.nbytes + data.test.x.nbytes, len(data.train.y))
"""


def grown(folder, few, many):
  """Returns by how many bytes the peak of resident memory grows, and the bytes of the arrays."""
  command = [sys.executable, '-c', MEMORY, str(folder / few), str(folder / many)]
  done = subprocess.run(command, capture_output=True, text=True, check=True)
  before, after, array, trained = map(int, done.stdout.split())
  assert trained == 800_000
  print(f'{many}: the peak of memory grew by {after - before:,} bytes; arrays of {array:,} bytes')
  return after - before, array


def write_million(path, schema, part):
  path.parent.mkdir()
  with pq.ParquetWriter(path, schema, compression='none') as file:
    for _ in range(100):
      file.write_table(part)


needs_proc = pytest.mark.skipif(not sys.platform.startswith('linux'), reason='reads /proc')


@pytest.mark.slow  # half a minute
@needs_proc
def test_a_million_rows_of_a_table_are_held_once(tmp_path, values):
  """The peak of resident memory grows by the array and little more: labels, digests of rows."""
  write(tmp_path / 'few' / 'train.parquet', _good(*values))
  rng = np.random.default_rng(0)
  columns = {f'f{i}': rng.normal(size=10_000).astype(np.float32) for i in range(200)}
  part = pa.table(columns | {'label': np.arange(10_000) % 10})
  write_million(tmp_path / 'table' / 'train.parquet', part.schema, part)
  more, array = grown(tmp_path, 'few', 'table')
  assert array == 4 * 200 * 1_000_000 and more < 1.4 * array


@pytest.mark.slow  # four minutes
@needs_proc
def test_a_million_images_are_held_once(tmp_path, values):
  write(tmp_path / 'few' / 'train.parquet', _good(*values))
  rng = np.random.default_rng(0)
  pictures = images(rng.integers(0, 256, (10_000, 16, 16, 3), np.uint8))
  schema = pa.schema([('image', IMAGE), ('label', pa.int64())])
  part = pa.table([pictures, np.arange(10_000) % 10], schema=schema)
  write_million(tmp_path / 'images' / 'train.parquet', schema, part)
  more, array = grown(tmp_path, 'few', 'images')
  assert array == 768 * 1_000_000 and more < 1.4 * array
