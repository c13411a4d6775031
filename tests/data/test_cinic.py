"""CINIC-10: parsed as a stream, refused, prepared, downloaded."""

import io
import tarfile
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from fedjax_syn.data import datasets
from fedjax_syn.data.builders import archive_formats, archives, image_records, prepared
from fedjax_syn.data.builders.sources import SOURCES
from fedjax_syn.data.split import Split
from tests.data import fakes

BLACK = fakes.png(np.zeros((32, 32, 3), np.uint8))


def _files(**other: bytes) -> dict[str, bytes]:
  """Returns one black image per class and split, and the given ones.

  A name `train__cat__x` means train/cat/x.png.
  """
  names = [
    f'{split}/{c}/0' for split in ('train', 'valid', 'test') for c in archive_formats.CINIC_CLASSES
  ]
  return {f'{name}.png': BLACK for name in names} | {
    f'{name.replace("__", "/")}.png': content for name, content in other.items()
  }


def _parse(folder, files):
  path = folder / 'CINIC-10.tar.gz'
  path.write_bytes(fakes.tar(files))
  return archive_formats.parse_cinic({path.name: path})


def test_by_hand(tmp_path):
  """A cat (3) whose pixel in row 1, column 2 is (1, 2, 3), and a grey truck (9) of 100."""
  cat = np.zeros((32, 32, 3), np.uint8)
  cat[1, 2] = 1, 2, 3
  grey = fakes.png(np.full((32, 32), 100, np.uint8))
  (x, y), (test_x, test_y) = _parse(
    tmp_path, _files(train__cat__n02123394_123=fakes.png(cat), test__truck__n1_2=grey)
  )
  assert x.shape == test_x.shape == (11, 32, 32, 3) and x.dtype == np.uint8
  assert y.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 3]
  assert test_y.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9]
  assert x[10, 1, 2].tolist() == [1, 2, 3] and x.sum() == 6  # nothing else is not black
  assert (test_x[10] == 100).all() and not test_x[:10].any()


def test_only_images_of_train_and_test_are_read(tmp_path):
  """Whatever lies beside them, or above them, as packers write it; in the archive's order."""
  junk = {
    './train/cat/._0.png': b'x',
    './train/cat/notes.txt': b'x',
    './train/lion/0.png': b'x',
    './valid/cat/1.png': b'x',
    './imagenet-contributors.csv': b'x',
  }
  files = junk | {f'./{name}': content for name, content in reversed(_files().items())}
  (_, y), (_, test_y) = _parse(tmp_path, files)
  assert y.tolist() == test_y.tolist() == [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]


@pytest.mark.parametrize(
  'gone, message',
  [
    (
      ('test/',),
      r'no PNG files in test; .* train/, valid/ and test/, each with airplane, .* truck$',
    ),
    (('train/cat/',), 'no PNG files in train/cat; the published'),
    (('test/ship/', 'test/horse/'), 'no PNG files in test/horse, test/ship; the published'),
  ],
)
def test_missing_folders_are_named(tmp_path, gone, message):
  files = {name: content for name, content in _files().items() if not name.startswith(gone)}
  with pytest.raises(ValueError, match=f'CINIC-10.tar.gz has {message}') as error:
    _parse(tmp_path, files)
  assert '\n' not in str(error.value)


@pytest.mark.parametrize(
  'content, message',
  [
    (fakes.png(np.zeros((31, 32, 3), np.uint8)), r'has 32 x 31 pixels, expected 32 x 32'),
    (BLACK[:60], 'is no PNG file that can be read'),
    (b'GIF89a', 'is no PNG file that can be read'),
    (b'', 'is no PNG file that can be read'),
  ],
)
def test_another_image_is_refused(tmp_path, content, message):
  with pytest.raises(ValueError, match=f'train/cat/odd.png {message}'):
    _parse(tmp_path, _files(train__cat__odd=content))


def test_memory_does_not_grow_with_what_is_skipped(tmp_path):
  """16 MiB and 10,000 members that are not used; of the members, 400 bytes each would be kept."""
  path = tmp_path / 'CINIC-10.tar.gz'
  with tarfile.open(path, 'w:gz', compresslevel=1) as tar:
    for name, content in _files().items():
      info = tarfile.TarInfo(name)
      info.size = len(content)
      tar.addfile(info, io.BytesIO(content))
    for i in range(10000):
      tar.addfile(tarfile.TarInfo(f'valid/cat/{i}.png'))
    info = tarfile.TarInfo('valid/large.png')
    info.size = 1 << 24
    tar.addfile(info, io.BytesIO(np.random.default_rng(0).bytes(info.size)))
  archive_formats.parse_cinic(
    {path.name: path}
  )  # what is imported and cached at first is not counted
  tracemalloc.start()
  archive_formats.parse_cinic({path.name: path})
  _, peak = tracemalloc.get_traced_memory()
  tracemalloc.stop()
  assert peak < 4 << 20  # half of it is a block of headers, which compress well, unpacked


# ---- as a data set


@pytest.fixture(name='made')
def _made(tmp_path, monkeypatch):
  """The data set's source, its 40 + 20 images, and the folder with its archive."""
  values = fakes.arrays(3, (32, 32, 3))
  source = fakes.cinic('cinic10', values, tmp_path)
  monkeypatch.setitem(SOURCES, 'cinic10', source)
  return source, values, tmp_path


