"""LEAF's JSON: FEMNIST's pixels, Shakespeare's characters, and one line for what is neither."""

import json

import numpy as np
import pytest

import fedjax_syn as fs
from fedjax_syn.config import check
from fedjax_syn.data import datasets
from fedjax_syn.data.builders import leaf
from tests.data import fakes


def write(folder, part, of_users, file='a.json', **changed):
  """Writes one file; `of_users` is (x, y) by name."""
  path = folder / part / file
  path.parent.mkdir(parents=True, exist_ok=True)
  content = {
    'users': list(of_users),
    'num_samples': [len(y) for _, y in of_users.values()],
    'user_data': {name: {'x': x, 'y': y} for name, (x, y) in of_users.items()},
  }
  path.write_text(json.dumps(content | changed))


def pixels(rng, rows):
  return rng.integers(0, 256, (rows, 784), np.uint8)


@pytest.fixture
def femnist(tmp_path):
  """Two files of training users; one test user has no training rows."""
  rng = np.random.default_rng(0)
  rows = {name: pixels(rng, 3) for name in ('zoe', 'ann', 'bob', 'eve')}
  labels = {'zoe': [0, 1, 2], 'ann': [2, 1, 0], 'bob': [0, 0, 1], 'eve': [1, 1, 2]}
  of = lambda name: ((rows[name] / 255).tolist(), labels[name])
  write(tmp_path, 'train', {'zoe': of('zoe'), 'ann': of('ann')}, 'all_data_0.json')
  write(tmp_path, 'train', {'bob': of('bob')}, 'all_data_1.json')
  write(tmp_path, 'test', {'eve': of('eve'), 'ann': of('ann')})
  return tmp_path, rows, labels


def test_femnist(femnist):
  folder, rows, labels = femnist
  data = datasets.load(f'leaf:{folder}')
  order = 'zoe', 'ann', 'bob'  # of the files
  assert np.array_equal(data.train.x.reshape(9, 784), np.concatenate([rows[n] for n in order]))
  assert data.train.y.tolist() == [label for name in order for label in labels[name]]
  assert data.shape == (28, 28, 1) and data.train.x.dtype == np.uint8 and data.num_classes == 3
  assert data.client_names == ('ann', 'bob', 'zoe')
  assert data.clients.tolist() == [2] * 3 + [0] * 3 + [1] * 3
  assert data.test_clients.tolist() == [-1] * 3 + [0] * 3
  assert '3 training rows are of' not in data.notes[0] and '9 training rows of 3' in data.notes[0]
  assert any("3 test rows are of clients without training rows ('eve')" in n for n in data.notes)
  assert data.unseen.y.tolist() == [1, 1, 2] and data.unseen_owners.tolist() == [0, 0, 0]  # eve
  named = datasets.load('leaf', str(folder))
  assert (named.name, named.checksum) == ('leaf', data.checksum)


def test_numbers_of_four_decimals_are_levels(tmp_path):
  levels = np.arange(784) % 256
  row = [round(level / 255, 4) for level in levels]
  for part in ('train', 'test'):
    write(tmp_path, part, {'a': ([row], [0])})
  assert datasets.load('leaf', str(tmp_path)).train.x.ravel().tolist() == levels.tolist()


def test_shakespeare(tmp_path):
  write(tmp_path, 'train', {'ROMEO': (['ab\n', 'b~ '], ['a', '\n']), 'JULIET': (['aaa'], ['~'])})
  write(tmp_path, 'test', {'JULIET': (['~~~'], ['a'])})
  data = datasets.load('leaf', str(tmp_path))
  # By hand: the line feed is number 0, the space 1, 'a' (ASCII 97) 97 - 32 + 1 = 66, '~' 95.
  assert data.train.x.tolist() == [[67, 68, 1], [68, 96, 2], [67, 67, 67]]
  assert data.train.y.tolist() == [66, 0, 95] and data.test.x.tolist() == [[96] * 3]
  assert data.train.x.dtype == np.int32 and data.num_classes == 96 == len(leaf.ALPHABET)
  assert data.class_names[:3] == ('line feed', 'space', '!') and data.class_names[66] == 'a'
  assert data.client_names == ('JULIET', 'ROMEO') and data.test_clients.tolist() == [0]


