"""Records and caches of named data sets, and the traps of tensorflow-datasets."""

import configparser
import dataclasses
import functools
import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from fedjax_syn.data import datasets
from fedjax_syn.data.builders import archives, image_records, prepared
from fedjax_syn.data.builders.sources import SOURCES
from fedjax_syn.data.split import Split
from tests.data import fakes

ROOT = Path(__file__).parents[2]


@pytest.fixture(name='served')
def _served(tmp_path, monkeypatch):
  """A folder, and the address under which a local server gives its files."""

  class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
      pass

  folder = tmp_path / 'served'
  folder.mkdir()
  handler = functools.partial(Quiet, directory=str(folder))
  server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler)
  thread = threading.Thread(target=server.serve_forever, daemon=True)
  thread.start()
  monkeypatch.setenv('NO_PROXY', '127.0.0.1')
  monkeypatch.setenv('no_proxy', '127.0.0.1')
  yield folder, f'http://127.0.0.1:{server.server_port}/'
  server.shutdown()
  thread.join()
  server.server_close()


def _register(monkeypatch, *sources):
  for source in sources:
    monkeypatch.setitem(SOURCES, source.name, source)


def test_checksums_are_the_registered_ones():
  """Checksums are those of tensorflow-datasets.

  It does not have CINIC-10 and USPS, so those have their MD5 alone.
  """
  from tensorflow_datasets.core.download import checksums

  registered = checksums.get_all_url_infos()
  published = {
    'CINIC-10.tar.gz': 'md5:6ee4d0c996905fe93221de577967a372',
    'usps.bz2': 'md5:ec16c51db3855ca6c91edd34d0e9b197',
    'usps.t.bz2': 'md5:8ea070ee2aca1ac39742fdd1ef5ed118',
  }
  for source in SOURCES.values():
    for archive in source.archives:
      if source.name in ('cinic10', 'usps'):
        assert archive.url not in registered
        assert archive.known_hash == published[archive.file]
        continue
      checksum = registered[archive.url].checksum
      assert archive.known_hash == f'sha256:{checksum}', archive.url


@pytest.fixture(name='records', scope='module')
def _records(tmp_path_factory):
  """Two data sets with the same file names, prepared into one folder: source, values, folder."""
  folder = tmp_path_factory.mktemp('records')
  made = {}
  for seed, name in enumerate(('fashion_mnist', 'mnist')):
    values = fakes.arrays(seed)
    source = fakes.mnist(name, values, folder / name)
    prepared.prepare(source, folder)
    made[name] = (source, values, folder / name / '1.0.0')
  return made


@pytest.fixture(name='copy')
def _copy(records, tmp_path):
  """A copy of the records of the fake MNIST, without the cache: source, values, folder."""
  source, values, folder = records['mnist']
  copied = tmp_path / 'mnist' / '1.0.0'
  shutil.copytree(folder, copied, ignore=shutil.ignore_patterns(prepared.CACHE))
  return source, values, copied


@pytest.mark.parametrize('name', ['fashion_mnist', 'mnist'])
def test_records_keep_rows_and_order(records, name):
  """tensorflow-datasets shuffles by default: then archives and records gave different clients."""
  source, values, folder = records[name]
  train, test = (Split(*columns) for columns in image_records.read(folder))
  assert fakes.same(train, values, 'train') and fakes.same(test, values, 'test')
  stored = json.loads((folder / 'metadata.json').read_text())['checksum']
  assert stored == prepared.read(source, folder.parents[1]).checksum
  assert json.loads((folder / 'dataset_info.json').read_text())['fileFormat'] == 'array_record'


def test_cifar_records(tmp_path):
  values = fakes.arrays(3, (32, 32, 3), 20)
  source = fakes.cifar('cifar100', values, tmp_path / 'cifar100')
  assert fakes.same(prepared.prepare(source, tmp_path).train, values, 'train')


def test_trap_extraction_cache_keyed_on_file_name(served, tmp_path, monkeypatch):
  """`mnist` downloaded after `fashion_mnist` into one folder once held Fashion-MNIST's pixels."""
  folder, address = served
  data_dir = tmp_path / 'data'
  for seed, name in enumerate(('fashion_mnist', 'mnist')):
    values = fakes.arrays(seed)
    source = fakes.mnist(name, values, folder / name, f'{address}{name}/')
    _register(monkeypatch, source)
    data = prepared.read(source, data_dir)
    assert fakes.same(data.train, values, 'train') and fakes.same(data.test, values, 'test')
  assert prepared.find(source, data_dir) == data_dir / 'mnist' / '1.0.0'
  shutil.rmtree(folder)  # nothing is downloaded twice
  assert fakes.same(prepared.read(source, data_dir).train, values, 'train')


