"""Pipes, devices, bombs and false sizes are refused in one line that names the file."""

import gzip
import os
import re
import zipfile

import numpy as np
import pytest
import scipy.io

from fedjax_syn.data import datasets
from fedjax_syn.data.builders import bounded, flair_records, office_home
from tests.data import fakes, test_domains
from tests.data.test_domains import _five as _five_fixture  # noqa: F401  as the fixture `five`
from tests.data.test_image_folder import prepared  # noqa: F401

SPECIAL = {
  'a pipe': os.mkfifo,
  'a device': lambda path: path.symlink_to('/dev/zero'),
  'a folder': lambda path: path.mkdir(),
}


@pytest.mark.parametrize('make', SPECIAL.values(), ids=SPECIAL)
def test_only_regular_files_are_read(make, tmp_path):
  make(tmp_path / 'f')
  with pytest.raises(ValueError, match='f is not a regular file'):
    bounded.read_bytes(tmp_path / 'f')


def test_files_of_a_size_alone_are_read(tmp_path):
  (tmp_path / 'f').write_bytes(b'12345')
  assert bounded.read_bytes(tmp_path / 'f', 5) == b'12345'
  with pytest.raises(ValueError, match='f has 5 bytes, more than the 4 that are read'):
    bounded.read_bytes(tmp_path / 'f', 4)


def test_gzip_is_unpacked_up_to_a_size():
  """As gzip.decompress, which knows no end: members one after the other, zeros behind them."""
  packed = gzip.compress(b'abc') + gzip.compress(b'de') + b'\0\0'
  assert bounded.gunzip(packed) == gzip.decompress(packed) == b'abcde'
  assert bounded.gunzip(packed, 5) == b'abcde'
  assert bounded.gunzip(packed, 4) == b''
  assert bounded.gunzip(packed[:-10]) == b'' == bounded.gunzip(b'no gzip')
  assert bounded.gunzip(gzip.compress(bytes(1 << 20)) * 1000, 1 << 20) == b''  # a GiB in a MB
  assert bounded.gunzip(b'') == b''


def test_more_than_the_memory_is_refused_with_both_numbers(monkeypatch):
  monkeypatch.setattr(bounded, 'memory', lambda: 2 * 10**9)
  bounded.check_bytes(2 * 10**9, 'x')
  with pytest.raises(
    ValueError, match='x would take 3.0 GB, and this machine has 2.0 GB of memory'
  ):
    bounded.check_bytes(3 * 10**9, 'x')


def image(path, side=8):
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_bytes(fakes.png(np.zeros((side, side), np.uint8)))


def test_images_that_would_not_fit_are_refused_before_they_are_read(tmp_path, monkeypatch):
  """Ten images of 10,000 pixels a side are a gigabyte; so are ten of which the first says so."""
  for i in range(10):
    image(tmp_path / 'cat' / f'{i}.png')
  monkeypatch.setattr(bounded, 'memory', lambda: 5 * 10**8)
  line = re.escape('10 images of data.size=10000 would take 1.0 GB, and this machine has 0.5 GB')
  with pytest.raises(ValueError, match=line):
    datasets.load('folder', str(tmp_path), size=10_000)
  monkeypatch.setattr(bounded, 'memory', lambda: 100)
  with pytest.raises(ValueError, match='10 images of 8 x 8 pixels, 1 channels, would take'):
    datasets.load('folder', str(tmp_path))


# ---- arrays


def arrays(folder):
  fakes.write_arrays(folder, fakes.arrays(1))
  return folder


def header(shape: str) -> bytes:
  """Of an npy file of bytes, version 1.0."""
  text = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + '\n'
  return b'\x93NUMPY\x01\x00' + len(text).to_bytes(2, 'little') + text.encode()


@pytest.mark.parametrize(
  'shape',
  [
    *(f'({2**40}, 6, 5, 1)', f'({2**62}, 6, 5, 1)', '(-40, 6, 5, 1)', '{}'),
    '__import__("os").abort()',
  ],
)
def test_arrays_of_false_shapes(shape, tmp_path):
  folder = arrays(tmp_path / 'd')
  with zipfile.ZipFile(folder / 'train.npz', 'w') as file:
    file.writestr('x.npy', header(shape) + bytes(100))
    file.writestr('y.npy', header('(40,)') + bytes(40))
  with pytest.raises(ValueError, match=r'd/train.npz cannot be read: ') as refused:
    datasets.load('arrays', str(folder))
  assert '\n' not in str(refused.value)


