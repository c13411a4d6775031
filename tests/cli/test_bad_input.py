"""The launcher refuses every row of the bad-input tables: one line on stderr, status 2, no work."""

import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from absl.testing import flagsaver

from fedjax_syn.cli import jax_setup, train
from tests.bad_data import BAD_DATA, Bad, arrays
from tests.bad_input import BAD, BAD_OVERRIDES

ROOT = Path(__file__).parents[2]
DEAD = 'http://127.0.0.1:9'  # nobody listens: there is no network
OFFLINE = {'https_proxy': DEAD, 'http_proxy': DEAD, 'HTTPS_PROXY': DEAD, 'HTTP_PROXY': DEAD}
CONFIG = """
import math
import ml_collections
from fedjax_syn.config import get_default, to_dict

def get_config():
  tree = to_dict(get_default())
  for key, value in {settings}.items():
    section, _, name = key.rpartition('.')
    (tree.setdefault(section, {{}}) if section else tree)[name] = value
  return ml_collections.ConfigDict(tree)
"""


def config_file(settings: dict):
  """Writes bad.py, which says what no command line can: None, a string for a number, True for 1."""
  text = repr(settings).replace(': nan', ': math.nan')
  return lambda folder: (folder / 'bad.py').write_text(CONFIG.format(settings=text))


ROWS = [
  *(Bad(repr(given), {'--config': 'bad.py'}, line, config_file(given)) for given, line in BAD),
  *(Bad(f'{key}={text}', {key: text}, line) for key, text, line in BAD_OVERRIDES),
  *BAD_DATA,
]


def arguments(settings: dict) -> list[str]:
  return [f'{"" if k.startswith("--") else "--config."}{k}={v}' for k, v in settings.items()]


def files(folder: Path) -> set[Path]:
  """What is there, but for what Python compiled and the lock of a folder that was there before."""
  passing = ('__pycache__', '.lock')
  return {p for p in folder.rglob('*') if not {*p.parts} & {*passing}}


def test_the_table_covers_what_it_should():
  assert len(ROWS) >= 80 and len({row.what for row in ROWS}) == len(ROWS)


@pytest.fixture
def here(tmp_path, monkeypatch):
  """An empty current folder, no network, JAX as it is."""
  monkeypatch.chdir(tmp_path)
  monkeypatch.syspath_prepend(tmp_path)
  monkeypatch.setattr(jax_setup, 'prepare_jax', lambda *_: None)
  for name, value in OFFLINE.items():
    monkeypatch.setenv(name, value)
  monkeypatch.delenv('TFDS_DATA_DIR', raising=False)
  yield tmp_path
  for name in ('tiny_data', 'config_file'):
    sys.modules.pop(name, None)


@pytest.mark.parametrize('row', ROWS, ids=[row.what[:60] for row in ROWS])
def test_bad_input_is_one_line_and_status_2_before_any_work(row, here, capsys):
  row.prepare(here)
  before = files(here)
  with flagsaver.flagsaver():
    try:
      status = train.main(['main.py', *arguments(row.settings)])
    except SystemExit as end:
      status = end.code
  out, err = capsys.readouterr()
  assert (status, out, err.count('\n')) == (2, '', 1), err
  assert row.line in err
  assert files(here) == before


# ---- as processes of their own


def without_privileges() -> list[str]:
  """What to put before a command so that permissions hold for root too."""
  if os.geteuid() != 0:
    return []
  if not shutil.which('setpriv'):
    pytest.skip('root may read everything, and there is no setpriv')
  return ['setpriv', '--bounding-set=-dac_override,-dac_read_search']


def process(folder: Path, settings: dict, before: list[str] = ()) -> tuple[str, float, float]:
  """Runs the launcher as a user would.

  Returns:
    The one line, and the seconds that it took: wall-clock seconds and CPU seconds.
  """
  start, used = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
  done = subprocess.run(
    [*before, sys.executable, str(ROOT / 'launch' / 'main.py'), *arguments(settings)],
    cwd=folder,
    env={**os.environ, **OFFLINE, 'JAX_PLATFORMS': 'cpu', 'TFDS_DATA_DIR': ''},
    capture_output=True,
    text=True,
    check=False,
  )
  seconds, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
  waiting = lambda line: line.endswith(' s so far\n')  # said while a busy machine loads JAX
  lines = [line for line in done.stderr.splitlines(keepends=True) if not waiting(line)]
  assert (done.returncode, done.stdout, len(lines)) == (2, '', 1), done.stderr
  return lines[0], seconds, after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime


def closed(path: str, mode: int):
  """Arrays in d, and something that may not be read or written."""

  def prepare(folder):
    arrays()(folder)
    (folder / 'W').mkdir()
    (folder / path).chmod(mode)

  return prepare


FORBIDDEN = [
  Bad(
    'no permission to read',
    {'data.name': 'arrays', 'data.dir': 'd', 'data.clients': 4, 'model.name': 'mlp'},
    "data.name='arrays': d/train.npz: permission denied",
    closed('d/train.npz', 0),
  ),
  Bad('no permission to write', {'--workdir': 'W/run'}, '--workdir=W/run: ', closed('W', 0o500)),
]


@pytest.mark.parametrize('row', FORBIDDEN, ids=lambda row: row.what)
def test_what_is_not_permitted(row, tmp_path):
  row.prepare(tmp_path)
  before = files(tmp_path)
  assert row.line in process(tmp_path, row.settings, without_privileges())[0]
  assert files(tmp_path) == before


@pytest.mark.slow
def test_every_refusal_comes_within_five_seconds(tmp_path):
  """Each row runs as its own process.

  The test counts CPU seconds, so other work on the machine does not matter. `-s` prints the CPU
  seconds and the wall-clock seconds.
  """
  took = {}
  # An argument of a process has no null character, and 128 KiB on Linux.
  possible = lambda row: all('\0' not in a and len(a) < 2**17 for a in arguments(row.settings))
  for i, row in enumerate(filter(possible, ROWS)):
    folder = tmp_path / str(i)
    folder.mkdir()
    row.prepare(folder)
    before = files(folder)
    said, wall, took[row.what] = process(folder, row.settings)
    print(f'{took[row.what]:5.2f} s of a core, {wall:5.2f} by the wall: {row.what}', flush=True)
    assert row.line in said and files(folder) == before, row.what
  assert max(took.values()) < 5
