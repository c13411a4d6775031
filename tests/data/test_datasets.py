"""What exists, how a name and a folder resolve, the digits, held-out rows."""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedjax_syn.data import datasets, held_out
from fedjax_syn.data.builders import prepared
from fedjax_syn.data.builders.sources import SOURCES
from fedjax_syn.data.dataset import make
from fedjax_syn.data.normalisation import Normalisation
from fedjax_syn.data.split import Split, checksum, stratified
from tests.data import fakes

ROOT = Path(__file__).parents[2]


def _line(error):
  assert '\n' not in str(error.value)
  return str(error.value)


# ---- digits


def test_digits():
  """1,797 rows; 599 are a third, so that class c gives a third of its rows, rounded."""
  from sklearn.datasets import load_digits

  digits = datasets.load('digits')
  rows, labels = load_digits(return_X_y=True)
  assert (len(digits.train.y), len(digits.test.y)) == (1198, 599)
  counts = np.bincount(digits.test.y)
  np.testing.assert_allclose(counts, np.bincount(labels) / 3, atol=0.7)
  assert digits.shape == (8, 8, 1) and digits.num_classes == 10 and digits.clients is None
  assert digits.train.x.dtype == np.uint8 and digits.train.y.dtype == np.int32
  assert (digits.train.x.min(), digits.train.x.max()) == (0, 255)

  def lines(x, y):  # pixels 0..16 again, with their labels
    pixels = np.round(x.reshape(-1, 64) / 255 * 16).astype(int)
    return sorted(map(tuple, np.column_stack([pixels, y])))

  x, y = (np.concatenate(pair) for pair in zip(digits.train, digits.test, strict=True))
  assert lines(x, y) == sorted(map(tuple, np.column_stack([rows, labels]).astype(int)))


def test_digits_train_and_test_share_no_row():
  digits = datasets.load('digits')
  seen = {row.tobytes() for row in digits.train.x}
  assert not seen & {row.tobytes() for row in digits.test.x}


def test_digits_test_rows_depend_on_no_seed():
  first, other = datasets.load('digits', seed=0), datasets.load('digits', seed=7, validation=0.5)
  np.testing.assert_array_equal(first.test.x, other.test.x)
  assert first.checksum == other.checksum


def test_arrays_cannot_be_changed():
  digits = datasets.load('digits')
  with pytest.raises(ValueError, match='read-only'):
    digits.train.x[0] = 0


# ---- held-out rows


@given(
  sizes=st.lists(st.integers(0, 30), min_size=1, max_size=8).filter(lambda s: sum(s) > 1),
  share=st.floats(0, 0.99),
  seed=st.integers(0, 99),
)
def test_stratified(sizes, share, seed):
  """Every class gives its share to within one row and keeps a row; the total is exact if it can."""
  rng = np.random.default_rng(seed)
  y = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
  count = round(share * len(y))
  chosen = stratified(y, count, rng.permutation(len(y)))
  given_by = np.bincount(y[chosen], minlength=len(sizes))
  wanted = count * np.array(sizes) / len(y)
  kept = np.array(sizes) - given_by
  assert (kept[np.array(sizes) > 0] >= 1).all()
  free = kept > 1  # classes that no last row holds back
  assert (np.abs(given_by - wanted) < 1 + 1e-6)[free | (given_by == 0)].all()
  assert chosen.sum() <= count and (chosen.sum() == count or (kept[np.array(sizes) > 0] == 1).any())


def test_validation_splits_the_training_rows():
  whole = datasets.load('digits')
  data = datasets.load('digits', validation=0.1, seed=3)
  assert len(data.validation.y) == 120 and len(data.train.y) == 1078
  both = np.concatenate([data.train.x, data.validation.x])
  assert sorted(map(bytes, both)) == sorted(map(bytes, whole.train.x))
  np.testing.assert_allclose(
    np.bincount(data.validation.y), np.bincount(whole.train.y) / 10, atol=1.0
  )
  np.testing.assert_array_equal(data.test.x, whole.test.x)
  # what is left keeps its order, so that f = 0 and f > 0 differ in nothing else
  position = {row.tobytes(): i for i, row in enumerate(whole.train.x)}
  places = [position[row.tobytes()] for row in data.train.x]
  assert places == sorted(places)


