"""Natural federations: tiny files of the published form, and what is refused.

With the extra `federations`, the published files themselves.
"""

import hashlib
import importlib.util
import io
import os
import pickle

import numpy as np
import pytest

from fedjax_syn.data import datasets
from fedjax_syn.data.builders import inst_eval, vietnam, watch
from fedjax_syn.fits import data_shapes
from tests.data.test_packages import tar, wheel

RATINGS = """"","s","d","studage","lectage","service","dept","y"
"1","1","1002","2","2","0","2",5
"2","1","7","4","1","1","6",2
"3","2","1002","2","2","0","2",4
"4","2","7","2","2","0","2",3
"""
NAMES = 'pharvis lnhhexp age sex married educ illness injury illdays actdays insurance commune'
PEOPLE = f""""",{NAMES.replace(' ', ',')}
"1",0,2.5,3.5,"male",1,2,1,0,7,3,0,2
"2",3,1.5,2.5,"female",0,0,0,1,0,0,1,1
"""


def recording(samples: int, value: float) -> np.ndarray:
  """Samples that count up from a value, in all channels."""
  return np.repeat(value + np.arange(samples, dtype=float)[:, None], watch.CHANNELS, axis=1)


def watch_file(**changes) -> bytes:
  """Two recordings, of 400 and 160 samples, by the persons 9 and 4."""
  data = {'X': [recording(400, 0), recording(160, 1000)], 'y': np.array([3, 5])}
  data |= {'subject': np.array([9, 4]), 'side': np.array([0.0, 1.0])}
  file = io.BytesIO()
  np.save(file, np.array(data | changes, dtype=object), allow_pickle=True)
  return file.getvalue()


def test_windows_by_hand():
  """300 samples have windows from 0, 50, ... 200 on; 100 have one; 120 have one, 40 none."""
  train, test = watch.parse(watch_file())
  assert train.x[:, 0, 0].tolist() == [0, 50, 100, 150, 200, 1000]
  assert test.x[:, 0, 0].tolist() == [300]
  assert (train.x[1, :, 5] == np.arange(50, 150)).all() and train.x.dtype == np.float32
  assert train.y.tolist() == [3] * 5 + [5] and test.y.tolist() == [3]
  assert train.client.tolist() == [1] * 5 + [0] and test.client.tolist() == [1]


class Calls:
  """Calls a function when it is unpickled."""

  def __reduce__(self):
    return os.getcwd, ()


@pytest.mark.parametrize(
  ('content', 'why'),
  [
    (b'', 'is not as published'),
    (b'\x93NUMPY\x03\x00', 'another version'),
    (watch_file(X=[Calls()]), r'names \w+.getcwd, which is not called'),
    (watch_file(y=np.zeros(3, int)), '2 recordings, 3 labels, 2 people'),
    (watch_file(X=[np.zeros((9, 5))] * 2), r'a recording is not \[samples, 6\]'),
  ],
)
def test_other_recordings_are_refused_in_a_line(content, why):
  with pytest.raises(ValueError, match=why) as error:
    watch.parse(content)
  assert '\n' not in str(error.value)


def test_bytes_as_python_2_wrote_them():
  latin1 = b'\x80\x02c_codecs\nencode\nX\x02\x00\x00\x00\xc3\xa9X\x06\x00\x00\x00latin1\x86R.'
  assert watch._ArraysOnly(io.BytesIO(latin1)).load() == b'\xe9'
  with pytest.raises(ValueError, match="encoded as 'rot_13'"):
    watch._ArraysOnly(io.BytesIO(latin1.replace(b'latin1', b'rot_13'))).load()
  assert pickle.loads(latin1) == b'\xe9'


