"""The library imports or calls code that a file names only if the caller trusts the file."""

import json
import sys

import jax
import numpy as np
import pytest

import fedjax_syn as fs
from fedjax_syn import config as config_lib
from fedjax_syn import models, report
from fedjax_syn.cli import export, inspect
from fedjax_syn.cli import report as report_command
from fedjax_syn.config import identity, trusted
from fedjax_syn.core import tree_encoding
from fedjax_syn.runs import export as export_lib
from fedjax_syn.runs import stored_files
from tests.run_helpers import config_of, summary_of

pytest_plugins = ['tests.run_fixtures']

MODULE = """
import pathlib
pathlib.Path({mark!r}).write_text('imported')

def thing(*arguments, **settings):
  pathlib.Path({mark!r}).write_text('called')
  raise ValueError('called')

make = thing
"""
DATASET = {
  'title': 'digits',
  'shape': [8, 8, 1],
  'num_classes': 10,
  'normalisation': {'name': 'digits', 'mean': [0.5], 'std': [0.5]},
}


@pytest.fixture
def mark(tmp_path, monkeypatch):
  """A module that leaves a file when it is imported; returns the file."""
  path = tmp_path / 'mark'
  (tmp_path / 'nasty_code.py').write_text(MODULE.format(mark=str(path)))
  monkeypatch.syspath_prepend(tmp_path)
  yield path
  sys.modules.pop('nasty_code', None)


WORD = 'nasty_code:thing'
# Where a config can name code; by dotted key, nested and not, and in a composition.
PLACES = [
  {'model': {'name': WORD}},
  {'model.name': WORD},
  {'algorithm': WORD},
  {'algorithm': f'dynafed+{WORD}'},
  {'algorithm': f'{WORD}+dynafed'},
  {'compare': WORD},
  {'compare': f'fedavg(client.lr=0.1),dynafed+{WORD}(thing.x=1)'},
  {'data': {'name': WORD}},
  {'data': {'proxy': WORD}},
  {'outside': [WORD]},
  {'model': {'name': 'tfds:thing'}},  # an exemption of data sets, and of no others
  {'algorithm': 'tfds:thing'},
]


def content_of(place: dict) -> dict:
  content = config_lib.to_dict(config_of(seeds=(0,)))
  for key, value in place.items():
    content[key] = {**content[key], **value} if isinstance(value, dict) else value
  return content


@pytest.mark.parametrize('place', PLACES, ids=str)
def test_a_config_of_a_file_is_refused_in_one_line_and_nothing_is_imported(mark, place):
  before = set(sys.modules)
  with pytest.raises(ValueError, match='--trusted') as refused:
    trusted.check(content_of(place), 'W/config.json', trusted=False)
  (word,) = trusted.code_of(content_of(place)).values()
  line = str(refused.value)
  assert word in line and word.partition(':')[0] in line and 'trusted=True' in line
  assert '\n' not in line and not mark.exists()
  assert not {'nasty_code', 'tfds'} & (set(sys.modules) - before)


def test_a_trusted_config_is_imported(mark):
  resolved = trusted.check(content_of({'model': {'name': WORD}}), 'W', trusted=True)
  assert resolved.model.name == WORD and mark.read_text() == 'imported'


def test_prepared_data_sets_are_no_code():
  content = content_of({'data': {'name': 'tfds:emnist/letters'}})
  assert trusted.code_of(content) == {}
  assert trusted.check(content, 'W', trusted=False).data.name == 'tfds:emnist/letters'


def test_a_file_that_calls_itself_trusted_is_not():
  """data.trusted lets a prepared data set name modules: the caller says that, and no file."""
  content = content_of({'data': {'trusted': True}})
  assert not getattr(trusted.check(content, 'W', trusted=False).data, 'trusted', False)


def run_of(folder, place):
  """A folder that says what a finished run would."""
  folder.mkdir()
  stored = {'config': content_of(place), 'dataset': {**DATASET, 'checksum': 'abc'}}
  stored_files.write_json(folder / 'config.json', stored)
  return folder


@pytest.mark.parametrize('place', [{'model': {'name': WORD}}, {'algorithm': WORD}], ids=str)
@pytest.mark.parametrize('main', [export.main, inspect.main], ids=['export', 'inspect'])
def test_commands_refuse_a_folder_that_names_code(mark, tmp_path, monkeypatch, capsys, place, main):
  folder = run_of(tmp_path / 'run', place)
  if main is inspect.main:
    monkeypatch.setattr('fedjax_syn.cli.jax_setup.prepare_jax', lambda *_: None)
    summary = summary_of(None, {'0': {'status': 'diverged', 'round': 1}})
    stored_files.write_json(folder / 'summary.json', summary)
  before = sorted(folder.iterdir())
  with pytest.raises(SystemExit) as stopped:
    main(['x', str(folder)])
  (line,) = capsys.readouterr().err.splitlines()
  assert stopped.value.code == 2 and 'nasty_code' in line and '--trusted' in line
  assert not mark.exists() and sorted(folder.iterdir()) == before
  with pytest.raises(SystemExit):
    main(['x', str(folder), '--trusted'])
  assert mark.exists()  # the flag is what imports it


