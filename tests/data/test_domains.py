"""Data sets of several domains, on small archives of the published layouts.

Tests rows, sizes, clients, metrics and refusals.
"""

import io
import zipfile

import numpy as np
import pytest
import scipy.io
from PIL import Image

from fedjax_syn.data import datasets, domains, federated
from fedjax_syn.data.builders import digits, office_home
from fedjax_syn.data.builders.domain_sources import DOMAIN_SOURCES
from fedjax_syn.data.builders.sources import SOURCES
from fedjax_syn.data.partition import partition
from fedjax_syn.data.split import Split
from tests.data import fakes


def test_one_size_and_number_of_channels():
  """Bilinear interpolation makes pixels 0 and 200 twice as wide: 0, 50, 150, 200.

  Grey is repeated.
  """
  x = np.array([0, 200], np.uint8).reshape(1, 1, 2, 1).repeat(2, 1)
  grown = domains.fit(x, 4, 3)
  assert grown.shape == (1, 4, 4, 3) and (grown == grown[..., :1]).all()
  np.testing.assert_array_equal(grown[0, :, :, 0], [[0, 50, 150, 200]] * 4)
  # Pillow's luminance: (299 R + 587 G + 114 B) / 1000.
  red = np.zeros((1, 4, 4, 3), np.uint8)
  red[..., 0] = 100
  np.testing.assert_array_equal(domains.fit(red, 4, 1), np.full((1, 4, 4, 1), 30))
  same = np.random.default_rng(0).integers(0, 256, (3, 4, 4, 3), np.uint8)
  np.testing.assert_array_equal(domains.fit(same, 4, 3), same)


def test_at_most_so_many_rows_and_always_the_same():
  split = Split(np.arange(50, dtype=np.uint8).reshape(50, 1, 1, 1), np.arange(50, dtype=np.int32))
  few = domains.subsample(split, 10)
  assert len(few.y) == 10 and (np.diff(few.y) > 0).all()
  np.testing.assert_array_equal(few.x.ravel(), few.y)
  np.testing.assert_array_equal(domains.subsample(split, 10).y, few.y)
  assert domains.subsample(split, 50) is split


# ---- MNIST, USPS and digits


@pytest.fixture(name='handwritten')
def _handwritten(tmp_path, monkeypatch):
  """Forty and twenty random rows of each in the original layouts, beside the embedded digits."""
  of = {'mnist': fakes.arrays(1, (28, 28, 1)), 'usps': fakes.arrays(2, (16, 16, 1))}
  sources = {
    'mnist': fakes.mnist('mnist', of['mnist'], tmp_path / 'mnist'),
    'usps': fakes.usps(of['usps'], tmp_path),
  }
  for name, source in sources.items():
    monkeypatch.setitem(SOURCES, name, source)
  return of, tmp_path


def test_usps_files_are_read_in_the_layout_of_libsvm(handwritten):
  of, folder = handwritten
  data = datasets.load('usps', str(folder))
  assert fakes.same(data.train, of['usps'], 'train') and fakes.same(data.test, of['usps'], 'test')
  (folder / 'usps.t.bz2').write_bytes(b'BZh9')
  with pytest.raises(ValueError, match='usps.t.bz2 is truncated or another file: MD5'):
    datasets.load('usps', str(folder))


def test_three_origins_are_three_clients(handwritten):
  of, folder = handwritten
  data = datasets.load('digits_domains', str(folder))
  assert data.domains == data.client_names == ('mnist', 'usps', 'digits')
  assert data.shape == (28, 28, 1)
  np.testing.assert_array_equal(np.bincount(data.clients), [40, 40, 1198])
  np.testing.assert_array_equal(data.train.x[:40], of['mnist']['train_x'])
  np.testing.assert_array_equal(data.train.x[40:80], domains.fit(of['usps']['train_x'], 28, 1))
  np.testing.assert_array_equal(data.train.y[80:], digits.read()[0].y)
  by_domain = data.test_by_domain()
  assert list(by_domain) == ['domain/mnist', 'domain/usps', 'domain/digits']
  assert fakes.same(by_domain['domain/mnist'], of['mnist'], 'test')
  assert [len(split.y) for split in by_domain.values()] == [20, 20, 599]
  part = partition('natural', data.train.y, 3, client_ids=data.clients)
  sizes = federated.from_partition(data, part).size
  np.testing.assert_array_equal(sizes, [40, 40, 1198])


def test_a_folder_of_arrays_serves_as_well(handwritten):
  of, folder = handwritten
  (folder / 'usps.bz2').unlink()
  (folder / 'usps.t.bz2').unlink()
  fakes.write_arrays(folder / 'usps', of['usps'])
  data = datasets.load('digits_domains', str(folder))
  np.testing.assert_array_equal(data.train.x[40:80], domains.fit(of['usps']['train_x'], 28, 1))


