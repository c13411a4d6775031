"""Export: what is written is what was learned, and a model that was written predicts as before."""

import hashlib
import json
import shutil

import jax
import numpy as np
import pytest
from PIL import Image

import fedjax_syn as fs
from fedjax_syn import config as config_lib
from fedjax_syn import models
from fedjax_syn.cli import export
from fedjax_syn.core.types import Variables
from fedjax_syn.data.normalisation import NORMALISATIONS
from fedjax_syn.runs import api, lock, stored_files, work_folder
from fedjax_syn.runs import export as export_lib
from tests.run_helpers import config_of

pytest_plugins = ['tests.run_fixtures']


def start(*arguments):
  return export.main(['export.py', *map(str, arguments)])


@pytest.fixture(scope='module')
def folder(whole_folder, tmp_path_factory):
  """Exports a run of two seeds and ten images; a real model replaces the fake engine's."""
  target = tmp_path_factory.mktemp('exported')
  with pytest.MonkeyPatch.context() as patch:
    stored = work_folder.config(whole_folder)
    model = api.model_of(config_lib.check(stored['config']), stored['dataset'])
    real = fs.load(whole_folder)._replace(variables=model.init(jax.random.key(1)))
    patch.setattr(fs, 'load', lambda *_, **__: real)
    assert start(whole_folder, f'--output={target}') == 0
  return target, real


def test_the_set_is_the_same_in_every_format(folder):
  from safetensors.numpy import load_file

  target, real = folder
  with np.load(target / 'synthetic.npz') as file:
    made = dict(file)
  tensors = load_file(target / 'synthetic.safetensors')
  assert sorted(tensors) == sorted(made)
  for name, values in made.items():
    np.testing.assert_array_equal(tensors[name], values)
  np.testing.assert_array_equal(made['x'], real.synthetic['x'][-1])
  np.testing.assert_array_equal(made['labels'], np.arange(10))  # the fake's: one image a class
  grey = made['x'] * made['std'] + made['mean']
  assert np.abs(made['pixels'] / 255 - np.clip(grey, 0, 1)).max() <= 0.5 / 255 + 1e-6
  for i in range(10):
    image = np.asarray(Image.open(target / 'synthetic' / f'{i}_{i}.png'))
    np.testing.assert_array_equal(image, made['pixels'][i, :, :, 0])
  assert len(list((target / 'synthetic').iterdir())) == 10


def test_names_of_classes_go_along(folder, tmp_path):
  """Class 0 is called 'T-shirt/top', class 1 by its number, which is not said twice."""
  from safetensors import safe_open

  names = ('T-shirt/top', *map(str, range(1, 10)))
  made = export_lib.last_set(folder[1].synthetic, names)
  export_lib.save_npz(made, tmp_path)
  with np.load(tmp_path / 'synthetic.npz', allow_pickle=False) as file:
    assert tuple(file['class_names']) == names
  for name in ('synthetic/12_1.png', 'synthetic/synthetic_seed1.png', 'synthetic/my_2.png'):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()
  files = [path.name for path in export_lib.save_pngs(made, tmp_path)]
  there = {path.name for path in (tmp_path / 'synthetic').iterdir()}
  assert there == {*files, 'synthetic_seed1.png', 'my_2.png', '12_1.png'}  # not an export's: stays
  assert files[:2] == ['0_T-shirt-top_0.png', '1_1.png']
  export_lib.save_safetensors(made, tmp_path)
  with safe_open(tmp_path / 'synthetic.safetensors', 'numpy') as file:
    assert json.loads(file.metadata()['class_names']) == list(names)


def test_a_model_comes_back_whole(folder):
  target, real = folder
  found = export_lib.load_model(target / 'model.safetensors')
  pixels = np.random.default_rng(0).integers(0, 256, (5, 8, 8, 1))
  x = ((pixels / 255 - found.mean) / found.std).astype(np.float32)
  before, after = (m.apply(v, x).logits for m, v in ((real.model, real.variables), found[:2]))
  np.testing.assert_allclose(before, after, rtol=1e-4, atol=1e-6)
  jax.tree.map(np.testing.assert_array_equal, real.variables, found.variables)
  np.testing.assert_allclose(found.mean, NORMALISATIONS['digits'].mean, rtol=1e-6)