def test_from_python_too(mark, tmp_path):
  folder = run_of(tmp_path / 'run', {'model': {'name': WORD}})
  with pytest.raises(ValueError, match='trusted=True'):
    fs.load(folder)
  assert not mark.exists()
  with pytest.raises(FileNotFoundError, match='no model of seed'):
    fs.load(folder, trusted=True)
  assert mark.exists()


def test_a_report_imports_nothing(mark, tmp_path, capsys):
  """It shows settings, and needs no flag."""
  folder = run_of(tmp_path / 'run', {'model': {'name': WORD}, 'data': {'name': WORD}})
  assert report_command.main(['report.py', str(folder), f'--output={tmp_path / "page.html"}']) == 0
  assert WORD in (tmp_path / 'page.html').read_text() and not mark.exists()


def test_comparing_a_stored_config_imports_nothing(mark, tmp_path):
  assert identity.diff(content_of({'model': {'name': WORD}}), config_lib.check(config_of()))
  assert not mark.exists()


def exported(path, metadata):
  from safetensors.numpy import save_file

  save_file({'params.w': np.zeros(3, np.float32)}, path, metadata)
  return path


def test_a_model_that_names_code(mark, tmp_path):
  content = content_of({'model': {'name': WORD}})
  text = {'config': json.dumps(content), 'dataset': json.dumps(DATASET)}
  path = exported(tmp_path / 'model.safetensors', text)
  with pytest.raises(ValueError, match='nasty_code.*trusted=True'):
    export_lib.load_model(path)
  assert not mark.exists()
  with pytest.raises(ValueError, match='called'):
    export_lib.load_model(path, trusted=True)
  assert mark.read_text() == 'called'


PLAIN = {'config': json.dumps(content_of({})), 'dataset': json.dumps(DATASET)}


@pytest.mark.parametrize(
  'metadata',
  [
    None,
    {},
    {'config': 'x', 'dataset': '{}'},
    {'config': '[]', 'dataset': '{}'},
    {**PLAIN, 'dataset': json.dumps({**DATASET, 'shape': 'abc'})},
    {**PLAIN, 'dataset': json.dumps({**DATASET, 'num_classes': None})},
    {**PLAIN, 'dataset': json.dumps({**DATASET, 'normalisation': {'mean': [[]]}})},
    {**PLAIN, 'config': '[' * 100_000},
    {**PLAIN, 'config': '{"a":' * 500 + '1' + '}' * 500},
    {**PLAIN, 'config': '{"rounds": NaN}'},
    PLAIN,  # arrays of another model
  ],
  ids=lambda m: str(m)[:50],
)
def test_a_file_that_is_no_model_is_one_line(tmp_path, metadata):
  with pytest.raises(ValueError) as refused:
    export_lib.load_model(exported(tmp_path / 'm.safetensors', metadata))
  assert 'm.safetensors' in str(refused.value) and '\n' not in str(refused.value)


@pytest.mark.parametrize('content', [b'', b'\x00', b'PK', b'\xff' * 8 + b'{}', b'{' * 64])
def test_bytes_that_are_no_model_are_one_line(tmp_path, content):
  (tmp_path / 'm.safetensors').write_bytes(content)
  with pytest.raises(ValueError, match=r'm\.safetensors is damaged'):
    export_lib.load_model(tmp_path / 'm.safetensors')


def test_a_model_of_another_shape_is_refused(tmp_path):
  """The same names, one axis longer: it was taken for the model."""
  model = models.create('mlp', shape=(8, 8, 1), num_classes=10, width=8, depth=1)
  stored = {'config': content_of({}), 'dataset': DATASET}
  variables = model.init(jax.random.key(0))
  longer = jax.tree.map(lambda a: np.concatenate([a, a]), variables)
  for made, fits in ((variables, True), (longer, False)):
    path = export_lib.save_model(made, stored, tmp_path / 'm.safetensors')
    if fits:
      assert export_lib.load_model(path).class_names == ()
    else:
      with pytest.raises(ValueError, match='does not fit'):
        export_lib.load_model(path)


@pytest.mark.parametrize(
  'named', ['os:system', 'nasty_code:thing', 'fedjax_syn.no_such:X', 'fedjax_syn.runs.api:Path']
)
def test_a_checkpoint_calls_nothing_that_it_names(mark, named):
  node = {'named': named, 'fields': {'command': {'value': 'touch x'}}}
  with pytest.raises(ValueError, match='does not know'):
    tree_encoding.decode({}, node)
  assert not mark.exists()


def test_arrays_with_pickles_are_refused(tmp_path, run_with_pickle):
  with pytest.raises(ValueError, match=r'partition\.npz is damaged'):
    report.open_runs([run_with_pickle])
  assert not (tmp_path / 'unpickled').exists()


class Unpickled:
  """Leaves a file when it is unpickled."""

  def __init__(self, path):
    self.path = path

  def __reduce__(self):
    return open, (str(self.path), 'w')


@pytest.fixture
def run_with_pickle(tmp_path):
  folder = run_of(tmp_path / 'run', {})
  np.savez(folder / 'partition.npz', counts=np.array([Unpickled(tmp_path / 'unpickled')], object))
  return folder
