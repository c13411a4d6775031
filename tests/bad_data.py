"""Bad data, models and folders, each with settings that use it and the line that refuses them.

`Bad.prepare` writes into a folder; the paths of the settings and of the line are relative to it.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedjax_syn.data.builders import prepared
from fedjax_syn.data.dataset import make
from fedjax_syn.data.split import Split
from tests.data import fakes


class Bad(NamedTuple):
  """One bad input."""

  what: str
  settings: dict  # dotted keys of the config, and '--workdir'
  line: str  # a part of the one line on stderr
  prepare: Callable[[Path], None] = lambda folder: None


VALUES = fakes.arrays(1)
X, Y = VALUES['train_x'], VALUES['train_y']
ARRAYS = {'data.name': 'arrays', 'data.dir': 'd', 'data.clients': 4, 'model.name': 'mlp'}
MNIST = {'data.name': 'mnist', 'data.dir': 'd', 'data.clients': 4, 'model.name': 'mlp'}


def arrays(**changes):
  """A folder d of arrays, some of them wrong."""
  return lambda folder: fakes.write_arrays(folder / 'd', VALUES | changes)


def clients(ids):
  return lambda folder: fakes.write_arrays(folder / 'd', VALUES, clients=np.asarray(ids))


def meta(text: str):
  def prepare(folder):
    arrays()(folder)
    (folder / 'd' / 'meta.json').write_text(text)

  return prepare


def damaged(file: str, damage: Callable[[bytes], bytes]):
  """A folder d of arrays, of which one file is damaged or, if that leaves nothing, gone."""

  def prepare(folder):
    arrays()(folder)
    path = folder / 'd' / file
    path.write_bytes(damage(path.read_bytes()))

  return prepare


def lacks(file: str):
  def prepare(folder):
    arrays()(folder)
    (folder / 'd' / file).unlink()

  return prepare


def nameless(folder):
  arrays()(folder)
  np.savez(folder / 'd' / 'test.npz', x=X, labels=Y)


def multi_hot(folder):
  labels = {split: np.eye(10, dtype=np.uint8)[VALUES[f'{split}_y']] for split in ('train', 'test')}
  arrays(train_y=labels['train'], test_y=labels['test'])(folder)


def mixed(folder):
  arrays(test_y=np.eye(10, dtype=np.uint8)[VALUES['test_y']])(folder)


def archives(*names: str):
  """Files with the names of MNIST's archives that hold something else."""

  def prepare(folder):
    (folder / 'd').mkdir()
    for name in names:
      (folder / 'd' / name).write_bytes(b'\x1f\x8b\x08 truncated')

  return prepare


MNIST_FILES = [
  f'{part}-{kind}-ubyte.gz' for part in ('train', 't10k') for kind in ('images-idx3', 'labels-idx1')
]


def other_cache(folder):
  """Returns a prepared MNIST whose cache holds other pixels than the prepared ones."""
  ready = folder / 'd' / 'mnist' / '1.0.0'
  ready.mkdir(parents=True)
  (ready / 'dataset_info.json').write_text(json.dumps({'fileFormat': 'array_record'}))
  (ready / 'metadata.json').write_text(json.dumps({'checksum': 'ab' * 32}))
  split = Split(np.zeros((4, 28, 28, 1), np.uint8), np.arange(4, dtype=np.int32))
  prepared.write_cache(ready / 'cache.npz', make('mnist', 'MNIST', split, split, 4, 'mnist'))


def file(name: str, text: str = 'something'):
  def prepare(folder):
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)

  return prepare


TINY = """
import numpy as np
from fedjax_syn.data.datasets import Dataset, Normalisation, Split
split = Split(np.zeros((4, 8, 8, 1), np.uint8), np.arange(4, dtype=np.int32))
unit = Normalisation('unit', (0.0,), (1.0,))
beyond = lambda: Dataset('beyond', 'B', split, split, None, 3, unit, 'none', None)
number = lambda: 3
unnamed = lambda: Dataset(
  'unnamed', 'U', split, split, None, 4, unit, 'none', None, class_names=('cat', 'dog')
)
"""

DIGITS = {'data.name': 'digits', 'data.partition': 'iid', 'data.clients': 4}