def test_running_statistics_come_back(tmp_path):
  config = config_of(**{'model.name': 'convnet', 'model.depth': 1, 'model.norm': 'batch'})
  names = {'class_names': [f'kind {c}' for c in range(10)], 'client_names': ['ann']}
  dataset = {'shape': [8, 8, 1], 'num_classes': 10, 'normalisation': {'mean': [0.5], 'std': [0.5]}}
  stored = {'config': config_lib.to_dict(config), 'dataset': dataset | names}
  model = models.create('convnet', shape=(8, 8, 1), num_classes=10, width=8, depth=1, norm='batch')
  made = model.init(jax.random.key(0))
  shifted = Variables(made.params, jax.tree.map(lambda leaf: leaf + 0.25, made.stats))
  export_lib.save_model(shifted, stored, tmp_path / 'm.safetensors')
  opened = export_lib.load_model(tmp_path / 'm.safetensors')
  assert opened.class_names == tuple(names['class_names'])
  assert b'"ann"' not in (tmp_path / 'm.safetensors').read_bytes()  # it may be given away
  assert b'client_names' not in (tmp_path / 'm.safetensors').read_bytes()
  found = opened.variables
  assert jax.tree.structure(found) == jax.tree.structure(shifted)
  jax.tree.map(np.testing.assert_array_equal, found, shifted)


def a_set(labels):
  """A set of black images."""
  labels = np.array(labels, np.int32)
  return {'pixels': np.zeros((len(labels), 2, 2, 1), np.uint8), 'labels': labels}


@pytest.mark.parametrize('channels', [2, 4, 5])
def test_channels_that_a_png_does_not_show_are_not_dropped(tmp_path, channels):
  """Of four it held three, of two one."""
  many = a_set([0]) | {'pixels': np.zeros((1, 2, 2, channels), np.uint8)}
  with pytest.raises(ValueError, match=f'format=png: the images have {channels} channels'):
    export_lib.save_pngs(many, tmp_path)
  assert not list(tmp_path.iterdir())
  export_lib.check_shown(many, ('npz', 'safetensors'))


def test_an_export_removes_what_an_export_wrote_and_nothing_else(tmp_path):
  foreign = ('3_12.png', '2024_05_12.png', '0_cat_7.png', '7_7.png.bak')
  for name in foreign:
    (tmp_path / 'synthetic').mkdir(exist_ok=True)
    (tmp_path / 'synthetic' / name).write_text('mine')
  export_lib.save_pngs(a_set([0, 1, 2]), tmp_path)
  (tmp_path / 'synthetic/1_1.png').write_text('changed since by its owner')
  export_lib.save_pngs(a_set([0]), tmp_path)
  there = {path.name for path in (tmp_path / 'synthetic').iterdir()}
  assert there == {*foreign, '0_0.png', '1_1.png'}
  assert all((tmp_path / 'synthetic' / name).read_text() == 'mine' for name in foreign)


@pytest.mark.parametrize('name', ['synthetic/2_2.png', 'synthetic.npz', 'synthetic.safetensors'])
def test_an_export_overwrites_nothing_that_no_export_wrote(tmp_path, name):
  (tmp_path / name).parent.mkdir(exist_ok=True)
  (tmp_path / name).write_text('mine')
  save = {'.png': export_lib.save_pngs, '.npz': export_lib.save_npz}
  save = save.get((tmp_path / name).suffix, export_lib.save_safetensors)
  before = sorted(tmp_path.rglob('*'))
  with pytest.raises(ValueError, match='no export wrote it'):
    save(a_set([0, 1, 2]), tmp_path)
  assert (tmp_path / name).read_text() == 'mine' and sorted(tmp_path.rglob('*')) == before