def test_what_is_published():
  source = SOURCES['cinic10']
  assert source.rows == (90000, 90000) and source.shape == (32, 32, 3) and source.num_classes == 10
  (archive,) = source.archives
  assert archive.url == 'https://datashare.ed.ac.uk/bitstream/handle/10283/3192/CINIC-10.tar.gz'


def test_command_prepares_and_the_records_are_enough(made, capsys):
  source, values, folder = made
  direct = datasets.load('cinic10', str(folder))
  assert fakes.same(direct.train, values, 'train') and fakes.same(direct.test, values, 'test')
  assert (direct.title, direct.normalisation.name) == ('CINIC-10', 'cinic10')
  assert datasets.main(['cinic10', f'--dir={folder}']) == 0
  line = f'CINIC-10: 40 training and 20 test rows of 32x32x3, SHA-256 {direct.checksum}\n'
  assert capsys.readouterr().out.endswith(line)
  (folder / source.archives[0].file).unlink()
  assert datasets.load('cinic10', str(folder)).checksum == direct.checksum
  (folder / 'cinic10' / '1.0.0' / prepared.CACHE).unlink()
  assert datasets.load('cinic10', str(folder)).checksum == direct.checksum


def test_records_are_read_in_parts(made, monkeypatch):
  """Of 40 and 20 rows: every part full, the last one not, one part, less than a part."""
  source, values, folder = made
  written = image_records.write(archives.read(source, prepared.locate(source, folder)), folder)
  for at_once in (1, 7, 40, 41):
    monkeypatch.setattr(image_records, 'READ_ROWS', at_once)
    train, test = (Split(*columns) for columns in image_records.read(written))
    assert fakes.same(train, values, 'train') and fakes.same(test, values, 'test')


@pytest.mark.parametrize('damage', [lambda b: b[:-20], lambda b: b[:10], lambda b: b'', None])
def test_damaged_archive_is_refused(made, capsys, damage):
  """Truncated, or packed by somebody else."""
  source, _, folder = made
  path = folder / source.archives[0].file
  path.write_bytes(damage(path.read_bytes()) if damage else fakes.tar(_files()))
  assert datasets.main(['cinic10', f'--dir={folder}']) == 2
  (line,) = capsys.readouterr().err.splitlines()
  expected = source.archives[0].known_hash[4:20]
  assert line.startswith(f'{path} is truncated or another file: MD5 ')
  assert line.endswith(f'..., expected {expected}... of {source.archives[0].url}')


def test_a_missing_class_is_one_line(made, monkeypatch, capsys):
  source, values, folder = made
  other = values | {'train_y': np.where(values['train_y'] == 3, 5, values['train_y'])}
  monkeypatch.setitem(SOURCES, 'cinic10', fakes.cinic('cinic10', other, folder))
  assert datasets.main(['cinic10', f'--dir={folder}']) == 2
  (line,) = capsys.readouterr().err.splitlines()
  start = f'{folder}: the archives of cinic10 cannot be read: CINIC-10.tar.gz has no PNG files in '
  assert line.startswith(f'{start}train/cat; ')


def test_nowhere_and_no_network(made, capsys):
  source, _, folder = made
  archive = source.archives[0]._replace(url='http://127.0.0.1:9/CINIC-10.tar.gz')
  with pytest.MonkeyPatch.context() as patch:
    patch.setitem(SOURCES, 'cinic10', source._replace(archives=(archive,)))
    assert datasets.main(['cinic10', f'--dir={folder / "empty"}']) == 2
  (line,) = capsys.readouterr().err.splitlines()
  assert "data.name='cinic10' is not in data.dir=" in line and 'put CINIC-10.tar.gz there' in line


def test_large_archives_are_never_read_whole(made, monkeypatch):
  """Neither to tell data sets apart (nobody shares the file's name) nor for its checksum."""
  source, values, folder = made

  def refuse(path):
    raise AssertionError(f'{path} was read into memory')

  monkeypatch.setattr(Path, 'read_bytes', refuse)
  data = archives.read(source, prepared.locate(source, folder))
  assert fakes.same(data.train, values, 'train')


def test_a_streamed_archive_may_be_bound_by_its_sha256(made):
  source, _, folder = made
  (path,) = prepared.locate(source, folder).values()
  right = source.archives[0]._replace(known_hash=f'sha256:{fakes.sha256(path.read_bytes())}')
  assert archives.verify(right, path) == path
  with pytest.raises(ValueError, match='another file: SHA-256 .*, expected 0123456789abcdef'):
    archives.verify(right._replace(known_hash='sha256:' + '0123456789abcdef' * 4), path)


@pytest.mark.parametrize('shift, accepted', [(0.0015, True), (-0.0015, True), (0.0025, False)])
def test_mean_pixel(made, shift, accepted):
  """Within 0.002: a random third's mean differs by 0.0005, CIFAR-10's by 0.0125."""
  source, _, folder = made
  moved = source._replace(mean=tuple(m + shift for m in source.mean))
  paths = prepared.locate(source, folder)
  if accepted:
    assert len(archives.read(moved, paths).test.y) == 20
  else:
    with pytest.raises(ValueError, match='is not cinic10: the mean training pixel is'):
      archives.read(moved, paths)
