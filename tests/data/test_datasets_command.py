"""What reading a data set imports, and the command that prepares data sets."""

import os
import subprocess
import sys
from pathlib import Path

from fedjax_syn.data import datasets
from fedjax_syn.data.builders import prepared
from fedjax_syn.data.builders.sources import SOURCES
from tests.data import fakes

ROOT = Path(__file__).parents[2]


def test_reading_needs_no_tensorflow_datasets(tmp_path):
  """Arrays, digits, archives and caches load where tensorflow-datasets cannot be imported."""
  fakes.write_arrays(tmp_path / 'arrays', fakes.arrays(1))
  prepared.prepare(fakes.mnist('mnist', fakes.arrays(2), tmp_path / 'mnist'), tmp_path)
  script = f"""
import sys
from pathlib import Path
sys.modules.update(tensorflow=None, tensorflow_datasets=None)
from fedjax_syn.data import datasets, held_out
from fedjax_syn.data.builders.sources import SOURCES
from tests.data import fakes
folder = Path({str(tmp_path)!r})
datasets.load('digits')
datasets.load('arrays', str(folder / 'arrays'))
SOURCES['mnist'] = fakes.mnist('mnist', fakes.arrays(2), folder / 'again')
datasets.load('mnist', str(folder / 'again'))
datasets.load('mnist', str(folder))
"""
  done = subprocess.run(
    [sys.executable, '-c', script],
    env=os.environ | {'PYTHONPATH': str(ROOT)},
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0, done.stderr


def test_import_is_light():
  """TensorFlow, tensorflow-datasets and scikit-learn are imported only where they are needed."""
  script = (
    'import sys, fedjax_syn.data.datasets; '
    'names = "tensorflow", "tensorflow_datasets", "sklearn", "jax"; '
    'print([m for m in names if m in sys.modules])'
  )
  done = subprocess.run(
    [sys.executable, '-c', script],
    env=os.environ | {'PYTHONPATH': str(ROOT)},
    capture_output=True,
    text=True,
    check=True,
  )
  assert done.stdout.strip() == '[]'


def test_command_prepares(tmp_path, monkeypatch, capsys):
  source = fakes.mnist('mnist', fakes.arrays(1), tmp_path)
  monkeypatch.setitem(SOURCES, 'mnist', source)
  assert datasets.main(['mnist', f'--dir={tmp_path}']) == 0
  digest = datasets.load('mnist', str(tmp_path)).checksum
  expected = f'MNIST: 40 training and 20 test rows of 6x5x1, SHA-256 {digest}\n'
  assert capsys.readouterr().out.endswith(expected)
  assert (tmp_path / 'mnist' / '1.0.0' / prepared.CACHE).exists()


def test_command_refuses_in_one_line(tmp_path, capsys):
  assert datasets.main(['mnist7', f'--dir={tmp_path}']) == 2
  assert datasets.main(['arrays', f'--dir={tmp_path}']) == 2
  lines = capsys.readouterr().err.splitlines()
  assert len(lines) == 2 and 'mnist7' in lines[0] and str(tmp_path) in lines[1]


def test_command_runs_as_a_module(tmp_path):
  """As its error messages say; warnings are errors, so that it is not imported twice."""
  done = subprocess.run(
    [sys.executable, '-W', 'error::RuntimeWarning', '-m', 'fedjax_syn.data.datasets', 'digits'],
    env=os.environ | {'PYTHONPATH': str(ROOT)},
    cwd=tmp_path,
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0, done.stderr
  assert done.stdout.startswith('digits: 1198 training and 599 test rows of 8x8x1, SHA-256 ')