def encrypt(path):
  """Sets the flag of encryption of every member, in both of a zip file's lists."""
  content = bytearray(path.read_bytes())
  for mark, offset in ((b'PK\x03\x04', 6), (b'PK\x01\x02', 8)):
    for found in re.finditer(re.escape(mark), bytes(content)):
      content[found.start() + offset] |= 1
  path.write_bytes(content)


def test_arrays_under_a_password(tmp_path):
  folder = arrays(tmp_path / 'd')
  encrypt(folder / 'train.npz')
  with pytest.raises(ValueError, match='d/train.npz cannot be read: .*encrypted'):
    datasets.load('arrays', str(folder))


def test_arrays_larger_than_memory(tmp_path, monkeypatch):
  folder = arrays(tmp_path / 'd')
  monkeypatch.setattr(bounded, 'memory', lambda: 1000)
  with pytest.raises(ValueError, match='d/train.npz cannot be read: x, y would take'):
    datasets.load('arrays', str(folder))


@pytest.mark.parametrize('name', ['x', 'y'])
def test_one_value_is_no_array(name, tmp_path):
  folder = arrays(tmp_path / 'd')
  with np.load(folder / 'test.npz') as file:
    np.savez(folder / 'test.npz', **{**file, name: np.array(3)})
  with pytest.raises(ValueError, match=f'd.* ?test.npz: {name} must be .*, got int64 '):
    datasets.load('arrays', str(folder))


@pytest.mark.parametrize('make', SPECIAL.values(), ids=SPECIAL)
def test_what_is_said_of_arrays_is_a_file(make, tmp_path):
  folder = arrays(tmp_path / 'd')
  make(folder / 'meta.json')
  with pytest.raises(ValueError, match='meta.json is no'):
    datasets.load('arrays', str(folder))


# ---- published layouts and records


def test_a_zip_file_under_a_password_and_a_member_too_large(tmp_path, monkeypatch):
  test_domains.office(tmp_path, packed=True)
  path = tmp_path / f'{office_home.FOLDER}.zip'
  whole = path.read_bytes()
  encrypt(path)
  with pytest.raises(ValueError, match=r'\.zip: .*\.jpg cannot be read: .*encrypted'):
    office_home.parse(path)
  path.unlink()
  os.mkfifo(path)
  with pytest.raises(ValueError, match=r'\.zip is not a regular file'):
    office_home.parse(path)
  path.unlink()
  path.write_bytes(whole)
  monkeypatch.setattr(office_home, 'LARGEST', 100)
  with pytest.raises(ValueError, match=r'\.jpg cannot be read: more than 100 bytes'):
    office_home.parse(path)


@pytest.mark.parametrize(
  'change', [lambda v: v[..., 0], lambda v: v.T, lambda v: 3, lambda v: 'text']
)
@pytest.mark.parametrize('file', ['mnist_data.mat', 'syn_number.mat', 'usps_28x28.mat'])
def test_a_matlab_file_of_another_shape_is_named(file, change, five):
  path = five[1] / 'Digit-Five' / file
  content = {k: v for k, v in scipy.io.loadmat(path).items() if not k.startswith('__')}
  scipy.io.savemat(path, {k: change(v) for k, v in content.items()})
  with pytest.raises(ValueError, match=re.escape(file)) as refused:
    datasets.load('digit_five', str(five[1]))
  assert '\n' not in str(refused.value)


@pytest.mark.parametrize('make', SPECIAL.values(), ids=SPECIAL)
def test_an_image_of_flair_is_a_file(make, tmp_path):
  """A thread that waits for a pipe is never done, and the program never over."""
  make(tmp_path / 'a.jpg')
  with pytest.raises(ValueError, match='a.jpg is no'):
    flair_records._content(tmp_path / 'a.jpg')


def test_records_are_files(prepared, tmp_path):  # noqa: F811
  import shutil

  shutil.copytree(prepared[0] / 'my_digits', tmp_path / 'my_digits')
  (path,) = tmp_path.glob('my_digits/*/*-train.*')
  path.unlink()
  os.mkfifo(path)
  with pytest.raises(ValueError, match='00000-of-00001 is not a regular file'):
    datasets.load('tfds:my_digits', str(tmp_path))
