"""Fixtures for runs: a fake engine instead of the real one, and an uninterrupted run."""

import functools
import json
import math
import shutil

import numpy as np
import pytest
from PIL import Image

from fedjax_syn.core import paths
from fedjax_syn.plotting import figures
from fedjax_syn.runs import assemble, checkpoint, experiment, recorder
from tests.fake_engine import Fake
from tests.run_helpers import config_of, outcome


def put_fake(patch, **behaviour):
  patch.setattr(assemble, 'Engine', Fake(**behaviour).build)


def put_stubs(patch):
  """Draws no figures, and writes each checkpoint that is due, independent of its time."""
  patch.setattr(figures, 'partition_bubbles', lambda *_: None)
  patch.setattr(figures, 'accuracy_curve', lambda *_: None)
  patch.setattr(figures, 'synthetic_sets', lambda *args, **_: Image.new('L', (2, 2)).save(args[4]))
  patch.setattr(recorder, 'SHARE', math.inf)


@pytest.fixture
def fake(monkeypatch):
  """Installs a fake engine; returns a function that changes its behaviour.

  Arrays are written without Orbax and without waiting for the disk, which take most of the time of
  a run that computes nothing.
  """
  put_stubs(monkeypatch)
  put_fake(monkeypatch)

  def write(folder, arrays):
    folder.mkdir()
    np.savez(folder / 'arrays.npz', **{str(i): a for i, a in enumerate(arrays.values())})
    (folder / 'names.json').write_text(json.dumps(list(arrays)))

  def read(folder, names):
    with np.load(folder / 'arrays.npz') as file:
      stored = json.loads((folder / 'names.json').read_text())
      assert sorted(stored) == sorted(names)
      return {name: file[str(i)] for i, name in enumerate(stored)}

  monkeypatch.setattr(checkpoint, 'write_arrays', write)
  monkeypatch.setattr(checkpoint, 'read_arrays', read)
  monkeypatch.setattr(checkpoint, 'fsync', lambda path: None)
  monkeypatch.setattr(paths, 'fsync', lambda path: None)
  return functools.partial(put_fake, monkeypatch)


@pytest.fixture(scope='session')
def whole_folder(tmp_path_factory):
  """The folder of an uninterrupted run, with Orbax."""
  folder = tmp_path_factory.mktemp('whole')
  with pytest.MonkeyPatch.context() as patch:
    put_stubs(patch)
    put_fake(patch)
    assert experiment.run_experiment(config_of(), folder) == 0
  return folder


@pytest.fixture(scope='session')
def whole(whole_folder):
  """The results of the uninterrupted run."""
  return outcome(whole_folder)


@pytest.fixture
def copied(whole_folder, tmp_path):
  """A copy of a finished run without its checkpoints."""
  skip = shutil.ignore_patterns('checkpoints')
  return shutil.copytree(whole_folder, tmp_path / 'w', ignore=skip)


@pytest.fixture
def finished(tmp_path, fake):
  """A finished run, with the arrays of its checkpoints as `fake` reads them."""
  folder = tmp_path / 'w'
  assert experiment.run_experiment(config_of(), folder) == 0
  return folder
