"""Tables in CSV: what is read, held out and refused."""

import csv

import numpy as np
import pytest

from fedjax_syn.data import datasets
from fedjax_syn.data.builders import csv_columns
from fedjax_syn.data.facts import Choice

TRAIN = """age,job,client,label
20,clerk,b,yes
30,,a,no
40,"smith, black",a,yes
,clerk,c,no
"""
TEST = 'label,age,client,job\nyes,50,c,clerk\nno,1e1,d,"smith, black"\n'


def load(folder, train=None, test=None, **choice):
  for name, text in (('train', train), ('test', test)):
    if text is not None:
      (folder / f'{name}.csv').write_text(text)
  return datasets.load(f'csv:{folder}', choice=Choice(**choice))


def test_by_hand(tmp_path):
  """The median of 20, 30, 40 is 30; an empty text is no category; columns are found by name."""
  data = load(tmp_path, TRAIN, TEST, missing='median')
  assert data.feature_names == ('age', 'job=clerk', 'job=smith, black')
  np.testing.assert_array_equal(data.train.x, [[20, 1, 0], [30, 0, 0], [40, 0, 1], [30, 1, 0]])
  np.testing.assert_array_equal(data.test.x, [[50, 1, 0], [10, 0, 1]])
  assert data.class_names == ('no', 'yes') and data.train.y.tolist() == [1, 0, 1, 0]
  assert data.client_names == ('a', 'b', 'c') and data.clients.tolist() == [1, 0, 0, 2]
  assert data.test_clients.tolist() == [2, -1] and data.filled
  # Scaling: ages by mean 30 and deviation sqrt(50), categories stay.
  np.testing.assert_allclose(data.normalisation.mean, [30, 0, 0])
  np.testing.assert_allclose(data.normalisation.std, [50**0.5, 1, 1])
  for line in ("column 'job': 2 categories", 'training rows: 1 missing values filled'):
    assert any(line in note for note in data.notes)


def test_rows_that_lack_a_value(tmp_path):
  with pytest.raises(ValueError, match='train.csv: line 3 lacks a value; data.missing=median'):
    load(tmp_path, TRAIN, TEST)
  data = load(tmp_path, TRAIN + '60,clerk,c,no\n', missing='drop')
  np.testing.assert_array_equal(data.train.x, [[20, 1, 0], [40, 0, 1], [60, 1, 0]])
  assert data.clients.tolist() == [1, 0, 2] and not data.filled
  assert 'train.csv: 2 rows that lack a value left out' in data.notes


def test_columns_that_are_named(tmp_path):
  """Integers are classes in their order, 3, 7, 10, and clients by value."""
  text = ',id,who,size,kind\n0,x1,10,1.5,7\n1,x2,9,2.5,10\n2,x3,10,-1,3\n'
  of = {'label_column': 'kind', 'client_column': 'who', 'ignore_columns': ('id',)}
  data = load(tmp_path, text, text, **of)
  assert data.feature_names == ('size',) and data.class_names == ('3', '7', '10')
  assert data.train.y.tolist() == [1, 2, 0] and data.client_names == ('9', '10')
  assert 'the column without a name is left out' in data.notes
  np.testing.assert_array_equal(data.train.x, [[1.5], [2.5], [-1]])


