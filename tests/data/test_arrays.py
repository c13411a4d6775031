"""Folders of prepared arrays: what they may hold, and one clear line for everything else."""

import json
import mmap
import pathlib

import numpy as np
import pytest

from fedjax_syn.data import datasets
from fedjax_syn.data.normalisation import NORMALISATIONS
from fedjax_syn.data.split import checksum
from tests.data import fakes


def _line(error):
  assert '\n' not in str(error.value)
  return str(error.value)


def test_arrays(tmp_path):
  values = fakes.arrays(1, (4, 6, 3), 7)
  clients = np.arange(fakes.TRAIN) // 8
  fakes.write_arrays(tmp_path / 'usps', values, clients=clients)
  data = datasets.load('arrays', str(tmp_path / 'usps'))
  assert fakes.same(data.train, values, 'train') and fakes.same(data.test, values, 'test')
  assert data.num_classes == 7 and data.shape == (4, 6, 3)
  assert data.checksum == checksum(data.train, data.test, clients.astype(np.int32))
  assert data.title == f'usps (arrays {data.checksum[:8]})'
  assert data.clients.tolist() == clients.tolist()
  held = datasets.load('arrays', str(tmp_path / 'usps'), validation=0.25)
  rows = {row.tobytes(): client for row, client in zip(values['train_x'], clients, strict=True)}
  assert [rows[row.tobytes()] for row in held.train.x] == held.clients.tolist()


def _on_disk(array):
  while array is not None and not isinstance(array, mmap.mmap):
    array = getattr(array, 'base', None)
  return array is not None