BAD_DATA = [
  Bad('pixels as floats', ARRAYS, 'd: pixels of train.npz are float64', arrays(train_x=X * 1.0)),
  Bad('NaN', ARRAYS, 'train.npz are float64 nan..nan', arrays(train_x=np.full(X.shape, np.nan))),
  Bad('no channels', ARRAYS, 'got uint8 [40, 6, 5]', arrays(train_x=X[..., 0])),
  Bad('no rows', ARRAYS, 'd/train.npz: x is empty', arrays(train_x=X[:0], train_y=Y[:0])),
  Bad('labels as floats', ARRAYS, 'y must be an integer type', arrays(train_y=Y.astype(float))),
  Bad('labels as truths', ARRAYS, 'got bool', arrays(train_y=Y > 4)),
  Bad('a label too few', ARRAYS, '40 rows in x, but 39 labels in y', arrays(train_y=Y[1:])),
  Bad('labels from -1', ARRAYS, 'got -1..8', arrays(train_y=Y.astype(int) - 1)),
  Bad('labels from 1', ARRAYS, 'd/train.npz: no row has label 0', arrays(train_y=Y + 1)),
  Bad('an empty class', ARRAYS, 'no row has label 3', arrays(train_y=np.where(Y == 3, 4, Y))),
  Bad(
    'a class in the test rows alone',
    ARRAYS,
    'd/train.npz: no row has label 10',
    arrays(test_y=np.full(20, 10)),
  ),
  Bad('labels of no named set', MNIST, 'labels must lie in 0..9', arrays(train_y=Y + 3)),
  Bad('test images of another shape', ARRAYS, 'but that of train.npz', arrays(test_x=X[:20, 1:])),
  Bad('test labels of another kind', ARRAYS, 'but test labels', mixed),
  Bad('pickled objects', ARRAYS, 'd/train.npz cannot be read', arrays(train_x=X.astype(object))),
  Bad('half a folder', ARRAYS, 'd/test.npz is missing', lacks('test.npz')),
  Bad('no folder', ARRAYS, 'd/train.npz is missing'),
  Bad('a file for a folder', ARRAYS, 'd/train.npz is missing', file('d')),
  Bad('a truncated file', ARRAYS, 'd/test.npz cannot', damaged('test.npz', lambda b: b[:300])),
  Bad('an empty file', ARRAYS, 'd/train.npz cannot', damaged('train.npz', lambda b: b'')),
  Bad('arrays of other names', ARRAYS, "it has no array 'y'", nameless),
  Bad('meta.json cut off', ARRAYS, 'd/meta.json is not JSON', meta('{"name": ')),
  Bad('meta.json unknown', ARRAYS, "normalisation='zscore'", meta('{"normalisation": "zscore"}')),
  Bad(
    'clients of too few rows', ARRAYS, 'clients must be integers or texts', clients(np.arange(39))
  ),
  Bad(
    'as many clients as there are not',
    ARRAYS | {'data.partition': 'natural'},
    'data.clients = 4, but the data set has 8 clients: use 8',
    clients(np.arange(40) % 8),
  ),
  Bad(
    'several labels by class',
    ARRAYS | {'data.partition': 'balanced_dirichlet'},
    "data.partition = 'balanced_dirichlet' needs one class per row",
    multi_hot,
  ),
  Bad(
    'several labels for a method of classes',
    ARRAYS | {'data.partition': 'iid', 'algorithm': 'feddm'},
    "algorithm='feddm': needs one class per sample",
    multi_hot,
  ),
  Bad('a truncated archive', MNIST, 'is truncated or another file', archives(*MNIST_FILES)),
  Bad(
    'a part of the archives', MNIST, 'labels-idx1-ubyte.gz is missing', archives(*MNIST_FILES[:1])
  ),
  Bad('a cache of other pixels', MNIST, 'is not the cache of the data set beside it', other_cache),
  Bad('a file for the data folder', MNIST, "data.name='mnist'", file('d')),
  Bad('no network', MNIST | {'data.name': 'cifar10'}, "data.name='cifar10' is not in data.dir='d'"),
  Bad('no FLAIR', MNIST | {'data.name': 'flair', 'data.partition': 'iid'}, 'd'),
  Bad('no domains', MNIST | {'data.name': 'office_home'}, 'd'),
  Bad(
    'a function that returns no data',
    DIGITS | {'data.name': 'tiny_data:number'},
    "data.name='tiny_data:number': got int instead of a",
    file('tiny_data.py', TINY),
  ),
  Bad(
    'a function with labels beyond',
    DIGITS | {'data.name': 'tiny_data:beyond'},
    'labels must lie in 0..2, got 0..3',
    file('tiny_data.py', TINY),
  ),
  Bad(
    'a function that names too few classes',
    DIGITS | {'data.name': 'tiny_data:unnamed'},
    '2 class_names for 4 classes',
    file('tiny_data.py', TINY),
  ),
  Bad('nobody owns rows', DIGITS | {'data.partition': 'natural'}, "data.partition = 'natural'"),
  Bad(
    'more than the rows',
    DIGITS | {'data.partition': 'dirichlet_min', 'data.min_size': 500},
    'takes more than the 1198 rows',
  ),
  Bad(
    'classes that do not come out even',
    DIGITS | {'data.partition': 'labels_per_client', 'data.labels': 3},
    'cannot be shared evenly',
  ),
  Bad(
    'more labels than classes',
    DIGITS | {'data.partition': 'labels_per_client', 'data.labels': 11},
    '1 to 10 classes would work',
  ),
  Bad('too little to hold out', DIGITS | {'data.validation': 1e-4}, 'holds out none of the 1198'),
  Bad(
    'constants for other channels',
    DIGITS | {'data.normalisation': 'cifar10'},
    'cifar10',
  ),
  Bad(
    'proxy images of another shape',
    DIGITS | {'algorithm': 'feddf', 'data.proxy': 'arrays', 'data.dir': 'd'},
    "data.proxy='arrays': its images are 6x5x1 and those of digits 8x8x1",
    arrays(),
  ),
  Bad(
    'the data themselves as proxy',
    DIGITS | {'algorithm': 'feddf', 'data.proxy': 'digits'},
    "data.proxy='digits' is the data set itself",
  ),
  Bad('a network too deep', DIGITS | {'model.name': 'convnet', 'model.depth': 6}, 'depth'),
  Bad('images too small', DIGITS | {'model.name': 'lenet'}, 'lenet'),
  Bad('tokens for images', DIGITS | {'model.name': 'text'}, "'text': takes tokens"),
  Bad('more devices than there are', DIGITS | {'layout.devices': 99}, 'layout.devices=99'),
  Bad('a file for the run', {'--workdir': 'W'}, '--workdir=W', file('W')),
  Bad('a file above the run', {'--workdir': 'W/run'}, '--workdir=W/run', file('W')),
  Bad('a name no folder can have', {'--workdir': 'W' * 300}, 'WW cannot be created (File name too'),
  Bad(
    'a folder of something else',
    {'--workdir': 'W'},
    'W: holds metrics.jsonl',
    file('W/metrics.jsonl'),
  ),
  Bad(
    'a config.json cut off', {'--workdir': 'W'}, 'W/config.json', file('W/config.json', '{"conf')
  ),
  Bad(
    'a config.json of something else',
    {'--workdir': 'W'},
    'W/config.json',
    file('W/config.json', '[]'),
  ),
  Bad(
    'a summary cut off',
    {'--workdir': 'W'},
    'holds summary.json but no config.json',
    file('W/summary.json', '{"test'),
  ),
  Bad('nothing to begin from', {'start_from': 'gone/5'}, "start_from='gone/5': no such folder"),
  Bad(
    'nobody of that name',
    {'start_from': '~no_such_user/5'},
    'start_from=~no_such_user/5: there is no such home folder',
  ),
  Bad(
    'data of nobody',
    ARRAYS | {'data.dir': '~no_such_user/d'},
    'data.dir=~no_such_user/d: there is no such home folder',
  ),
  Bad(
    'no checkpoint to begin from',
    DIGITS | {'start_from': 'gone/5'},
    'start_from=gone/5: no checkpoints here',
    file('gone/5/readme'),
  ),
]