def test_download_with_a_wrong_checksum_is_refused(served, tmp_path, monkeypatch):
  folder, address = served
  source = fakes.mnist('mnist', fakes.arrays(0), folder, address)
  path = folder / 'train-images-idx3-ubyte.gz'
  path.write_bytes(path.read_bytes()[:-1] + b'?')
  _register(monkeypatch, source)
  with pytest.raises(
    ValueError, match='not what is published: .*SHA256 hash of downloaded'
  ) as error:
    prepared.read(source, tmp_path / 'data')
  assert '\n' not in str(error.value)
  assert prepared.find(source, tmp_path / 'data') is None


def test_download_without_a_registered_checksum_is_bound_by_its_md5(served, tmp_path, monkeypatch):
  """What is refused is not taken again: the next try downloads anew."""
  folder, address = served
  values = fakes.arrays(0, (32, 32, 3))
  source = fakes.cinic('cinic10', values, folder, address)
  path = folder / source.archives[0].file
  content = path.read_bytes()
  path.write_bytes(content[:-1] + b'?')
  _register(monkeypatch, source)
  with pytest.raises(ValueError, match='not what is published: .*MD5 hash of downloaded') as error:
    prepared.read(source, tmp_path / 'data')
  assert '\n' not in str(error.value) and prepared.find(source, tmp_path / 'data') is None
  path.write_bytes(content)
  assert fakes.same(prepared.read(source, tmp_path / 'data').train, values, 'train')


def test_missing_file_on_the_server(served, tmp_path, monkeypatch):
  folder, address = served
  source = fakes.mnist('mnist', fakes.arrays(0), folder, address)
  (folder / 'train-labels-idx1-ubyte.gz').unlink()
  _register(monkeypatch, source)
  with pytest.raises(FileNotFoundError, match='cannot be downloaded .*404'):
    prepared.read(source, tmp_path / 'data')


def test_without_a_network_one_line_at_once(tmp_path, monkeypatch):
  """tensorflow-datasets alone retries for minutes; port 9 of this machine answers nothing."""
  source = fakes.mnist('mnist', fakes.arrays(0), tmp_path / 'x', 'http://127.0.0.1:9/')
  _register(monkeypatch, source)
  data_dir, begin = tmp_path / 'data', time.monotonic()
  with pytest.raises(FileNotFoundError) as error:
    prepared.read(source, data_dir)
  message = str(error.value)
  assert time.monotonic() - begin < 60
  assert f'data.dir={str(data_dir)!r}' in message and '\n' not in message
  assert f'`python -m fedjax_syn.data.datasets mnist --dir={data_dir}`' in message
  assert not data_dir.exists()  # a refusal leaves nothing behind


def test_trap_stock_builder_stays_registered(tmp_path):
  """An own builder of a stock name must not take its place, nor be refused because of it."""
  import tensorflow_datasets as tfds

  mnist = dataclasses.replace(datasets.load('digits'), name='mnist')
  assert image_records.write(mnist, tmp_path) == tmp_path / 'mnist' / '1.0.0'
  assert tfds.builder_cls('mnist').__module__ == 'tensorflow_datasets.image_classification.mnist'


def test_trap_other_formats_are_not_read(records, copy):
  """Only `array_record` is read: stock `tfrecord` folders need TensorFlow, `parquet` loses rows."""
  source, _, folder = copy
  assert prepared.find(source, folder.parents[1]) == folder
  stock = folder.parent / '3.0.1'
  shutil.copytree(folder, stock)
  info = json.loads((stock / 'dataset_info.json').read_text())
  for kind in ('tfrecord', 'parquet'):
    (stock / 'dataset_info.json').write_text(json.dumps(info | {'fileFormat': kind}))
    assert prepared.find(source, folder.parents[1]) == folder
    shutil.move(folder, folder.parents[1] / 'aside')
    assert prepared.find(source, folder.parents[1]) is None
    shutil.move(folder.parents[1] / 'aside', folder)


def _records_of(values, tmp_path, folder):
  """Replaces the records in a folder, but not the checksum stored there, by those of `values`."""
  other = fakes.mnist('mnist', values, tmp_path / 'other')
  prepared.prepare(other, tmp_path / 'other')
  for path in (tmp_path / 'other' / 'mnist' / '1.0.0').iterdir():
    if path.name not in ('metadata.json', prepared.CACHE):
      shutil.copy(path, folder)


def test_trap_lost_rows_are_refused(copy, tmp_path):
  source, values, folder = copy
  _records_of(
    values | {'train_x': values['train_x'][:5], 'train_y': values['train_y'][:5]}, tmp_path, folder
  )
  with pytest.raises(ValueError, match=r'is not mnist: 5 \+ 20 images .*expected 40 \+ 20'):
    prepared.read_prepared(source, folder)
  assert not (folder / prepared.CACHE).exists()


def test_one_changed_pixel_is_refused(copy, tmp_path):
  source, values, folder = copy
  x = values['train_x'].copy()
  x[7, 0, 0, 0] ^= 1  # changes the mean by 1 / (255 * 1200): the statistics do not see it
  _records_of(values | {'train_x': x}, tmp_path, folder)
  with pytest.raises(ValueError, match='has changed since it was prepared'):
    prepared.read_prepared(source, folder)