@pytest.mark.parametrize('mean', ['half', 'auto'])
def test_pixels_of_rows_for_the_host_stay_on_disk(tmp_path, mean):
  """The same data set, mapped where files are not compressed; labels and clients are read."""
  values = fakes.arrays(1, (4, 6, 3), 7)
  fakes.write_arrays(tmp_path, values, clients=np.arange(fakes.TRAIN) // 8)
  load = lambda where: datasets.load('arrays', str(tmp_path), normalisation=mean, placement=where)
  read, mapped = load('device'), load('host')
  assert [_on_disk(split.x) for split in (mapped.train, mapped.test)] == [True, True]
  assert not any(map(_on_disk, (read.train.x, mapped.train.y, mapped.clients)))
  assert fakes.same(mapped.train, values, 'train') and fakes.same(mapped.test, values, 'test')
  assert (mapped.checksum, mapped.normalisation) == (read.checksum, read.normalisation)
  with np.load(tmp_path / 'train.npz') as file:
    arrays = dict(file)
  np.savez_compressed(tmp_path / 'train.npz', **arrays)
  packed = load('host')
  assert not _on_disk(packed.train.x) and packed.checksum == read.checksum


def test_meta_json(tmp_path):
  fakes.write_arrays(tmp_path, fakes.arrays(1, (4, 4, 3)))
  meta = tmp_path / 'meta.json'
  meta.write_text(json.dumps({'name': 'CIFAR-10 (JPEG copy)', 'normalisation': 'cifar10'}))
  data = datasets.load('arrays', str(tmp_path))
  assert data.title == 'CIFAR-10 (JPEG copy)' and data.normalisation == NORMALISATIONS['cifar10']
  meta.write_text(json.dumps({'normalisation': {'mean': [0.1, 0.2, 0.3], 'std': [1, 2, 3]}}))
  data = datasets.load('arrays', str(tmp_path))
  assert data.normalisation == ('own', (0.1, 0.2, 0.3), (1, 2, 3))
  assert data.title == f'{tmp_path.name} (arrays {data.checksum[:8]})'


@pytest.mark.parametrize(
  'content, message',
  [
    ('{', 'is not JSON'),
    ('[]', 'must hold'),
    ('{"name": 3}', 'must hold'),
    ('{"normalisation": "zscore"}', "normalisation='zscore' must be one of"),
    ('{"normalisation": {"mean": [0.5], "std": [0]}}', 'positive std'),
    ('{"normalisation": {"mean": [0.5], "std": [NaN]}}', 'positive std'),
    ('{"normalisation": {"mean": [0.5, 0.5], "std": [1]}}', 'positive std'),
    ('{"normalisation": {"mean": ["a"], "std": [null]}}', 'positive std'),
    ('{"normalisation": {"mean": [1e999], "std": [1e308]}}', 'positive std'),
    ('[' * 100_000, 'is not JSON'),
    ('{"normalisation": ' + '9' * 10_000 + '}', 'is not JSON'),
    ('null', 'must hold'),
    ('{"normalisation": {"mean": [0.5, 0.5], "std": [1, 1]}}', 'is for 2 channels'),
  ],
  ids=lambda text: text[:40],
)
def test_meta_json_refused(tmp_path, content, message):
  fakes.write_arrays(tmp_path, fakes.arrays(1))
  (tmp_path / 'meta.json').write_text(content)
  with pytest.raises(ValueError, match=message) as error:
    datasets.load('arrays', str(tmp_path))
  _line(error)


def _with(**changes):
  return fakes.arrays(1) | changes


_X, _Y = fakes.arrays(1)['train_x'], fakes.arrays(1)['train_y']


@pytest.mark.parametrize(
  'values, message',
  [
    (_with(train_x=_X.astype(float)), 'of train.npz are float64 0..255; floats must lie in 0..1'),
    (_with(train_x=np.full(_X.shape, np.nan)), 'of train.npz are float64 nan..nan'),
    (_with(train_x=_X[..., 0]), r'x must be images .* got uint8 \[40, 6, 5\]; x\[..., None\]'),
    (_with(train_x=_X[:0], train_y=_Y[:0]), 'x is empty'),
    (_with(test_x=_X[:20, :, :0]), r'test.npz: x is \[20, 6, 0, 1\], but that of train.npz'),
    (_with(train_y=_Y.astype(np.float32)), 'y must be an integer type .* got float32'),
    (_with(train_y=_Y > 4), 'y must be an integer type .* got bool'),
    (_with(train_y=_Y[:, None]), r'y must be an integer type .* got uint8 \[40, 1\]'),
    (_with(train_y=_Y[:-1]), '40 rows in x, but 39 labels in y'),
    (_with(train_y=_Y.astype(int) - 1), r'labels must lie in 0\.\..*, got -1\.\.8'),
    (
      _with(test_x=_X[:20, :, 1:]),
      r'test.npz: x is \[20, 6, 4, 1\], but that of train.npz \[40, 6, 5, 1\]',
    ),
    (_with(train_x=_X.astype(object)), 'train.npz cannot be read: .*allow_pickle'),
    (_with(train_x=_X * 1j), 'pixels of train.npz are complex128'),
    (_with(train_x=np.zeros(_X.shape, [('a', 'u1')])), r"of train.npz are \[\('a', 'u1'\)\]"),
    (_with(train_y=_Y.astype(int).astype('datetime64[D]')), r'got datetime64\[D\] \[40\]'),
    (_with(train_y=_Y.astype(str)), r'got <U.* np.unique\(y, return_inverse=True\) numbers names'),
    (_with(train_y=_Y + np.uint64(2**63)), 'labels must lie in .* got 9223372036854775808'),
    (_with(train_y=_Y + 2**33 * np.ones(1, int)), 'labels must lie in .* got 8589934592'),
    (_with(train_y=_Y * np.full(1, 10**8)), 'train.npz: no row has label 1, and test rows have'),
  ],
)
def test_bad_arrays_are_one_line(tmp_path, values, message):
  fakes.write_arrays(tmp_path, values)
  with pytest.raises(ValueError, match=message) as error:
    datasets.load('arrays', str(tmp_path))
  assert str(tmp_path) in _line(error)


@pytest.mark.parametrize(
  'clients, message',
  [
    (np.full(40, np.nan), 'clients are float64, and row 0 has nan: use integers or texts'),
    (np.full(40, None), 'train.npz cannot be read: .*allow_pickle'),
  ],
)
def test_bad_clients_are_one_line(tmp_path, clients, message):
  fakes.write_arrays(tmp_path, fakes.arrays(1), clients=clients)
  with pytest.raises(ValueError, match=message) as error:
    datasets.load('arrays', str(tmp_path))
  _line(error)


@pytest.mark.parametrize('damage', [lambda b: b[: len(b) // 2], lambda b: b'', lambda b: b'PK'])
def test_damaged_arrays_are_one_line(tmp_path, damage):
  fakes.write_arrays(tmp_path, fakes.arrays(1))
  path = tmp_path / 'test.npz'
  path.write_bytes(damage(path.read_bytes()))
  with pytest.raises(ValueError, match='test.npz cannot be read') as error:
    datasets.load('arrays', str(tmp_path))
  _line(error)


def test_arrays_without_labels(tmp_path):
  fakes.write_arrays(tmp_path, fakes.arrays(1))
  np.savez(tmp_path / 'test.npz', x=_X, labels=_Y)
  with pytest.raises(ValueError, match=r"it has no array 'y', only \['labels', 'x'\]"):
    datasets.load('arrays', str(tmp_path))


def test_half_a_folder_of_arrays(tmp_path):
  fakes.write_arrays(tmp_path, fakes.arrays(1))
  (tmp_path / 'test.npz').unlink()
  for name in ('arrays', 'mnist'):
    with pytest.raises(FileNotFoundError, match='test.npz is missing: a folder of arrays holds'):
      datasets.load(name, str(tmp_path))
  with pytest.raises(FileNotFoundError, match='nowhere/train.npz is missing'):
    datasets.load('arrays', str(tmp_path / 'nowhere'))


def test_no_permission_is_one_line(tmp_path, monkeypatch):
  """Simulated: tests may run as root, who may read everything."""
  fakes.write_arrays(tmp_path, fakes.arrays(1))

  def refuse(path, *args):
    raise PermissionError(13, 'Permission denied', str(path))

  monkeypatch.setattr(pathlib.Path, 'open', refuse)
  with pytest.raises(
    ValueError, match="data.name='arrays': .*train.npz: permission denied"
  ) as error:
    datasets.load('arrays', str(tmp_path))
  _line(error)


@pytest.mark.parametrize(
  'change', [lambda x: np.float32(x / 255), lambda x: x.astype(int), lambda x: x * np.uint16(257)]
)
def test_pixels_of_other_types_are_scaled(tmp_path, change):
  """Both files by one range: the test images, which are darker, stay darker."""
  dark = fakes.arrays(1)['test_x'] // 3
  fakes.write_arrays(tmp_path, _with(train_x=change(_X), test_x=change(dark)))
  found = datasets.load('arrays', str(tmp_path))
  np.testing.assert_array_equal(found.train.x, _X)
  np.testing.assert_array_equal(found.test.x, dark)
  assert any('pixels scaled from' in note for note in found.notes)
