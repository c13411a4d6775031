"""Nothing is unpickled, evaluated, unpacked onto the disk or sent.

The tests search the source for such calls, and try some.
"""

import ast
import pathlib
import socket

import pytest

from fedjax_syn import config as config_lib
from fedjax_syn.core import tree_encoding
from fedjax_syn.runs import experiment, final_files
from tests.run_helpers import config_of

pytest_plugins = ['tests.run_fixtures']
ROOT = pathlib.Path(__file__).parents[2]
SOURCES = sorted(
  p for folder in ('fedjax_syn', 'launch', 'configs') for p in (ROOT / folder).rglob('*.py')
)
MODULES = {'pickle', 'cloudpickle', 'dill', 'marshal', 'shelve', 'joblib', 'yaml'}
NETWORK = {'urllib', 'requests', 'pooch', 'http', 'ftplib', 'smtplib', 'wandb', 'mlflow'}
# The module that downloads, an unpickler of arrays alone, the modules that name this host, and the
# trackers a config may name.
MAY = {
  'fedjax_syn/data/builders/archives.py': NETWORK,
  'fedjax_syn/data/builders/watch.py': {'pickle'},
  'fedjax_syn/runs/lock.py': {'socket'},
  'fedjax_syn/runs/config_json.py': {'socket'},
  'fedjax_syn/runs/trackers.py': {'wandb', 'mlflow'},
}
CALLS = {'eval', 'exec', 'compile', 'extract', 'extractall', 'system', 'unpack_archive'}


def forbidden(tree: ast.AST, may: set[str] = frozenset()) -> list[str]:
  """Lists what a source imports or calls that could run or send what a file or a config says."""
  found = []
  for node in ast.walk(tree):
    if isinstance(node, ast.Import | ast.ImportFrom):
      names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or '']
      imported = {name.partition('.')[0] for name in names}
      found += sorted(imported & (MODULES | NETWORK | {'socket'}) - may)
    if isinstance(node, ast.Call):
      owner = getattr(getattr(node.func, 'value', None), 'id', '')
      name = getattr(node.func, 'attr', getattr(node.func, 'id', ''))
      bare = isinstance(node.func, ast.Name)
      keywords = {k.arg: getattr(k.value, 'value', None) for k in node.keywords}
      if name in CALLS and (bare or name not in ('eval', 'exec', 'compile')):
        found.append(f'{name}()')
      if (owner, name) == ('np', 'load') and keywords.get('allow_pickle') is not False:
        found.append('np.load() without allow_pickle=False')
      if (owner, name) == ('Image', 'open') and 'formats' not in keywords:
        found.append('Image.open() without formats: some start programs')
      if owner == 'tfds' and name in ('builder', 'builder_from_directory', 'load'):
        found.append(f'tfds.{name}(), which imports what a folder names')
      if keywords.get('shell') or keywords.get('allow_pickle'):
        found.append(f'{name}(shell or pickle)')
  return found


@pytest.mark.parametrize(
  'source',
  [
    'import pickle',
    'from yaml import load',
    'import urllib.request',
    'np.load(path)',
    'np.load(path, allow_pickle=True)',
    'eval(text)',
    'tar.extractall(folder)',
    'subprocess.run(text, shell=True)',
    'os.system(text)',
    'Image.open(path)',
    'tfds.builder_from_directory(folder)',
    'tfds.load(name)',
  ],
)
def test_what_is_forbidden_is_found(source):
  assert forbidden(ast.parse(source))


def test_no_source_does_it():
  assert len(SOURCES) > 100
  found = {}
  for path in SOURCES:
    name = path.relative_to(ROOT).as_posix()
    if name == 'fedjax_syn/data/builders/records.py':  # looks into the folder first
      continue
    if lines := forbidden(ast.parse(path.read_text()), MAY.get(name, set())):
      found[name] = lines
  assert not found


@pytest.mark.parametrize('key', ['rounds', 'client.lr', 'seeds', 'client.persistent', 'data.dir'])
def test_a_setting_is_not_evaluated(key, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  text = '__import__("pathlib").Path("made").write_text("x")'
  if key == 'data.dir':  # text is what it takes
    config_lib.override(config_lib.get_default(), key, text)
  else:
    with pytest.raises(config_lib.ConfigError):
      config_lib.override(config_lib.get_default(), key, text)
  assert not list(tmp_path.iterdir())


@pytest.mark.parametrize('named', ['this:d', 'ast:Name', 'os:system', 'fedjax_syn.method:nothing'])
def test_a_checkpoint_does_not_decide_what_is_imported_or_called(named):
  """A checkpoint's structure names classes.

  Decoding makes only NamedTuples of modules already imported, of this library or of Optax.
  """
  import sys

  fields = {'id': {'value': 'x'}, 'ctx': {'value': None}} if 'ast' in named else {}
  with pytest.raises(ValueError, match='does not know'):
    tree_encoding.decode({}, {'named': named, 'fields': fields})
  assert 'this' not in sys.modules


def test_a_run_opens_no_connection(fake, tmp_path, monkeypatch):
  def connect(*_):
    raise AssertionError('something was sent')

  monkeypatch.setattr(socket.socket, 'connect', connect)
  assert experiment.run_experiment(config_of(seeds=(0,)), tmp_path / 'w') == 0


def test_settings_of_figures_start_no_latex(tmp_path, monkeypatch):
  """A matplotlibrc in the current folder may set text.usetex, which runs LaTeX on class names."""
  import matplotlib

  monkeypatch.setattr('subprocess.check_output', lambda *_, **__: pytest.fail('LaTeX was started'))
  said = []
  with matplotlib.rc_context({'text.usetex': True}):
    draw = lambda figures: figures.cosine_distances({'a': [0.1]}, tmp_path / 'a.png', 'title')
    final_files.draw(said.append, draw)
  assert (tmp_path / 'a.png').exists() and not said