def test_held_out_rows_keep_their_clients():
  """Each row shows its client."""
  x = np.arange(40, dtype=np.uint8).reshape(-1, 1, 1, 1) % 4
  rows, clients = Split(x, np.repeat([0, 1], 20)), x.ravel().astype(np.int32)
  data = make('own', 'own', rows, rows, 2, 'unit', clients=clients)
  held = held_out.hold_out(data, 'validation', 0.25, 0)
  assert len(held.validation_clients) == 10 and len(held.clients) == 30
  np.testing.assert_array_equal(held.validation_clients, held.validation.x.ravel())
  np.testing.assert_array_equal(held.clients, held.train.x.ravel())


def test_validation_is_fixed_by_the_seed():
  first, again, other = (datasets.load('digits', validation=0.2, seed=s) for s in (1, 1, 2))
  np.testing.assert_array_equal(first.validation.x, again.validation.x)
  assert not np.array_equal(first.validation.x, other.validation.x)


def test_the_servers_rows_are_taken_from_training_rows_after_validation():
  whole = datasets.load('digits')
  data = datasets.load('digits', validation=0.1, seed=3, proxy='held_out', proxy_share=0.2)
  np.testing.assert_array_equal(
    data.validation.x, datasets.load('digits', validation=0.1, seed=3).validation.x
  )
  assert len(data.proxy.y) == 216 and len(data.train.y) == 1198 - 120 - 216
  parts = [data.train.x, data.validation.x, data.proxy.x]
  both = np.concatenate(parts).reshape(1198, -1)
  order = lambda rows: rows[np.lexsort(rows.T)]
  np.testing.assert_array_equal(order(both), order(whole.train.x.reshape(1198, -1)))
  np.testing.assert_array_equal(data.test.x, whole.test.x)
  counts = np.bincount(data.proxy.y) / np.bincount(whole.train.y)
  np.testing.assert_allclose(counts, 216 / 1198, atol=0.01)


def test_another_data_set_serves_without_labels(tmp_path):
  rng = np.random.default_rng(0)
  for split, rows in (('train', 30), ('test', 10)):
    x = rng.integers(0, 256, (rows, 8, 8, 1)).astype(np.uint8)
    np.savez(tmp_path / f'{split}.npz', x=x, y=np.arange(rows) % 3)
  data = datasets.load('digits', str(tmp_path), proxy='arrays')
  assert data.proxy.x.shape == (30, 8, 8, 1) and set(data.proxy.y) == {-1}
  assert len(data.train.y) == 1198
  with pytest.raises(ValueError, match="data.proxy='digits' is the data set itself"):
    datasets.load('digits', proxy='digits')
  with pytest.raises(ValueError, match="data.proxy='nothing': data.name='nothing' is unknown"):
    datasets.load('digits', proxy='nothing')
  with pytest.raises(
    ValueError, match="data.proxy='digits': its images are 8x8x1 and those of arrays"
  ):
    for split in ('train', 'test'):
      np.savez(
        tmp_path / f'{split}.npz',
        x=np.arange(96, dtype=np.uint8).reshape(6, 4, 4, 1),
        y=np.arange(6) % 3,
      )
    datasets.load('arrays', str(tmp_path), proxy='digits')


@pytest.mark.parametrize('share', [-0.1, 1.0, 1.5, float('nan')])
def test_validation_refused(share):
  with pytest.raises(ValueError, match='data.validation=.* must lie in 0 <= f < 1'):
    datasets.load('digits', validation=share)


def test_validation_too_small_or_seed_negative():
  with pytest.raises(ValueError, match='holds out none of the 1198 training rows'):
    datasets.load('digits', validation=1e-4)
  with pytest.raises(ValueError, match='data.seed=-1'):
    datasets.load('digits', seed=-1)


# ---- names and folders


def test_names():
  known = datasets.names()
  images = ['mnist', 'fashion_mnist', 'cifar10', 'cifar100', 'cinic10', 'usps']
  several = ['digit_five', 'office_home', 'digits_domains', 'digits_styles']
  flair = ['flair', 'flair_128', 'flair_256']
  own = ['folder', 'tfds:NAME']
  assert list(known) == [
    'digits',
    *images,
    *flair,
    *several,
    'fortunes',
    'watch',
    'vietnam',
    'inst_eval',
    'arrays',
    'leaf',
    'parquet',
    'csv',
    *own,
  ]
  assert all(line and '\n' not in line for line in known.values())
  with pytest.raises(
    ValueError, match=r"data.name='cifar_10' is unknown \(did you mean 'cifar10'\?\)"
  ):
    datasets.load('cifar_10')