PIXEL = [0.2] * 783
WRONG = {
  'level': ({'a': ([[*PIXEL, 0.5]], [0])}, {}, "user 'a': number 783 of row 0 of x is 0.5;"),
  'normalised': ({'a': ([[*PIXEL, -0.42]], [0])}, {}, 'number 783 of row 0 of x is -0.42;'),
  'nan': ({'a': ([[*PIXEL, float('nan')]], [0])}, {}, 'number 783 of row 0 of x is nan;'),
  'fewer': ({'a': ([[0.2] * 60], [0])}, {}, 'must be 784 numbers (FEMNIST) or a text'),
  'ragged': ({'a': ([[0.2] * 784, PIXEL], [0, 1])}, {}, 'must be 784 numbers'),
  'files': ({'a': (['img.jpg', 'image.jpg'], [0, 1])}, {}, 'texts of x have 7 and 9 characters'),
  'label': ({'a': (['abc'], [0])}, {}, 'y the character that follows each'),
  'text label': ({'a': ([[0.2] * 784], ['b'])}, {}, "y must be integers from 0 on, got ['b']"),
  'negative': ({'a': ([[0.2] * 784], [-1])}, {}, 'y must be integers from 0 on, got [-1]'),
  'character': ({'a': (['aé'], ['b'])}, {}, "text 0 has the character 'é'; the line feed and"),
  'count': ({'a': (['a'], ['b'])}, {'num_samples': [2]}, 'num_samples is 2, but x has 1 and y 1'),
  'users': ({'a': (['a'], ['b'])}, {'users': ['b']}, "'a', 'b': in only one of users and"),
  'keys': ({'a': (['a'], ['b'])}, {'user_data': None}, 'user_data by user'),
  'lists': ({'a': (['a'], ['b'])}, {'user_data': {'a': {'x': 1}}}, 'must have lists x and y'),
  'empty': ({'a': ([], [])}, {}, 'no user has a row'),
}  # fmt: skip


@pytest.mark.parametrize('case', WRONG)
def test_wrong_files_are_refused_in_one_line(tmp_path, case):
  users, changed, line = WRONG[case]
  write(tmp_path, 'train', users, **changed)
  write(tmp_path, 'test', {'a': (['a'], ['b'])})
  with pytest.raises(ValueError) as error:
    datasets.load('leaf', str(tmp_path))
  assert line in str(error.value) and '\n' not in str(error.value)


def test_wrong_folders_are_refused_in_one_line(tmp_path):
  with pytest.raises(FileNotFoundError, match='train has no file .*: a folder of LEAF holds train'):
    datasets.load('leaf', str(tmp_path))
  text = {'a': (['a'], ['b'])}
  write(tmp_path / 'data', 'train', text)
  with pytest.raises(FileNotFoundError, match='--config.data.dir=.*data$'):
    datasets.load('leaf', str(tmp_path))
  write(tmp_path / 'data', 'test', {'a': ([[0.2] * 784], [0])})
  with pytest.raises(ValueError, match=r'rows of train are \[1\], and of test \[28, 28, 1\]'):
    datasets.load('leaf', str(tmp_path / 'data'))
  write(tmp_path / 'data', 'test', text)
  write(tmp_path / 'data', 'train', text, 'b.json')
  with pytest.raises(ValueError, match="b.json: user 'a' is in a.json as well"):
    datasets.load('leaf', str(tmp_path / 'data'))
  with pytest.raises(ValueError, match="data.dir='': name the folder, as in data.name=leaf:FOLDER"):
    datasets.load('leaf')
  with pytest.raises(ValueError, match="data.name='leaf:a': data.dir='b' is another folder"):
    check({'data.name': 'leaf:a', 'data.dir': 'b'})


def test_the_short_form_is_the_same_run():
  short, long = (
    check(c).data for c in ({'data.name': 'leaf:d'}, {'data.name': 'leaf', 'data.dir': 'd'})
  )
  assert short == long and (short.name, short.dir) == ('leaf', 'd')


def test_users_train_and_are_measured_on_their_own_test_rows(tmp_path):
  """Two users whose only classes differ: a model of one class is right for one of them alone."""
  values = fakes.arrays(0, (28, 28, 1), 2)
  rows = values['train_x'].reshape(-1, 784) / 255
  for part in ('train', 'test'):
    write(tmp_path, part, {n: (rows[:2].tolist(), [c, c]) for n, c in (('a', 0), ('b', 1))})
  result = fs.run(
    fs.FedAvg(lr=1.0, optimizer='sgd'),
    f'leaf:{tmp_path}',
    'mlp',
    rounds=1,
    clients=2,
    partition='natural',
    personal_every=1,
    progress=False,
  )
  # The same images with both labels: the global model cannot be right for both users.
  last = result.history[-1]
  assert last['test/accuracy'] == 0.5 and last['personal/test/accuracy'] == 1
