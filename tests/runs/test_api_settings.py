"""Arguments of `fs.run` that are fields of a config: held-out rows, weights, own functions."""

import flax
import numpy as np
import pytest

import fedjax_syn as fs
from fedjax_syn.config import check, identity
from fedjax_syn.data import datasets
from fedjax_syn.runs import early_stop

OWN = """
import jax.numpy as jnp
import numpy as np

from fedjax_syn.data import datasets


def in_turn(key, round, clients, cohort):
  return (cohort * round + jnp.arange(cohort)) % clients


def error(y, logits):
  return (np.argmax(logits, axis=1) != y).mean()


def half(round, rounds):
  return 0.5


def data():
  return datasets.load('digits')
"""


def run(method, **given):
  shared = {'rounds': 4, 'clients': 6, 'participation': 0.5, 'progress': False}
  return fs.run(method, 'digits', 'mlp', **(shared | given))


def test_held_out_rows_stop_a_seed_and_choose_its_best_model():
  """At a rate of almost zero nothing improves: the best model is w^0, and two rounds follow it."""
  result = run(fs.FedAvg(lr=1e-25), validation=0.2, patience=2, rounds=6)
  assert [line['round'] for line in result.history] == [0, 1, 2]
  first = result.engine.init(0)
  np.testing.assert_array_equal(
    result.best[0].params['head']['kernel'], first.params['head']['kernel']
  )
  trained = run(fs.FedAvg(lr=0.01), validation=0.2)
  best = early_stop.best_line(trained.history, 0)
  evaluate = trained.engine.evaluator(*datasets.load('digits', validation=0.2).validation)
  assert evaluate(*trained.best[0])['accuracy'] == pytest.approx(best['validation/accuracy'])
  assert run(fs.FedAvg(lr=0.01), rounds=1).best[0] is None
  with pytest.raises(ValueError, match='patience=2: needs held-out training rows: validation=0.1'):
    run(fs.FedAvg(), patience=2)


def test_weights_metrics_and_a_sampler_of_a_file(tmp_path):
  path = tmp_path / 'own_of_api.py'
  path.write_text(OWN)
  first = run(fs.FedAvg(lr=0.01), metrics=[f'{path}:error'], sampler=f'{path}:in_turn')
  for line in first.history:
    assert line['test/error'] == pytest.approx(1 - line['test/accuracy'])
  other = run(fs.FedAvg(lr=0.01), rounds=1)
  assert other.history[-1]['test/loss'] != first.history[1]['test/loss']  # other clients took part
  params = flax.traverse_util.flatten_dict(first.variables[0].params, sep='/')
  np.savez(tmp_path / 'w.npz', **params)
  again = run(fs.FedAvg(lr=0.01), rounds=1, weights=str(tmp_path / 'w.npz'), seeds=(3,))
  assert again.history[0]['test/loss'] == pytest.approx(first.history[-1]['test/loss'], rel=1e-6)
  with pytest.raises(ValueError, match="has no function 'none'"):
    run(fs.FedAvg(), metrics=[f'{path}:none'])
  with pytest.raises(ValueError, match='cannot be imported .there is no file'):
    run(fs.FedAvg(), sampler=f'{tmp_path}/none.py:in_turn')


def test_a_function_of_a_file_is_known_by_its_content(tmp_path):
  settings = {'client.schedule': 'warmup(5)+{0}:half', 'client.sampler': '{0}:in_turn'}
  settings |= {'metrics': ('{0}:error',), 'data.name': '{0}:data'}

  def config(folder, text=OWN):
    path = tmp_path / folder / 'own.py'
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    fill = lambda v: v.format(path) if isinstance(v, str) else tuple(w.format(path) for w in v)
    return check({'algorithm': 'fedavg', **{key: fill(value) for key, value in settings.items()}})

  first, moved, changed = config('a'), config('b'), config('c', OWN.replace('0.5', '0.25'))
  assert identity.hash8(first) == identity.hash8(moved) != identity.hash8(changed)
  assert identity.diff(first, moved) == []
  assert set(identity.own_code(first)) == {f'own.py:{n}' for n in ('half', 'in_turn', 'data')}