@pytest.mark.parametrize('gone', ['mnist', 'usps'])
def test_what_is_missing_is_named_in_one_line(handwritten, gone, monkeypatch):
  _, folder = handwritten
  monkeypatch.setitem(
    SOURCES,
    gone,
    SOURCES[gone]._replace(
      archives=tuple(
        a._replace(url='http://127.0.0.1:9/x', file=f'not-{a.file}') for a in SOURCES[gone].archives
      ),
      folders=(),
    ),
  )
  with pytest.raises(FileNotFoundError, match=f"^data.name='digits_domains': .*'{gone}'") as error:
    datasets.load('digits_domains', str(folder))
  assert '\n' not in str(error.value) and SOURCES[gone].archives[0].file in str(error.value)


# ---- Digit-Five


def digit_five(folder, rows=4):
  """Writes the six files; image i of a domain has the value 10 * domain + i.

  SVHN is an exception: its images are 32 pixels wide.

  Returns:
    The labels of training and test rows.
  """
  home = folder / 'Digit-Five'
  home.mkdir(parents=True)
  labels = {'train': np.arange(rows) * 3 % 10, 'test': np.arange(rows)[::-1] + 6}
  one_hot = {s: np.eye(10)[y] for s, y in labels.items()}
  full = lambda domain, *shape: np.stack(
    [np.full(shape, 10 * domain + i, np.uint8) for i in range(rows)]
  )
  save = lambda name, **content: scipy.io.savemat(home / name, content)
  hot = {f'label_{s}': v for s, v in one_hot.items()}
  save('mnist_data.mat', train_28=full(0, 28, 28, 1), test_28=full(0, 28, 28, 1), **hot)
  save('mnistm_with_label.mat', train=full(1, 28, 28, 3), test=full(1, 28, 28, 3), **hot)
  for split, y in labels.items():
    x = np.moveaxis(full(2, 32, 32, 3), 0, -1)
    save(f'svhn_{split}_32x32.mat', X=x, y=np.where(y == 0, 10, y)[:, None])
  x, columns = full(3, 32, 32, 3), {f'{s}_label': y[:, None] for s, y in labels.items()}
  save('syn_number.mat', train_data=x, test_data=x, **columns)
  cells = np.empty((2, 2), object)
  for i, y in enumerate(labels.values()):
    cells[i, 0], cells[i, 1] = full(4, 1, 28, 28) / 255, y[:, None]
  save('usps_28x28.mat', dataset=cells)
  return labels


@pytest.fixture(name='five')
def _five(tmp_path, monkeypatch):
  labels = digit_five(tmp_path)
  source = DOMAIN_SOURCES['digit_five']._replace(rows=((4, 4),) * 5)
  monkeypatch.setitem(DOMAIN_SOURCES, 'digit_five', source)
  return labels, tmp_path


def test_digit_five_from_its_published_layout(five):
  labels, folder = five
  data = datasets.load('digit_five', str(folder))
  assert data.domains == ('mnist', 'mnist_m', 'svhn', 'synth_digits', 'usps')
  assert data.shape == (32, 32, 3) and data.num_classes == 10
  np.testing.assert_array_equal(data.train.y, np.tile(labels['train'], 5))
  np.testing.assert_array_equal(data.test.y, np.tile(labels['test'], 5))
  values = (10 * np.arange(5)[:, None] + np.arange(4)).ravel()
  for split in (data.train, data.test):
    np.testing.assert_array_equal(
      split.x, np.broadcast_to(values.reshape(-1, 1, 1, 1), split.x.shape)
    )
  np.testing.assert_array_equal(data.clients, np.repeat(np.arange(5), 4))
  np.testing.assert_array_equal(data.test_domains, np.repeat(np.arange(5), 4))


@pytest.mark.parametrize(
  ('spoil', 'message'),
  [
    (lambda home: (home / 'syn_number.mat').unlink(), 'only a part of digit_five: syn_number.mat'),
    (lambda home: (home / 'usps_28x28.mat').write_bytes(b'x' * 200), 'read as a MATLAB file'),
    (
      lambda home: scipy.io.savemat(home / 'mnist_data.mat', {'train_32': np.zeros(3)}),
      'no variable train_28, label_train, only .*train_32',
    ),
    (
      lambda home: scipy.io.savemat(
        home / 'svhn_test_32x32.mat',
        {'X': np.zeros((32, 32, 3, 2), np.uint8), 'y': np.ones((2, 1))},
      ),
      r'is not digit_five: .*\(4, 2\)',
    ),
  ],
)
def test_a_damaged_layout_is_refused_in_one_line(five, spoil, message):
  _, folder = five
  spoil(folder / 'Digit-Five')
  with pytest.raises(ValueError, match=message) as error:
    datasets.load('digit_five', str(folder))
  assert '\n' not in str(error.value)


def test_records_of_tensorflow_datasets_hold_the_same_rows(five, capsys):
  _, folder = five
  direct = datasets.load('digit_five', str(folder))
  assert datasets.main(['digit_five', f'--dir={folder}']) == 0
  assert direct.checksum in capsys.readouterr().out
  for file in (folder / 'Digit-Five').iterdir():
    file.unlink()  # the records are enough
  again = datasets.load('digit_five', str(folder))
  assert again.checksum == direct.checksum
  np.testing.assert_array_equal(again.test_domains, direct.test_domains)
  (record,) = (folder / 'digit_five').glob('*/digit_five-test*')
  record.write_bytes(record.read_bytes()[:-40])
  with pytest.raises(ValueError, match='delete it, it is prepared anew'):
    datasets.load('digit_five', str(folder))


