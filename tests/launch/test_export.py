"""Export: what is written is what was learned, and a model that was written predicts as before."""

import json

import jax
import numpy as np
import pytest
from PIL import Image

import fedjax_syn as fs
from fedjax_syn import config as config_lib
from fedjax_syn import export as export_lib
from fedjax_syn import models, workdir
from fedjax_syn.data.normalisation import NORMALISATIONS
from fedjax_syn.typing import Variables
from launch import export
from tests.runs import config_of

pytest_plugins = ['tests.run_fixtures']


def start(*arguments):
  return export.main(['export.py', *map(str, arguments)])


@pytest.fixture(scope='module')
def folder(whole_folder, tmp_path_factory):
  """What a run of two seeds and ten images leaves, exported; its model is in place of the fake engine's."""
  target = tmp_path_factory.mktemp('exported')
  with pytest.MonkeyPatch.context() as patch:
    stored = workdir.read_json(whole_folder / 'config.json')
    model = fs.api.model_of(config_lib.check(stored['config']), stored['dataset'])
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
  assert there == {*files, 'synthetic_seed1.png', 'my_2.png'}  # what is not an export's stays
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
  assert [path.name for path in (tmp_path / 'all').iterdir()] == ['model.safetensors']