def test_ratings_by_hand():
  """Columns share one numbering: lecturers 1, 2; semesters 3, 4; terms 5, 6; service 7, 8; ..."""
  train, test = inst_eval.parse(RATINGS.encode())
  rows = [(*r.x[i].tolist(), r.y[i], r.client[i]) for r in (train, test) for i in range(len(r.y))]
  assert sorted(rows) == [
    (1, 3, 6, 7, 9, 1, 0),
    (1, 3, 6, 7, 9, 1, 1),
    (2, 3, 6, 7, 9, 0, 1),
    (2, 4, 5, 8, 10, 0, 0),
  ]


def test_people_by_hand():
  rows, _ = vietnam.parse(PEOPLE.encode())
  assert rows.x.tolist() == [
    [2.5, 3.5, 1, 1, 0, 7, 3, 0, 1, 0, 1],
    [1.5, 2.5, 0, 0, 1, 0, 0, 1, 0, 1, 0],
  ]
  assert rows.y.tolist() == [0, 1] and rows.client.tolist() == [1, 0]


def test_other_tables_are_refused_in_a_line():
  with pytest.raises(ValueError, match="InstEval.csv: a rating is '6', not 1 to 5"):
    inst_eval.parse(RATINGS.replace(',5', ',6').encode())
  with pytest.raises(ValueError, match='VietNamI.csv: could not convert'):
    vietnam.parse(PEOPLE.replace('3.5', 'NA').encode())


def more(text: str, times: int = 5) -> bytes:
  """The lines of a table several times, with row numbers of their own."""
  head, *lines = text.splitlines()
  rows = [line.partition(',')[2] for line in lines] * times
  return '\n'.join([head, *(f'"{i}",{row}' for i, row in enumerate(rows, 1))]).encode()


CASES = {
  'watch': (watch, watch_file()),
  'vietnam': (vietnam, more(PEOPLE)),
  'inst_eval': (inst_eval, more(RATINGS)),
}


def write(folder, module, content: bytes, patch) -> None:
  """Writes a package with the content in place of the published file."""
  digest = hashlib.sha256(content).hexdigest()
  patch.setattr(module, 'FILE', module.FILE._replace(sha256=digest))
  file = module.FILE
  inner = tar(file.member, content) if file.member else content
  wheel(folder / f'{file.package}-1-any.whl', f'{file.package}/{file.path}', inner)


@pytest.mark.parametrize('name', CASES)
def test_data_sets_with_own_test_rows(name, tmp_path, monkeypatch):
  write(tmp_path, *CASES[name], monkeypatch)
  data = datasets.load(name, str(tmp_path))
  assert data.name in datasets.names() and data.num_clients() == len(data.client_names) == 2
  assert len(data.clients) == len(data.train.y) and len(data.test_clients) == len(data.test.y)
  assert len(data.class_names) == data.num_classes
  if name != 'watch':  # a fifth of each client's rows
    assert (np.bincount(data.clients) == 4 * np.bincount(data.test_clients)).all()


PUBLISHED = {
  # rows, clients, fewest and most training rows of a client, share of class 1 in training rows
  'watch': ((3455, 1010), 10, (215, 415), 0.165),
  'vietnam': ((22212, 5553), 194, (41, 165), 0.256),
  'inst_eval': ((58737, 14684), 2972, (1, 74), 0.446),
}


@pytest.mark.skipif(importlib.util.find_spec('seglearn') is None, reason='extra federations')
@pytest.mark.parametrize('name', PUBLISHED)
def test_published_files(name, tmp_path):
  rows, clients, sizes, share = PUBLISHED[name]
  data = datasets.load(name, str(tmp_path))
  counts = np.bincount(data.clients)
  assert (len(data.train.y), len(data.test.y)) == rows and len(counts) == clients
  assert (counts.min(), counts.max()) == sizes
  assert (data.train.y == 1).mean() == pytest.approx(share, abs=1e-3)
  known = data_shapes.known(name)  # what `fedjax-syn fits` takes it to be without the files
  assert (known.rows, known.shape, known.num_classes) == (rows, data.shape, data.num_classes)
  assert len(known.natural) == clients and known.kind == (
    '' if data.kind == 'tokens' else data.kind
  )
