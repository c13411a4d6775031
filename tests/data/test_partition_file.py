"""Partitions from files: every form gives the same clients, and wrong ones are one line."""

import json

import numpy as np
import pytest

from fedjax_syn.config import ConfigError, check, identity
from fedjax_syn.data import partition as partition_lib

OWNER = np.array([2, 0, 0, -1, 2, 0])  # client 1 has no row
ROWS = [[1, 2, 5], [], [0, 4]]


def write(path, content):
  if path.suffix == '.npz':
    np.savez(path, **content)
  else:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
  return f'file:{path}'


def read(name, clients=3):
  return partition_lib.partition(name, np.zeros(6, int), clients)


@pytest.mark.parametrize(
  ('name', 'content'),
  [
    ('a.npz', {'clients': OWNER, 'other': np.zeros(2)}),
    ('b.npz', {'rows': OWNER}),
    ('a.json', OWNER.tolist()),
    ('b.json', ROWS),
    ('a.csv', '\n'.join(map(str, OWNER))),
    ('b.csv', 'name,client\n' + '\n'.join(f'x{i},{c}' for i, c in enumerate(OWNER))),
  ],
)
def test_every_form_gives_the_same_clients(name, content, tmp_path):
  found = read(write(tmp_path / name, content))
  held = [found.order[a : a + n] for a, n in zip(found.start, found.size, strict=True)]
  assert [sorted(rows.tolist()) for rows in held] == ROWS


@pytest.mark.parametrize(
  ('name', 'content', 'line'),
  [
    ('a.npz', {'clients': OWNER[:5]}, 'has 5 rows, and the training set 6'),
    ('a.npz', {'clients': OWNER + 1}, 'clients must be 0 to 2, and -1 for nobody, but are 0 to 3'),
    ('a.npz', {'clients': OWNER / 2}, 'got float64'),
    ('a.npz', {'x': OWNER, 'y': OWNER}, 'one must be called clients'),
    ('a.json', ROWS[:2], 'has 2 clients; data.clients=2 would work'),
    ('a.json', [[0, 1], [1], []], 'gives a row to two clients'),
    ('a.json', [[0, 6], [1], []], 'names rows 0 to 6 of 0 to 5'),
    ('a.json', '{', 'must hold the client of each training row'),
    ('a.csv', 'a,b\n1,2\n', 'one must be called client'),
    ('a.txt', '0', 'is none of .npz, .json and .csv'),
  ],
)
def test_what_does_not_fit_is_refused(name, content, line, tmp_path):
  with pytest.raises(ValueError, match=line):
    read(write(tmp_path / name, content))
  with pytest.raises(ValueError, match='no such file'):
    read(f'file:{tmp_path / "none.npz"}')


def test_the_content_of_the_file_is_part_of_the_run(tmp_path):
  name = write(tmp_path / 'a.json', ROWS)
  config = {'algorithm': 'fedavg', 'compare': '', 'data.partition': name, 'data.clients': 3}
  before = identity.hash8(check(config))
  assert list(identity.own_code(check(config))) == ['data.partition']
  write(tmp_path / 'a.json', ROWS[::-1])
  assert identity.hash8(check(config)) != before
  for held in ({'data.validation': 0.1}, {'data.proxy': 'held_out'}):
    with pytest.raises(ConfigError, match='rows are those of the whole training set'):
      check({**config, **held})
