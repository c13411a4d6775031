"""Tables and sequences of floats: their scaling, what is refused, and folders of arrays."""

import json

import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_syn.core import privacy
from fedjax_syn.data import datasets, features, missing
from fedjax_syn.data.dataset import Dataset
from fedjax_syn.data.facts import Choice
from fedjax_syn.data.federated import from_partition, normalise
from fedjax_syn.data.partition import partition
from fedjax_syn.data.split import Split

Y = np.array([0, 1, 0, 1])
# By columns: mean 4, deviation sqrt(5); 0 and 1 alone; one value; 10^6 and more.
X = np.array([[1, 0, 7, 1e6], [3, 1, 7, 1e6 + 2], [5, 0, 7, 1e6 + 4], [7, 1, 7, 1e6 + 6]])
MEAN, STD = [4, 0, 7, 1e6 + 3], [5**0.5, 1, 1, 5**0.5]
SCALED = np.stack([(X[:, 0] - 4) / 5**0.5, X[:, 1], [0] * 4, (X[:, 0] - 4) / 5**0.5], axis=1)


def table(x=X, test=X, **fields):
  return Dataset('t', 'T', Split(x, Y[: len(x)]), Split(test, Y[: len(test)]), None, 2, **fields)


def seen(dataset):
  """What a model sees of the training rows."""
  data = from_partition(dataset, partition('iid', dataset.train.y, 1))
  return np.asarray(normalise(data, jnp.asarray(dataset.train.x)))


@pytest.mark.parametrize('dtype', [np.float16, np.float32, np.float64])
def test_scaling_by_hand(dtype):
  """A column with 0 and 1 alone stays, one with a single value is only shifted."""
  x = X[:, : 3 if dtype == np.float16 else 4].astype(dtype)
  made = table(x, x)
  columns = x.shape[1]
  assert made.kind == 'table' and made.shape == (columns,) and made.train.x.dtype == np.float32
  np.testing.assert_allclose(made.normalisation.mean, MEAN[:columns], rtol=1e-12)
  np.testing.assert_allclose(made.normalisation.std, STD[:columns], rtol=1e-12)
  np.testing.assert_allclose(seen(made), SCALED[:, :columns], rtol=0, atol=1e-6)


def test_test_rows_change_no_constant():
  assert table(test=X * 100).normalisation == table().normalisation


def test_sequences_are_scaled_by_channel():
  """Channel 0 has 0, 2, 4, 6 over rows and steps, channel 1 ten times as much."""
  x = np.array([[[0, 0], [2, 20]], [[4, 40], [6, 60]]], np.float32)
  made = table(x, x)
  assert made.kind == 'sequences' and made.shape == (2, 2)
  np.testing.assert_allclose(made.normalisation.mean, [3, 30])
  np.testing.assert_allclose(made.normalisation.std, [5**0.5, 500**0.5])
  np.testing.assert_allclose(seen(made)[1, 1], [3 / 5**0.5] * 2, rtol=1e-6)


def test_chunks_change_nothing(monkeypatch):
  x = np.random.default_rng(0).normal(3, 2, (50, 7, 3))
  whole = features.measure(x)
  monkeypatch.setattr(features, 'CHUNK', 40)
  np.testing.assert_allclose(features.measure(x), whole, rtol=1e-12)
  np.testing.assert_allclose(whole, (x.mean((0, 1)), x.std((0, 1))), rtol=1e-12)
  with pytest.raises(ValueError, match='train: row 33, step 2 of x has inf in column 1; give a'):
    features.check_values(np.where(np.arange(1050).reshape(x.shape) == 700, np.inf, x), 'train')


def test_constants_of_ones_own():
  given = datasets.Normalisation('own', (1.0, 0.0, 0.0, 1e6), (2.0, 1.0, 7.0, 1.0))
  np.testing.assert_allclose(seen(table(normalisation=given)), (X - given.mean) / given.std)
  assert (seen(table(X[:, :3], X[:, :3], normalisation='unit')) == X[:, :3]).all()
  for wrong, words in (
    ('cifar10', "'cifar10' is for images, and these data are a table"),
    (datasets.Normalisation('own', (0.0,) * 3, (1.0,) * 3), "'own' is for 3 features, .* have 4"),
    (datasets.Normalisation('own', (0.0,), (0.0,)), 'a finite mean and a positive std'),
  ):
    with pytest.raises(ValueError, match=words):
      table(normalisation=wrong)


@pytest.mark.parametrize(
  'x, words',
  [
    (X.astype(int), 'train: x must be images .* got int64 .*x.astype.np.float32. if they are a t'),
    (X > 3, r'got bool \[4, 4\]; x.astype\(np.float32\) if they are a table$'),
    (X.astype(str), 'number or encode texts before'),
    (X[:, 0], r'x\[:, None\] if it is a table of one column'),
    (X * np.where(X == 5, np.nan, 1), 'train: row 2 of x has nan in column 0; give a number'),
    (X * 1e300, 'row 0 of x has inf in column 0'),
    (X + 1e12, r'train: column 0 of x has values near 1e\+12 and a standard .* subtract 1e\+12'),
  ],
)
def test_what_is_refused_is_one_line(x, words):
  with pytest.raises(ValueError, match=words) as error:
    made = table(x, x)
    datasets.checks.check(made, 'dataset')
  assert '\n' not in str(error.value)