def test_records_of_another_set_are_refused(records, copy):
  source, _, folder = copy
  shutil.rmtree(folder)
  shutil.copytree(records['fashion_mnist'][2], folder)
  for _ in ('cache', 'records'):
    with pytest.raises(ValueError, match='is not mnist: the mean training pixel is'):
      prepared.read_prepared(source, folder)
    (folder / prepared.CACHE).unlink(missing_ok=True)


def test_truncated_records_are_refused(copy):
  source, _, folder = copy
  record = next(folder.glob('mnist-train.array_record*'))
  record.write_bytes(record.read_bytes()[: record.stat().st_size // 3])
  with pytest.raises(ValueError, match='cannot be read') as error:
    prepared.read_prepared(source, folder)
  assert '\n' not in str(error.value) and str(folder) in str(error.value)


def test_cache_is_written_and_enough(copy):
  source, values, folder = copy
  prepared.read_prepared(source, folder)
  for record in folder.glob('*.array_record*'):
    record.unlink()
  data = prepared.read(source, folder.parents[1])
  assert fakes.same(data.train, values, 'train') and fakes.same(data.test, values, 'test')


def test_cache_that_cannot_be_written_is_done_without(copy, monkeypatch):
  source, values, folder = copy

  def refuse(*args):
    raise PermissionError('read-only')

  monkeypatch.setattr(prepared, 'write_cache', refuse)
  assert fakes.same(prepared.read_prepared(source, folder).train, values, 'train')


@pytest.mark.parametrize('wrong', ['fashion_mnist', 'pixel', 'truncated', 'not numpy'])
def test_wrong_cache_is_refused(records, copy, wrong):
  source, _, folder = copy
  cache = folder / prepared.CACHE
  prepared.read_prepared(source, folder)
  if wrong == 'fashion_mnist':
    shutil.copy(records[wrong][2] / prepared.CACHE, cache)
  elif wrong == 'pixel':
    with np.load(cache) as file:
      content = dict(file)
    content['test_x'] ^= 1
    np.savez(cache, **content)
  else:
    cache.write_bytes(cache.read_bytes()[:500] if wrong == 'truncated' else b'hello')
  with pytest.raises(ValueError) as error:
    prepared.read(source, folder.parents[1])
  assert str(cache) in str(error.value) and '\n' not in str(error.value)


def test_records_without_a_stored_checksum(copy):
  """A folder that the stock builders prepared: known by its statistics, its cache by itself."""
  source, values, folder = copy
  (folder / 'metadata.json').unlink()
  for _ in ('records', 'cache'):
    assert fakes.same(prepared.read_prepared(source, folder).train, values, 'train')
  assert (folder / prepared.CACHE).exists()


def test_trap_undeclared_dependencies_are_declared():
  """tensorflow-datasets imports importlib_resources and pillow, but requires neither."""
  setup = configparser.ConfigParser()
  setup.read(ROOT / 'setup.cfg')
  required = {line.split()[0] for line in setup['options']['install_requires'].split('\n') if line}
  assert {'tensorflow-datasets', 'importlib_resources', 'pillow'} <= required


@pytest.mark.parametrize('missing', ['tensorflow_datasets', 'importlib_resources'])
def test_trap_missing_dependency_is_one_line(copy, monkeypatch, missing):
  source, _, folder = copy
  monkeypatch.setitem(sys.modules, missing, None)
  with pytest.raises(
    ValueError, match=f"'mnist' as records needs .*importlib_resources.*{missing}"
  ):
    prepared.read_prepared(source, folder)


def test_tensorflow_is_never_imported(tmp_path):
  """A TensorFlow that is installed stays untouched while a set is prepared and read back."""
  package = tmp_path / 'path' / 'tensorflow'
  package.mkdir(parents=True)
  touched = tmp_path / 'touched'
  (package / '__init__.py').write_text(f'open({str(touched)!r}, "w").close()')
  script = f"""
from pathlib import Path
from tests.data import fakes
from fedjax_syn.data.builders import prepared
folder = Path({str(tmp_path)!r})
source = fakes.mnist('mnist', fakes.arrays(0), folder / 'mnist')
prepared.prepare(source, folder)
"""
  environment = os.environ | {'PYTHONPATH': f'{tmp_path / "path"}{os.pathsep}{ROOT}'}
  done = subprocess.run(
    [sys.executable, '-c', script], env=environment, cwd=tmp_path, capture_output=True, text=True
  )
  assert done.returncode == 0, done.stderr
  assert not touched.exists() and (tmp_path / 'mnist' / '1.0.0' / prepared.CACHE).exists()


@pytest.mark.slow
def test_the_real_fashion_mnist(tmp_path):
  """Needs Debian's package dataset-fashion-mnist: its archives and their records are the same."""
  source = SOURCES['fashion_mnist']
  direct = archives.read(source, prepared.locate(source, tmp_path))
  assert prepared.prepare(source, tmp_path).checksum == direct.checksum
