"""Scores by class and client, compared with scikit-learn, and metrics of one's own."""

import json
import sys

import numpy as np
import pytest
from sklearn import metrics as sk

from fedjax_syn.config import ConfigError, check, trusted
from fedjax_syn.core import own_metrics
from fedjax_syn.runs import restore, scores
from tests.run_helpers import lines_of, run

OWN = """
import numpy as np

def margin(y, logits):
  return np.sort(logits)[:, -1].mean() - np.sort(logits)[:, -2].mean()

def several(y, logits):
  return {'rows': len(y), 'nothing': float('nan')}

def wrong(y, logits):
  return logits

def accuracy(y, logits):
  return 0.0
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
  (tmp_path / 'own_metrics_of_tests.py').write_text(OWN)
  monkeypatch.syspath_prepend(tmp_path)
  yield 'own_metrics_of_tests'
  sys.modules.pop('own_metrics_of_tests', None)


def test_a_run_has_scikit_learns_scores_and_ones_own(own, tmp_path):
  folder = tmp_path / 'run'
  named = (f'{own}:margin', f'{own}:several')
  changes = {
    'algorithm': 'fedavg',
    'rounds': 2,
    'seeds': (0,),
    'metrics': named,
    'data.clients': 11,
  }
  assert run(folder, **changes, **{'data.partition': 'dirichlet'}) == 0
  opened = restore.restore(folder, trusted=True)
  x, y = opened.problem.dataset.test
  evaluate = opened.engine.evaluator(x, y)
  model = opened.state.params, opened.state.stats
  predicted = evaluate.rows(*model)
  with np.load(folder / 'clients' / 'seed_0.npz') as file:
    arrays = dict(file)
  np.testing.assert_array_equal(arrays['confusion'], sk.confusion_matrix(y, predicted))
  wanted = sk.precision_recall_fscore_support(y, predicted, labels=range(10), zero_division=0)
  for name, ratio in zip(('precision', 'recall', 'f1'), wanted, strict=False):
    np.testing.assert_allclose(arrays[f'class_{name}'], ratio)
  found = json.loads((folder / 'summary.json').read_text())['scores']
  macro = sk.precision_recall_fscore_support(y, predicted, average='macro', zero_division=0)
  clients = arrays['global_accuracy']
  clients = np.sort(clients[~np.isnan(clients)])  # a client without samples has none
  assert len(clients) < 11
  for name, value in {
    'balanced_accuracy': sk.balanced_accuracy_score(y, predicted),
    'macro_precision': macro[0],
    'macro_recall': macro[1],
    'macro_f1': macro[2],
    'client_accuracy': clients.mean(),
    'client_accuracy_std': clients.std(),
    'client_accuracy_worst_tenth': clients[: int(np.ceil(len(clients) / 10))].mean(),
  }.items():
    np.testing.assert_allclose(found[name]['per_seed'], [value], err_msg=name)
  last = lines_of(folder)[-1]
  two = np.sort(evaluate.logits(*model))[:, -2:].mean(axis=0)
  np.testing.assert_allclose(last['test/margin'], two[1] - two[0], rtol=1e-4)
  assert last['test/several/rows'] == len(y) and 'test/several/nothing' not in last


def test_absent_classes_count_as_in_scikit_learn():
  """Three classes, of which the last is neither there nor predicted; two clients without rows."""
  y, predicted = np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1])
  confusion = np.array([[1, 1, 0], [0, 2, 0], [0, 0, 0]])
  ratios = sk.precision_recall_fscore_support(y, predicted, labels=range(3), zero_division=0)
  names = ('class_precision', 'class_recall', 'class_f1')
  arrays = dict(zip(names, ratios, strict=False)) | {'confusion': confusion}
  arrays |= {'class_accuracy': np.array([0.5, 1.0, np.nan])}
  arrays |= {'global_accuracy': np.array([0.2, np.nan, 0.6, np.nan])}
  found = scores.of_arrays(arrays)
  assert found['balanced_accuracy'] == sk.balanced_accuracy_score(y, predicted) == 0.75
  np.testing.assert_allclose(found['macro_f1'], sk.f1_score(y, predicted, average='macro'))
  np.testing.assert_allclose(found['client_accuracy'], 0.4)
  np.testing.assert_allclose(found['client_accuracy_std'], 0.2)
  assert found['client_accuracy_worst_tenth'] == 0.2
  assert scores.of_arrays({}) == {}


def test_what_is_no_metric_is_refused(own):
  for word, line in (
    (f'{own}:accuracy', 'is a metric of the library; rename it'),
    (f'{own}:margins', "did you mean 'margin'"),
    ('margin', 'must be module:function or FILE.py:function'),
  ):
    with pytest.raises(ConfigError, match=line):
      check({'algorithm': 'fedavg', 'compare': '', 'metrics': (word,)})
  with pytest.raises(ValueError, match='must return a number, or numbers by name, not a ndarray'):
    own_metrics.values(f'{own}:wrong', np.zeros(2), np.zeros((2, 3)))
  assert trusted.code_of({'metrics': [f'{own}:margin']}) == {'metrics': f'{own}:margin'}