def test_splits_are_of_one_kind():
  with pytest.raises(ValueError, match=r'test: x is int32 \[4, 4\], but that of train float64'):
    table(test=X.astype(np.int32))
  with pytest.raises(ValueError, match=r'test: x is \[4, 3\], but that of train \[4, 4\]'):
    table(test=X[:, :3])


def test_held_out_rows_are_no_training_rows(tmp_path):
  """Constants are those of the rows that are left for training."""
  write(tmp_path, X, X)
  data = datasets.load('arrays', str(tmp_path), validation=0.5)
  assert data.validation is not None and len(data.train.y) == 2
  np.testing.assert_allclose(data.normalisation.mean[0], data.train.x[:, 0].mean())
  np.testing.assert_allclose(data.normalisation.std[0], data.train.x[:, 0].std())


def write(folder, train, test, meta=None, **more):
  np.savez(folder / 'train.npz', x=train, y=Y[: len(train)], **more)
  np.savez(folder / 'test.npz', x=test, y=Y[: len(test)])
  if meta:
    (folder / 'meta.json').write_text(json.dumps(meta))


@pytest.mark.parametrize('placement', ['device', 'host'])
def test_a_folder_of_arrays(tmp_path, placement):
  write(tmp_path, X.astype(np.float32), X[:2].astype(np.float32), clients=['a', 'b', 'a', 'b'])
  data = datasets.load('arrays', str(tmp_path), placement=placement)
  assert (data.kind, data.client_names) == ('table', ('a', 'b'))
  x = data.train.x
  while x is not None and not isinstance(x, np.memmap):
    x = x.base
  assert isinstance(x, np.memmap) == (placement == 'host')
  np.testing.assert_allclose(data.normalisation.mean, MEAN)
  assert 'x has one value alone in column 2' in data.notes


def test_meta_json_says_what_arrays_cannot(tmp_path):
  """Integers are tokens, or a table; square arrays in 0..1 grey images, or sequences."""
  write(tmp_path, X.astype(int), X.astype(int))
  with pytest.raises(ValueError, match='if they are a table'):
    datasets.load('arrays', str(tmp_path))
  own = {'mean': [0.0, 0.0, 0.0, 1e6], 'std': [10.0, 1.0, 1.0, 1.0]}
  write(tmp_path, X.astype(int), X.astype(int), {'kind': 'table', 'normalisation': own})
  data = datasets.load('arrays', str(tmp_path))
  np.testing.assert_allclose(seen(data)[2], [0.5, 0, 7, 4])
  square = np.linspace(0, 1, 256).reshape(4, 8, 8)
  write(tmp_path, square, square, {'name': 'S'})
  with pytest.raises(ValueError, match='x\\[..., None\\] if they are grey images, or .*sequences'):
    datasets.load('arrays', str(tmp_path))
  write(tmp_path, square, square, {'kind': 'sequences'})
  assert datasets.load('arrays', str(tmp_path)).kind == 'sequences'
  write(tmp_path, X, X, {'kind': 'sequences'})
  with pytest.raises(ValueError, match='"kind": "sequences", which has 3 axes; x has 2'):
    datasets.load('arrays', str(tmp_path))
  write(tmp_path, np.zeros((4, 2, 50)), np.zeros((4, 2, 50)), {'name': 'S'})
  with pytest.raises(ValueError, match=r'channels first; .*np.swapaxes\(x, 1, 2\), or .*"NTC"'):
    datasets.load('arrays', str(tmp_path))


HOLES = np.array([[1, 10.0], [np.nan, 20], [3, np.nan], [8, 40]])


def test_missing_values_in_arrays(tmp_path):
  """The median of 1, 3, 8 is 3, of 10, 20, 40 it is 20; test rows are filled by the same."""
  write(tmp_path, HOLES, np.array([[np.nan, 1], [5, 5]]))
  with pytest.raises(ValueError, match='train.npz: row 1 of x has nan in column 0'):
    datasets.load('arrays', str(tmp_path))
  data = datasets.load('arrays', str(tmp_path), choice=Choice(missing='median'))
  np.testing.assert_array_equal(data.train.x, [[1, 10], [3, 20], [3, 20], [8, 40]])
  np.testing.assert_array_equal(data.test.x, [[3, 1], [5, 5]])
  assert data.filled
  assert 'train.npz: 2 missing values filled by the median of training rows' in data.notes
  data = datasets.load('arrays', str(tmp_path), choice=Choice(missing='drop'))
  np.testing.assert_array_equal(data.train.x, HOLES[[0, 3]])
  assert data.train.y.tolist() == [0, 1] and len(data.test.y) == 1 and not data.filled


def test_medians_are_outside_of_epsilon():
  noise = privacy.Mechanism(1.0, 1e-5)
  privacy.check_data(noise, 'unit')
  with pytest.raises(ValueError, match="data.missing='median': medians of .*; 'drop' would work"):
    privacy.check_data(noise, 'unit', filled=True)


def test_missing_values_without_a_rule():
  part = {'x': np.full((2, 1), np.nan)}
  with pytest.raises(ValueError, match='here: column 0 of x has no value in training rows'):
    missing.complete({'train': part}, 'median', 'here')
  with pytest.raises(ValueError, match="here: every row of train lacks a value, .*'drop'"):
    missing.complete({'train': part}, 'drop', 'here')
  with pytest.raises(ValueError, match="data.missing='drop': only arrays and CSV files can lack"):
    datasets.load('digits', choice=Choice(missing='drop'))
