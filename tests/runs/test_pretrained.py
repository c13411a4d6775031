"""A run begins with a file's weights (`model.weights`), and again from a run's config.json."""

import json

import numpy as np
import pytest

from fedjax_syn.cli import export
from fedjax_syn.config import ConfigError, check, files, identity, to_dict
from tests.run_helpers import config_of, lines_of, refusal, run

FEDAVG = {'algorithm': 'fedavg', 'compare': '', 'rounds': 1}


def test_a_run_begins_where_exported_weights_are(tmp_path, capsys):
  """Round 0 of the second run is the last round of the first, for every seed."""
  pytest.importorskip('safetensors')  # in the extras export and test
  first, second = tmp_path / 'first', tmp_path / 'second'
  assert run(first, **FEDAVG, seeds=(0,)) == 0
  assert export.main(['export.py', str(first), '--format=safetensors']) == 0
  weights = first / 'export' / 'model.safetensors'
  capsys.readouterr()
  assert run(second, **FEDAVG, **{'model.weights': str(weights)}) == 0
  assert f'model.weights={str(weights)!r}: 4 arrays' in capsys.readouterr().out
  last, *begin = lines_of(first)[-1:] + [m for m in lines_of(second) if m['round'] == 0]
  assert len(begin) == 2
  for line in begin:
    np.testing.assert_allclose(line['test/loss'], last['test/loss'], rtol=1e-5)
  assert 'model.weights' in json.loads((second / 'config.json').read_text())['own_code']
  other = {**FEDAVG, 'model.weights': str(weights), 'model.width': 9}
  assert run(tmp_path / 'none', **other) == 2
  assert 'params.body.dense_0.bias has shape [8], and' in refusal(capsys)
  assert not (tmp_path / 'none').exists()
  weights.write_bytes(b'')  # another content under the same name
  assert run(second, **{**FEDAVG, 'rounds': 2}, **{'model.weights': str(weights)}) == 2
  assert 'was started with another version of model.weights' in refusal(capsys)


def test_one_start_at_a_time():
  with pytest.raises(ConfigError, match='one of the two would work'):
    check({**FEDAVG, 'model.weights': 'w.npz', 'start_from': 'W/checkpoints/3'})


def test_a_run_is_started_again_from_its_config_json(tmp_path):
  """As `--config=W/config.json`: the same run, and other settings on top."""
  config = check(config_of(seeds=(3, 4), targets=(0.5,), algorithm='fedprox'))
  path = tmp_path / 'config.json'
  path.write_text(json.dumps({'config': to_dict(config), 'config_name': 'mine'}))
  again = check(files.load_config(str(path)))
  assert identity.diff(config, again) == [] and again.seeds == (3, 4)
  assert files.name_of(str(path)) == 'mine'
  changed = check(files.load_config(str(path), ['--config.client.lr=0.5', '--config.seeds=7,']))
  assert identity.diff(config, changed) == ['seeds: [3, 4] -> [7]', 'client.lr: 0.001 -> 0.5']
  path.write_text('{}')
  with pytest.raises(ValueError, match='is no config.json of a run'):
    files.load_config(str(path))


def test_a_config_json_imports_no_code_that_is_not_named_again(tmp_path, monkeypatch):
  (tmp_path / 'own_layer_of_rerun.py').write_text(
    'import fedjax_syn as fs\n\nclass Mine(fs.Layer):\n  pass\n'
  )
  monkeypatch.syspath_prepend(tmp_path)
  path = tmp_path / 'config.json'
  path.write_text(json.dumps({'config': {'algorithm': 'own_layer_of_rerun:Mine', 'compare': ''}}))
  with pytest.raises(
    ValueError, match='names code, .* name it yourself: --config.algorithm=own_la'
  ):
    files.load_config(str(path))
  named = files.load_config(str(path), ['--config.algorithm=own_layer_of_rerun:Mine'])
  assert check(named).algorithm == 'own_layer_of_rerun:Mine'