@pytest.mark.parametrize('inside', ['', 'mnist'])
def test_a_named_set_as_a_folder_of_arrays(tmp_path, inside):
  """Taken as it is, under the name's normalisation and classes; the title shows it."""
  values = fakes.arrays(1, (16, 16, 1), 8)
  fakes.write_arrays(tmp_path / inside, values)
  data = datasets.load('mnist', str(tmp_path))
  assert fakes.same(data.train, values, 'train') and data.num_classes == 10
  assert data.title == f'mnist (arrays {data.checksum[:8]})' and data.normalisation.name == 'mnist'
  fakes.write_arrays(tmp_path / inside, values | {'train_y': values['train_y'] + 3})
  with pytest.raises(ValueError, match=r'labels must lie in 0..9, got 3..10'):
    datasets.load('mnist', str(tmp_path))


@pytest.mark.parametrize('inside', ['', 'fashion_mnist', 'system'])
def test_a_named_set_as_archives(tmp_path, monkeypatch, inside):
  """In the folder, in a folder of its name in it, or where a system package puts them."""
  values = fakes.arrays(1)
  source = fakes.mnist('fashion_mnist', values, tmp_path / inside)
  if inside == 'system':
    source = source._replace(folders=(str(tmp_path / inside),))
  monkeypatch.setitem(SOURCES, source.name, source)
  data = datasets.load('fashion_mnist', str(tmp_path))
  assert fakes.same(data.train, values, 'train') and fakes.same(data.test, values, 'test')
  assert data.title == 'Fashion-MNIST' and data.checksum == checksum(data.train, data.test)
  assert set(os.listdir(tmp_path)) <= {*os.listdir(tmp_path / inside), inside}  # nothing is written


def test_records_and_archives_are_the_same_data_set(tmp_path, monkeypatch):
  values = fakes.arrays(4)
  source = fakes.mnist('mnist', values, tmp_path / 'archives')
  monkeypatch.setitem(SOURCES, 'mnist', source)
  direct = datasets.load('mnist', str(tmp_path / 'archives'))
  prepared.prepare(source, tmp_path / 'archives')
  (tmp_path / 'archives' / 'mnist').rename(tmp_path / 'mnist')
  again = datasets.load('mnist', str(tmp_path))
  assert direct.checksum == again.checksum and direct.title == again.title


def test_where_data_sets_lie_by_default(tmp_path, monkeypatch):
  source = fakes.mnist('mnist', fakes.arrays(1), tmp_path / 'tensorflow_datasets')
  monkeypatch.setitem(SOURCES, 'mnist', source)
  monkeypatch.setenv('HOME', str(tmp_path))
  monkeypatch.delenv('TFDS_DATA_DIR', raising=False)
  assert datasets.load('mnist').title == 'MNIST'
  other = fakes.arrays(2)
  fakes.write_arrays(tmp_path / 'elsewhere', other)
  monkeypatch.setenv('TFDS_DATA_DIR', str(tmp_path / 'elsewhere'))
  assert fakes.same(datasets.load('mnist').train, other, 'train')


def tiny() -> datasets.Dataset:
  """A data set from outside of the package, as a user may write one."""
  split = Split(np.zeros((4, 2, 2, 1), np.uint8), np.arange(4, dtype=np.int32) % 2)
  constants = Normalisation('unit', (0.0,), (1.0,))
  return datasets.Dataset('tiny', 'Tiny', split, split, split, 2, constants, 'none', None)


def wrong() -> int:
  """Not a data set."""
  return 3


def test_a_function_as_data_set():
  data = datasets.load(f'{__name__}:tiny', normalisation='half')
  assert data.title == 'Tiny' and data.normalisation == ('half', (0.5,), (0.5,))
  with pytest.raises(ValueError, match='brings its own validation split; use 0'):
    datasets.load(f'{__name__}:tiny', validation=0.5)


@pytest.mark.parametrize(
  'name, message',
  [
    ('no_such_package:make', "No module named 'no_such_package'"),
    (f'{__name__}:missing', "has no function 'missing'"),
    (':', 'must be package.module:function'),
    (f'{__name__}:wrong', 'got int instead of a .*Dataset'),
    (f'{__name__}:ROOT', "has no function 'ROOT'"),
  ],
)
def test_a_function_refused(name, message):
  with pytest.raises(ValueError, match=message) as error:
    datasets.load(name)
  _line(error)
