"""Files of published packages: found in archives and as installed, checked, and never imported."""

import hashlib
import io
import sys
import tarfile
import zipfile

import numpy as np
import pytest

from fedjax_syn.data.builders import packages
from fedjax_syn.data.builders.packages import PackageFile

CONTENT = b'a small file'
PLAIN = PackageFile('some_package', 'data/file.txt', hashlib.sha256(CONTENT).hexdigest())
PACKED = PLAIN._replace(path='resources.tar.gz', member='csv/file.txt')


def tar(name: str, content: bytes) -> bytes:
  """A gzip tar archive of one file."""
  out = io.BytesIO()
  with tarfile.open(fileobj=out, mode='w:gz') as archive:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    archive.addfile(info, io.BytesIO(content))
  return out.getvalue()


def wheel(path, name: str, content: bytes) -> None:
  """A wheel of one file."""
  with zipfile.ZipFile(path, 'w') as archive:
    archive.writestr(name, content)


def test_a_wheel(tmp_path):
  wheel(tmp_path / 'some_package-1.0-py3-none-any.whl', 'some_package/data/file.txt', CONTENT)
  assert packages.read('it', PLAIN, tmp_path) == CONTENT


def test_a_source_archive_with_an_archive_in_it(tmp_path):
  inner = tar('./resources/csv/file.txt', CONTENT)
  outer = tar('some_package-1.0/some_package/resources.tar.gz', inner)
  (tmp_path / 'it').mkdir()
  (tmp_path / 'it' / 'some_package-1.0.tar.gz').write_bytes(outer)
  assert packages.read('it', PACKED, tmp_path) == CONTENT


def test_an_installed_package_is_not_imported(tmp_path, monkeypatch):
  folder = tmp_path / 'site' / 'some_package'
  (folder / 'data').mkdir(parents=True)
  (folder / '__init__.py').write_text('raise SystemExit("imported")')
  (folder / 'data' / 'file.txt').write_bytes(CONTENT)
  (folder / 'resources.tar.gz').write_bytes(tar('csv/file.txt', CONTENT))
  monkeypatch.syspath_prepend(folder.parent)
  assert packages.read('it', PLAIN, tmp_path) == packages.read('it', PACKED, tmp_path) == CONTENT
  assert 'some_package' not in sys.modules


def test_a_missing_package_names_the_commands(tmp_path):
  with pytest.raises(FileNotFoundError, match='pip install some_package') as error:
    packages.read('it', PLAIN, tmp_path)
  assert 'pip download --no-deps --dest=' in str(error.value) and '\n' not in str(error.value)


@pytest.mark.parametrize(
  ('name', 'content', 'why'),
  [
    ('some_package-1-any.whl', b'no zip', 'cannot be read'),
    ('some_package-1.tar.gz', b'no tar', 'cannot be read'),
    ('some_package-1.tar.gz', tar('some_package-1/setup.py', b''), 'has no file'),
    (
      'some_package-1.tar.gz',
      tar('a/some_package/data/file.txt', b'another'),
      'is another file than the one that it is made of',
    ),
  ],
)
def test_other_archives_are_refused_in_a_line(tmp_path, name, content, why):
  (tmp_path / name).write_bytes(content)
  with pytest.raises(ValueError, match=why) as error:
    packages.read('it', PLAIN, tmp_path)
  assert name in str(error.value) and '\n' not in str(error.value)


def test_large_members_are_not_unpacked(tmp_path, monkeypatch):
  monkeypatch.setattr(packages.bounded, 'UNPACKED', len(CONTENT) - 1)
  (tmp_path / 'some_package-1.tar.gz').write_bytes(tar('a/some_package/data/file.txt', CONTENT))
  with pytest.raises(ValueError, match='has 12 bytes, more than the 11 that are read'):
    packages.read('it', PLAIN, tmp_path)


def test_columns_by_hand():
  table = packages.columns(b'"","a","b"\n"1","x",2\n"2","y",3\n', ('b', 'a'), 'it')
  assert {name: column.tolist() for name, column in table.items()} == {
    '': ['1', '2'],
    'b': ['2', '3'],
    'a': ['x', 'y'],
  }


@pytest.mark.parametrize(
  ('content', 'why'),
  [
    (b'', "has no column ''"),
    (b'"","a"\n1,2\n', "has no column 'b', only , a"),
    (b'"","b"\n', 'has no rows'),
    (b'"","b"\n1,2\n2\n', 'line 3 has not 2 values'),
  ],
)
def test_other_tables_are_refused_in_a_line(content, why):
  with pytest.raises(ValueError, match=why):
    packages.columns(content, ('b',), 'it')


def test_numbers_from_one_on():
  assert packages.numbers(np.array(['2', '1', '2']), 'it').tolist() == [1, 0, 1]
  with pytest.raises(ValueError, match='it: clients are not numbered 1 to 2'):
    packages.numbers(np.array(['1', '3']), 'it')


def test_every_client_gives_its_share():
  """Of 5 and 10 rows, a fifth is 1 and 2; a client's only row stays."""
  clients = np.repeat([0, 1, 2], [5, 10, 1])
  table = {packages.ROW: np.arange(16).astype(str)}
  chosen = packages.share_of_clients(table, clients, 0.2)
  assert np.bincount(clients[chosen], minlength=3).tolist() == [1, 2, 0]
  digest = lambda row: hashlib.sha256(str(row).encode()).digest()
  assert np.flatnonzero(chosen)[0] == min(range(5), key=digest)