# ---- Office-Home


def jpeg(value: int, width: int, height: int) -> bytes:
  packed = io.BytesIO()
  Image.fromarray(np.full((height, width, 3), value, np.uint8)).save(packed, 'JPEG', quality=95)
  return packed.getvalue()


def office(folder, packed: bool):
  """Writes two classes with five images each in four domains.

  Image i of class c of domain d has the grey 50 d + 20 c + i.
  """
  files = {
    f'OfficeHomeDataset_10072016/{name}/{label}/{i:05d}.jpg': jpeg(50 * d + 20 * c + i, 70 + d, 80)
    for d, name in enumerate(office_home.DOMAINS.values())
    for c, label in enumerate(('Alarm_Clock', 'Webcam'))
    for i in range(5)
  }
  files['OfficeHomeDataset_10072016/imagelist.txt'] = b'x'
  files['OfficeHomeDataset_10072016/Art/Webcam/._1.jpg'] = b'x'
  if packed:
    with zipfile.ZipFile(folder / 'OfficeHomeDataset_10072016.zip', 'w') as archive:
      for name, content in files.items():
        archive.writestr(name, content)
  else:
    for name, content in files.items():
      (folder / name).parent.mkdir(parents=True, exist_ok=True)
      (folder / name).write_bytes(content)


@pytest.fixture(name='home')
def _home(monkeypatch):
  source = DOMAIN_SOURCES['office_home']._replace(rows=((8, 2),) * 4, num_classes=2)
  monkeypatch.setitem(DOMAIN_SOURCES, 'office_home', source)


@pytest.mark.parametrize('packed', [True, False])
def test_office_home_from_its_published_layout(home, tmp_path, packed):
  """A fifth of each class of each domain is tested on; the greys say of each row what it is."""
  office(tmp_path, packed)
  data = datasets.load('office_home', str(tmp_path))
  assert data.domains == ('art', 'clipart', 'product', 'real_world') and data.shape == (64, 64, 3)
  for split, numbers, each in ((data.train, data.clients, 4), (data.test, data.test_domains, 1)):
    grey = split.x.mean((1, 2, 3))
    base = 50 * numbers + 20 * split.y
    assert ((grey - base > -1) & (grey - base < 5)).all()
    np.testing.assert_array_equal(np.bincount(2 * numbers + split.y), [each] * 8)
  greys = np.concatenate([s.x.mean((1, 2, 3)).round() for s in (data.train, data.test)])
  assert len(set(greys)) == 40  # no image twice


def test_the_split_of_office_home_is_the_same_packed_or_not(home, tmp_path):
  checksums = []
  for packed in (True, False):
    folder = tmp_path / str(packed)
    folder.mkdir()
    office(folder, packed)
    checksums.append(datasets.load('office_home', str(folder)).checksum)
  assert checksums[0] == checksums[1]


def test_a_missing_domain_or_class_is_named(home, tmp_path):
  office(tmp_path, packed=False)
  root = tmp_path / 'OfficeHomeDataset_10072016'
  for file in (root / 'Real World' / 'Webcam').iterdir():
    file.unlink()
  with pytest.raises(ValueError, match='no images in Real World/Webcam; the published layout'):
    datasets.load('office_home', str(tmp_path))
  for file in (root / 'Product').glob('*/*'):
    file.unlink()
  with pytest.raises(ValueError, match='no images in Product; the published layout'):
    datasets.load('office_home', str(tmp_path))
  (root / 'Art' / 'Webcam' / '00000.jpg').write_bytes(b'GIF')
  office(tmp_path, packed=True)
  (tmp_path / 'OfficeHomeDataset_10072016.zip').write_bytes(b'PK')
  for file in sorted(root.rglob('*'), reverse=True):
    file.rmdir() if file.is_dir() else file.unlink()
  root.rmdir()
  with pytest.raises(ValueError, match='is no zip file, or a truncated one'):
    datasets.load('office_home', str(tmp_path))


@pytest.mark.parametrize('name', DOMAIN_SOURCES)
def test_what_is_not_there_says_what_to_fetch(name, tmp_path):
  with pytest.raises(FileNotFoundError, match=f"data.name='{name}' is not in .*: put ") as error:
    datasets.load(name, str(tmp_path))
  assert '\n' not in str(error.value)


def test_published_numbers_of_rows():
  """Office-Home has 15,588 images; a fifth of each domain, rounded."""
  rows = DOMAIN_SOURCES['office_home'].rows
  assert [sum(pair) for pair in rows] == [2427, 4365, 4439, 4357]
  assert [test for _, test in rows] == [round(sum(pair) / 5) for pair in rows]
  assert len(DOMAIN_SOURCES['digit_five'].rows) == 5
