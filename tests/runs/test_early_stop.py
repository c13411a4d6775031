"""Early stopping and the best model follow held-out rows; test rows select nothing."""

import json

import numpy as np
import pytest

import fedjax_syn as fs
from fedjax_syn.cli import export
from fedjax_syn.config import ConfigError, check
from fedjax_syn.core.types import Variables
from fedjax_syn.runs import early_stop, metrics, restore
from fedjax_syn.runs.export import load_model
from tests.run_helpers import lines_of, run

LINES = [  # validation rises to round 2, equals it in round 4; the test accuracy says otherwise
  {'round': r, 'seed': 0, 'validation/accuracy': v, 'test/accuracy': t}
  for r, v, t in ((0, 0.1, 0.9), (1, 0.3, 0.2), (2, 0.5, 0.3), (3, 0.4, 0.8), (4, 0.5, 0.7))
]


def test_the_first_best_round_by_held_out_rows_and_the_evaluations_after_it():
  assert early_stop.best_line(LINES, 0)['round'] == 2
  assert early_stop.best_line(LINES, 1) is None
  assert not early_stop.is_over(LINES, 0, 3) and early_stop.is_over(LINES, 0, 2)
  assert not early_stop.is_over(LINES, 0, 0)
  chosen = early_stop.selected(LINES, (0,), [])
  assert {k: v['per_seed'] for k, v in chosen.items()} == {
    'round': [2],
    'test_accuracy': [0.3],
    'validation_accuracy': [0.5],
  }
  assert early_stop.selected(LINES, (0,), [0])['round']['per_seed'] == [None]


def test_the_summary_ends_where_a_seed_stopped():
  """Rounds 0 to 4 of 9: the last five are 0 to 4, of which w^0 is left out."""
  found = metrics.accuracy_summary(LINES, (0,), 9, [], 'test/accuracy', {0: 4})
  assert found['last']['per_seed'] == [0.7] and found['best']['per_seed'] == [0.9]
  np.testing.assert_allclose(found['mean_last_5']['per_seed'], [(0.2 + 0.3 + 0.8 + 0.7) / 4])
  assert metrics.accuracy_summary(LINES, (0,), 9, [], 'test/accuracy')['last']['per_seed'] == [None]


@pytest.mark.parametrize('changes', [{'patience': 3}, {'keep_best': True}])
def test_held_out_rows_are_needed(changes):
  with pytest.raises(ConfigError, match='needs held-out training rows: data.validation=0.1'):
    check({**changes, 'algorithm': 'fedavg', 'compare': ''})


def test_a_seed_stops_and_keeps_its_best_model(tmp_path, capsys):
  """At a rate of almost zero nothing improves: the best model is w^0, and two rounds follow it."""
  plain = {'algorithm': 'fedavg', 'data.validation': 0.2, 'rounds': 6}
  still = {**plain, 'client.lr': 1e-25, 'patience': 2}
  stopped, whole = tmp_path / 'stopped', tmp_path / 'whole'
  assert run(stopped, **still) == 0 and 'stopped early, after round 2' in capsys.readouterr().out
  summary = json.loads((stopped / 'summary.json').read_text())
  assert summary['status']['1'] == {'status': 'stopped', 'round': 2, 'best_round': 0}
  assert [line['round'] for line in lines_of(stopped)] == [0, 1, 2] * 2
  assert summary['selected']['round']['per_seed'] == [0, 0]
  assert (stopped / 'clients' / 'seed_1.npz').exists()
  assert run(stopped, **still) == 0 and 'nothing was trained now' in capsys.readouterr().out

  assert run(whole, **{**plain, 'client.lr': 0.01, 'keep_best': True}) == 0
  summaries = [json.loads((path / 'summary.json').read_text()) for path in (stopped, whole)]
  assert 3 * summaries[0]['bytes_up'] == summaries[1]['bytes_up']  # two rounds of six
  lines = [line for line in lines_of(whole) if line['seed'] == 1]
  best = max(lines, key=lambda line: line['validation/accuracy'])
  assert best['round'] > 0
  model = fs.load(whole, 1, best=True).variables
  opened = restore.restore(whole, 1)
  rows = opened.problem.dataset.validation
  found = opened.engine.evaluator(rows.x, rows.y)(*Variables(*model))
  np.testing.assert_allclose(found['accuracy'], best['validation/accuracy'])
  path = whole / 'best' / 'seed_0.npz'
  with np.load(path) as file:
    arrays = dict(file)
  np.savez(path, **arrays | {'round': np.int64(0)})
  with pytest.raises(ValueError, match='seed_0.npz is damaged: it is not what was written'):
    fs.load(whole, 0, best=True)
  path.unlink()
  with pytest.raises(ValueError, match='seed_0.npz is missing'):
    fs.load(whole, 0, best=True)
  capsys.readouterr()
  assert run(whole, **{**plain, 'client.lr': 0.01, 'keep_best': True}) == 0
  said = capsys.readouterr()
  assert 'seed_0.npz is missing; no checkpoint holds this model' in said.out + said.err
  with pytest.raises(FileNotFoundError, match='no best model was kept'):
    early_stop.load_best(tmp_path, 0, Variables(*model))


def test_the_models_of_clients_are_those_that_were_measured(tmp_path):
  """FedRep's: a client's own head on the last body, trained once more."""
  pytest.importorskip('safetensors')  # in the extras export and test
  folder, target = tmp_path / 'run', tmp_path / 'out'
  changes = {'seeds': (0,), 'rounds': 2, 'personal_every': 2, 'data.partition': 'dirichlet'}
  assert run(folder, algorithm='fedrep', **changes) == 0
  words = [str(folder), '--format=safetensors', '--clients', f'--output={target}']
  assert export.main(['export.py', *words]) == 0
  with np.load(folder / 'clients' / 'seed_0.npz') as file:
    measured = file['personal_accuracy']
  counts = np.load(folder / 'partition.npz')['counts']
  test = restore.restore(folder).problem.dataset.test
  for client, accuracy in enumerate(measured):
    loaded = load_model(target / 'clients' / f'client_{client}.safetensors')
    x = (test.x / 255 - loaded.mean) / loaded.std
    right = np.argmax(loaded.model.apply(loaded.variables, x).logits, axis=1) == test.y
    by_class = [right[test.y == c].mean() for c in range(10)]
    np.testing.assert_allclose(np.average(by_class, weights=counts[client]), accuracy, atol=1e-6)
  assert len({*measured}) > 1
