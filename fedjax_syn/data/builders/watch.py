"""Exercises by a watch: ten people, seven shoulder exercises, an accelerometer and a gyroscope.

Burns et al. (2018), *Shoulder physiotherapy exercise recognition: machine learning the inertial
signals from a smartwatch*, Physiological Measurement 39; the part of it that the package `seglearn`
carries (BSD, three clauses). 140 recordings, one for each person, exercise and side, of some twenty
repetitions at 50 Hz in six channels.

A row is a window of WINDOW samples; windows begin STEP samples after each other. The task is the
exercise, and a client is a person. The last quarter of each recording is for testing: no window
reaches across the border.
"""

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from fedjax_syn.core.texts import first_line
from fedjax_syn.data.builders import client_rows, packages
from fedjax_syn.data.builders.client_rows import ClientRows
from fedjax_syn.data.builders.packages import PackageFile
from fedjax_syn.data.dataset import Dataset

FILE = PackageFile(
  'seglearn',
  'data/watch_dataset.npy',
  'eb122f23cdf06ef6bd6c6c5312958ec5cf9d038e2e6d457b8081662c75a42537',
)
EXERCISES = ('PEN', 'ABD', 'FEL', 'IR', 'ER', 'TRAP', 'ROW')  # as the file calls them
WINDOW, STEP = 100, 50  # samples: two seconds, one second
TEST_SHARE = 0.25  # of each recording, its end
CHANNELS = 6


def load(name: str, data_dir: Path) -> Dataset:
  """Reads the recordings of the package, see `packages.read`; a client for each person."""
  splits = parse(packages.read(name, FILE, data_dir))
  return client_rows.dataset(name, 'watch', splits, EXERCISES, 'auto', 'person')


def parse(content: bytes) -> tuple[ClientRows, ClientRows]:
  """Cuts the recordings into windows.

  Args:
    content: a .npy file of one object, a dict with 'X' (a list of arrays [samples, CHANNELS]), 'y'
      and 'subject' [recordings].

  Returns:
    Training and test rows, x [n, WINDOW, CHANNELS], in the order of the recordings.

  Raises:
    ValueError: if it is no such file, or asks for anything but arrays.
  """
  try:
    data = _load(content)
    recordings = [np.asarray(x, np.float32) for x in data['X']]
    labels, people = (np.asarray(data[key]).astype(np.int32) for key in ('y', 'subject'))
    if not (len(recordings) == len(labels) == len(people)):
      raise ValueError(f'{len(recordings)} recordings, {len(labels)} labels, {len(people)} people')
    if any(x.ndim != 2 or x.shape[1] != CHANNELS for x in recordings):
      raise ValueError(f'a recording is not [samples, {CHANNELS}]')
  except Exception as error:  # whatever a damaged file makes the reader raise
    raise ValueError(f'{FILE.path} is not as published: {first_line(error)}') from error
  person = np.unique(people, return_inverse=True)[1].astype(np.int32)
  splits: tuple[list, list] = [], []
  for x, *of in zip(recordings, labels, person, strict=True):
    border = round((1 - TEST_SHARE) * len(x))
    for rows, part in zip(splits, (x[:border], x[border:]), strict=True):
      rows += [(window, *of) for window in windows(part)]
  train, test = (ClientRows(*map(np.array, zip(*rows, strict=True))) for rows in splits)
  return train, test


def windows(x: np.ndarray) -> np.ndarray:
  """Cuts a recording [samples, channels] into [n, WINDOW, channels]; what is left is dropped."""
  starts = range(0, len(x) - WINDOW + 1, STEP)
  return (
    np.stack([x[i : i + WINDOW] for i in starts]) if starts else np.zeros((0, WINDOW, x.shape[1]))
  )


def _latin1(text: str, encoding: str) -> bytes:
  """Returns bytes that Python 2 wrote as text."""
  if encoding != 'latin1':
    raise ValueError(f'bytes are encoded as {encoding!r}, not as latin1')
  return text.encode(encoding)


class _ArraysOnly(pickle.Unpickler):
  """Builds numpy arrays and Python's plain types, and nothing else that a pickle may name."""

  _known = {
    ('numpy.core.multiarray', '_reconstruct'): np.zeros(0).__reduce__()[0],
    ('numpy._core.multiarray', '_reconstruct'): np.zeros(0).__reduce__()[0],
    ('numpy', 'ndarray'): np.ndarray,
    ('numpy', 'dtype'): np.dtype,
    ('_codecs', 'encode'): _latin1,
  }

  def find_class(self, module: str, name: str) -> Any:
    """Refuses what is no array; see the base class."""
    if (module, name) not in self._known:
      raise ValueError(f'it names {module}.{name}, which is not called')
    return self._known[module, name]


def _load(content: bytes) -> Any:
  """Reads the one object of a .npy file."""
  file = io.BytesIO(content)
  if np.lib.format.read_magic(file) != (1, 0):
    raise ValueError('another version of the .npy format')
  np.lib.format.read_array_header_1_0(file)
  return _ArraysOnly(file).load().item()
