"""The original archives: parsed, bound by checksums, told apart."""

import gzip

import numpy as np
import pytest

from fedjax_syn.data.builders import archive_formats, archives
from tests.data import fakes


def test_idx_by_hand():
  """Magic 00 00 08 (unsigned bytes) and 03 (rank), sizes 1 x 2 x 3, six values, row by row."""
  content = bytes([0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6])
  np.testing.assert_array_equal(archive_formats.idx_array(content), [[[1, 2, 3], [4, 5, 6]]])


@pytest.mark.parametrize(
  'content, message',
  [
    (b'', 'not an IDX file'),
    (bytes([0, 0, 13, 1, 0, 0, 0, 0]), 'not an IDX file'),  # 13: floats
    (bytes([0, 0, 8, 3, 0, 0, 0, 1]), 'not an IDX file'),  # the header ends too early
    (bytes([0, 0, 8, 1, 0, 0, 0, 3, 1, 2]), r'\(3,\), but 2 values'),
    (bytes([0, 0, 8, 1, 0, 0, 0, 1, 1, 2]), r'\(1,\), but 2 values'),
  ],
)
def test_idx_refused(content, message):
  with pytest.raises(ValueError, match=message):
    archive_formats.idx_array(content)


def test_cifar_by_hand():
  """One record: coarse label 7, fine label 42, then all red, all green and all blue values.

  Red is 0, 1, 2, ... row by row (mod 256), green is 100 and blue is 200 everywhere: pixel (1, 2) is
  number 1 * 32 + 2 = 34 of the red plane.
  """
  red = bytes(i % 256 for i in range(1024))
  record = bytes([7, 42]) + red + bytes([100]) * 1024 + bytes([200]) * 1024
  packed = gzip.decompress(
    fakes.tar({'d/b.bin': record * 2, 'd/a.bin': record, 'd/test.bin': record})
  )
  (x, y), (test_x, test_y) = archive_formats.parse_cifar({'f': packed}, labels=2)
  assert x.shape == (3, 32, 32, 3) and y.tolist() == [42, 42, 42]
  assert x[2, 1, 2].tolist() == [34, 100, 200] and test_x.shape[0] == 1 and test_y.tolist() == [42]


@pytest.mark.parametrize(
  'name, make',
  [
    ('mnist', fakes.mnist),
    ('cifar10', fakes.cifar),
    ('cifar100', fakes.cifar),
    ('cinic10', fakes.cinic),
  ],
)
def test_archives_are_read_in_order(tmp_path, name, make):
  values = fakes.arrays(1, (6, 5, 1) if make is fakes.mnist else (32, 32, 3))
  source = make(name, values, tmp_path)
  data = archives.read(source, archives.locate(source, [tmp_path], [source]))
  assert fakes.same(data.train, values, 'train') and fakes.same(data.test, values, 'test')


def test_repacked_archive_is_bound_by_its_content(tmp_path):
  """Debian's files have other gzip headers, hence another SHA-256, around the same bytes."""
  values = fakes.arrays(1)
  source = fakes.mnist('mnist', values, tmp_path)
  for path in tmp_path.iterdir():
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()), 1, mtime=77))
  paths = archives.locate(source, [tmp_path], [source])
  assert fakes.same(archives.read(source, paths).train, values, 'train')
  unknown = [archive._replace(content='') for archive in source.archives]
  with pytest.raises(ValueError, match='truncated or another file: SHA-256'):
    archives.read(source._replace(archives=tuple(unknown)), paths)


@pytest.mark.parametrize(
  'damage', [lambda b: b[:-20], lambda b: b[:10], lambda b: b'', lambda b: b[::-1]]
)
def test_damaged_archive_is_refused(tmp_path, damage):
  source = fakes.mnist('mnist', fakes.arrays(1), tmp_path)
  path = tmp_path / 'train-images-idx3-ubyte.gz'
  path.write_bytes(damage(path.read_bytes()))
  with pytest.raises(
    ValueError, match='train-images-idx3-ubyte.gz is truncated or another'
  ) as error:
    archives.read(source, archives.locate(source, [tmp_path], [source]))
  assert '\n' not in str(error.value)


def test_incomplete_archives_are_named(tmp_path):
  source = fakes.mnist('mnist', fakes.arrays(1), tmp_path)
  (tmp_path / 't10k-labels-idx1-ubyte.gz').unlink()
  with pytest.raises(
    ValueError, match='only a part of mnist: t10k-labels-idx1-ubyte.gz is missing'
  ):
    archives.locate(source, [tmp_path], [source])


def test_archive_with_something_else_inside(tmp_path):
  """The checksum fits, but the tar file holds no CIFAR: still one line."""
  source = fakes.cifar('cifar10', fakes.arrays(1, (32, 32, 3)), tmp_path)
  packed = fakes.tar({'readme': b'no images'})
  (tmp_path / source.archives[0].file).write_bytes(packed)
  source = source._replace(
    archives=(source.archives[0]._replace(known_hash=f'sha256:{fakes.sha256(packed)}'),)
  )
  with pytest.raises(ValueError, match='the archives of cifar10 cannot be read'):
    archives.read(source, archives.locate(source, [tmp_path], [source]))


def test_files_of_the_same_name_are_told_apart(tmp_path):
  """Fashion-MNIST's archives have MNIST's names: they are passed over, in any packing."""
  fashion = fakes.mnist('fashion_mnist', fakes.arrays(1), tmp_path / 'a')
  digits = fakes.mnist('mnist', fakes.arrays(2), tmp_path / 'b')
  folders = [tmp_path / 'a', tmp_path / 'b']
  for source, folder in ((fashion, 'a'), (digits, 'b')):
    paths = archives.locate(source, folders, [fashion, digits])
    assert {path.parent.name for path in paths.values()} == {folder}
  assert archives.locate(digits, folders[:1], [fashion, digits]) is None


@pytest.mark.parametrize(
  'change, message',
  [
    ({'rows': (41, 20)}, r'40 \+ 20 images .* expected 41 \+ 20'),
    ({'shape': (5, 6, 1)}, r'images of \[6, 5, 1\], expected .* \[5, 6, 1\]'),
    ({'num_classes': 9}, r'labels must lie in 0..8, got 0..9'),
    ({'mean': (0.9,)}, r'mean training pixel .* expected \[0.9\]'),
  ],
)
def test_a_set_is_recognised_by_its_statistics(tmp_path, change, message):
  source = fakes.mnist('mnist', fakes.arrays(1), tmp_path)
  with pytest.raises(ValueError, match=message):
    archives.read(source._replace(**change), archives.locate(source, [tmp_path], [source]))