def test_a_fifth_of_one_file_is_held_out(tmp_path):
  """By client and class: each of the four pairs has ten rows, so two of each test."""
  rows = [(i, i // 20, i % 2) for i in range(40)]
  text = 'x;client;y\n' + ''.join(f'{x};{client};{y}\n' for x, client, y in rows)
  (tmp_path / 'one.csv').write_text(text)
  data, again = (
    datasets.load('csv', str(path), choice=Choice()) for path in (tmp_path / 'one.csv', tmp_path)
  )
  assert data.checksum == again.checksum and data.num_classes == 2 and data.class_names == ()
  values = sorted([*data.train.x[:, 0], *data.test.x[:, 0]])
  np.testing.assert_array_equal(values, range(40))
  pairs = data.test_clients * 2 + data.test.y
  np.testing.assert_array_equal(np.bincount(pairs), [2] * 4)
  np.testing.assert_array_equal(data.test_clients, data.test.x[:, 0] // 20)
  assert 'a fifth of each class held out' in data.notes[0]


def test_parts_of_a_file_change_nothing(tmp_path, monkeypatch):
  rng = np.random.default_rng(0)
  with (tmp_path / 'a.csv').open('w', newline='', encoding='utf-8-sig') as file:
    out = csv.writer(file)
    out.writerow(['a', 'b', 'label'])
    out.writerows((rng.normal(), 'näh "x"\ny'[: 3 + i % 7], i % 3) for i in range(50))
  whole = load(tmp_path)
  monkeypatch.setattr(csv_columns, 'PART', 7)
  assert load(tmp_path).checksum == whole.checksum and whole.shape == (6,)


@pytest.mark.parametrize(
  'train, test, words',
  [
    ('', '', 'train.csv: is empty'),
    ('1,2\n3,4\n', '', 'its first line must name the columns, and it has the number 1'),
    ('a,a,y\n', '', "column 'a' is there twice"),
    ('a,b\n1,2\n', 'a,b\n', "data.label_column= must name the column of classes: 'a', 'b'"),
    ('a,y\n1,0\n2\n', 'a,y\n1,0\n', 'line 3 has 1 cells, and there are 2 columns'),
    ('a,y\n1,0\n"2,1\n', 'a,y\n1,0\n', 'line 3 is no CSV'),
    ('y\n0\n1\n', 'y\n0\n', "has no column beside 'y'"),
    ('a;y\n1,5;0\n2;1\n', 'a,y\n1,0\n', "'a' has '1,5' in line 2: write decimals with a point"),
    ('a,y\n1,0\nx,1\n2,1\n', 'a,y\n1,0\n', "the text 'x' in line 3, and most of its rows have num"),
    (
      'a,y\n1,0\n2,1\n',
      'a,y\n1,0\nx,0\n',
      "test.csv: column 'a' has the text 'x' in line 3, and t",
    ),
    ('a,y\nu,0\nv,1\n', 'a,y\nw,0\n', "column 'a' has 'w', a category that train.csv does not"),
    ('a,y\n1,0\n2,1\n', 'a,y\n1,2\n', "no training row has the class '2', and test rows have"),
    ('a,y\n1,0\n2,1\n', 'a,y\n1,cat\n', "no training row has the class 'cat'"),
    ('a,y\n1,0.5\n2,1\n', 'a,y\n1,1\n', 'the class 0.5 is no whole number'),
    ('a,y\n1,0\n2,\n', 'a,y\n1,0\n', 'line 3 has no class: take it out'),
    ('a,client,y\n1,,0\n2,b,1\n', 'a,y\n1,0\n', 'line 2 has no client'),
    ('a,b,y\n1,,0\n2,NA,1\n', 'a,b,y\n1,1,0\n', "column 'b' has no value; data.ignore_columns=b,"),
    ('a,y\n1,0\n2,1\n', 'b,y\n1,0\n', "test.csv: has no column 'a', which train.csv has"),
    ('a,y\n1,0\n2,1\n', 'a,y\n', 'test.csv: has no row'),
  ],
)
def test_what_is_refused_is_one_line(tmp_path, train, test, words):
  with pytest.raises(ValueError, match=words) as error:
    load(tmp_path, train, test)
  assert '\n' not in str(error.value)


def test_too_many_categories(tmp_path):
  text = 'name,y\n' + ''.join(f'n{i},{i % 2}\n' for i in range(50))
  with pytest.raises(ValueError, match="'name' has 50 different texts in 50 rows, .*columns=name,"):
    load(tmp_path, text, text)


def test_settings_and_paths(tmp_path):
  with pytest.raises(FileNotFoundError, match='is missing: a CSV file, or a folder'):
    datasets.load(f'csv:{tmp_path}/none')
  with pytest.raises(FileNotFoundError, match='has no CSV file'):
    load(tmp_path)
  with pytest.raises(ValueError, match="data.client_column='who': has columns 'age', 'job'"):
    load(tmp_path, TRAIN, TEST, client_column='who')
  (tmp_path / 'test.csv').rename(tmp_path / 'other.csv')
  with pytest.raises(
    ValueError, match="has 'other.csv', 'train.csv'; train.csv and test.csv would"
  ):
    load(tmp_path)
  (tmp_path / 'train.csv').write_bytes(b'a,y\n\xff,1\n')
  with pytest.raises(ValueError, match='is no UTF-8'):
    datasets.load('csv', str(tmp_path / 'train.csv'))
  with pytest.raises(
    ValueError, match="data.ignore_columns=.'a',.: is for parquet and csv, not digits"
  ):
    datasets.load('digits', choice=Choice(ignore_columns=('a',)))