def test_an_export_again_is_no_conflict_even_over_one_of_an_older_version(tmp_path):
  for save in (export_lib.save_pngs, export_lib.save_npz):
    save(a_set([0, 1]), tmp_path)
  (tmp_path / 'export.json').unlink()  # older versions left none
  for save in (export_lib.save_pngs, export_lib.save_npz):
    save(a_set([0, 1]), tmp_path)
  export_lib.save_npz(a_set([5]), tmp_path)
  with np.load(tmp_path / 'synthetic.npz') as file:
    assert file['labels'].tolist() == [5]


def test_two_exports_into_one_folder_are_refused_and_leave_no_lock(whole_folder, tmp_path, capsys):
  target = tmp_path / 'to'
  arguments = whole_folder, f'--output={target}', '--format=npz'
  with lock.hold(target), pytest.raises(SystemExit, match='2'):
    start(*arguments)
  (line,) = capsys.readouterr().err.splitlines()
  assert 'uses this folder' in line and not target.exists()
  assert start(*arguments) == 0 and not (target / '.lock').exists()


def test_a_manifest_removes_nothing_outside(tmp_path):
  (tmp_path / 'out').mkdir()
  (tmp_path / 'precious').write_text('mine')
  digest = hashlib.sha256(b'mine').hexdigest()
  names = {'../precious': digest, str(tmp_path / 'precious'): digest}
  stored_files.write_json(tmp_path / 'out/export.json', {'png': names})
  export_lib.save_pngs(a_set([0]), tmp_path / 'out')
  assert (tmp_path / 'precious').read_text() == 'mine'


def test_a_long_class_name_gives_a_file(tmp_path):
  names = {'class_names': np.array(['x' * 300, 'y'])}
  (path, _) = export_lib.save_pngs(a_set([0, 1]) | names, tmp_path)
  assert path.name == f'0_{"x" * 40}_0.png' and path.is_file()


def test_the_run_s_own_set_is_not_overwritten(whole_folder, capsys):
  """--output=W/synthetic holds the run's own synthetic.npz, of another shape."""
  before = (whole_folder / 'synthetic/synthetic.npz').read_bytes()
  with pytest.raises(SystemExit):
    start(whole_folder, '--format=npz', f'--output={whole_folder / "synthetic"}')
  assert 'no export wrote it' in capsys.readouterr().err
  assert (whole_folder / 'synthetic/synthetic.npz').read_bytes() == before


@pytest.mark.parametrize(
  'arguments, words',
  [
    (['{empty}'], ['{empty}', 'config.json']),
    ([], ['0 folders given']),
    (['{run}', '--format=jpeg'], ['--format=jpeg', 'safetensors']),
    (['{run}', '--seed=7'], ['seed 7', '0, 1']),
  ],
)
def test_refusals_are_one_line(whole_folder, tmp_path, capsys, arguments, words):
  put = lambda text: text.format(run=whole_folder, empty=tmp_path)
  with pytest.raises(SystemExit) as stopped:
    start(*map(put, arguments))
  assert stopped.value.code == 2
  (line,) = capsys.readouterr().err.splitlines()
  assert all(put(word) in line for word in words)


def test_a_run_without_a_set_has_a_model_only(whole_folder, tmp_path, monkeypatch, capsys):
  bare = fs.load(whole_folder)._replace(synthetic=None)
  monkeypatch.setattr(fs, 'load', lambda *_, **__: bare)
  with pytest.raises(SystemExit):
    start(whole_folder, '--format=png', f'--output={tmp_path / "png"}')
  assert 'no synthetic set' in capsys.readouterr().err and not (tmp_path / 'png').exists()
  assert start(whole_folder, f'--output={tmp_path / "all"}') == 0
  there = {path.name for path in (tmp_path / 'all').iterdir()}
  assert there == {'model.safetensors', 'export.json'}
  assert 'no synthetic set: this run learned none' in capsys.readouterr().out


def test_a_run_that_goes_on_is_not_said_to_have_learned_no_set(whole_folder, tmp_path, capsys):
  unfinished = tmp_path / 'run'
  shutil.copytree(whole_folder, unfinished)
  (unfinished / 'summary.json').unlink()
  shutil.rmtree(unfinished / 'synthetic')
  assert start(unfinished) == 0
  assert 'no synthetic set: this run is not finished' in capsys.readouterr().out
  assert (unfinished / 'export/model.safetensors').exists()
