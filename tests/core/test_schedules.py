"""Schedules over rounds: closed forms, own functions, and what is refused."""

import math
import sys

import numpy as np
import pytest

import fedjax_syn as fs
from fedjax_syn import algorithms
from fedjax_syn.config import check, identity, trusted
from fedjax_syn.core.schedules import ends, schedule

ROUNDS = 10
FACTORS = {  # of round c
  '': lambda c: 1.0,
  'constant': lambda c: 1.0,
  'cosine': lambda c: (1 + math.cos(math.pi * (c - 1) / 10)) / 2,
  'cosine(0.1)': lambda c: 0.1 + 0.9 * (1 + math.cos(math.pi * (c - 1) / 10)) / 2,
  'exponential(0.9)': lambda c: 0.9 ** (c - 1),
  'step(3,0.1)': lambda c: 0.1 ** ((c - 1) // 3),
  'warmup(4)': lambda c: min(c / 4, 1.0),
  'warmup(1)': lambda c: 1.0,
  'warmup(4)+cosine': lambda c: c / 4 if c < 5 else (1 + math.cos(math.pi * (c - 5) / 6)) / 2,
  'warmup(2)+step(3,0.5)': lambda c: c / 2 if c < 3 else 0.5 ** ((c - 3) // 3),
}


@pytest.mark.parametrize('name', FACTORS)
def test_a_schedule_is_its_closed_form(name):
  factor = schedule(name, ROUNDS)
  got = [float(factor(c)) for c in range(1, ROUNDS + 1)]
  np.testing.assert_allclose(got, [FACTORS[name](c) for c in range(1, ROUNDS + 1)], rtol=1e-5)
  assert ends(name) == ('cosine' in name)


@pytest.mark.parametrize(
  'name',
  [
    *('cosin', 'cosine(2)', 'cosine(0,1)', 'step(3)', 'step(0.5,0.1)', 'step(3,0)', 'warmup(0)'),
    *('warmup(1.5)', 'warmup(2)+cosin', 'cosine+warmup(2)', '(0.5)', 'step(x,0.1)'),
    *('exponential', 'exponential(nan)', 'constant(1)', 'warmup'),
  ],
)
def test_what_is_no_schedule_is_refused(name):
  with pytest.raises(
    ValueError, match='serverrate.schedule=.* is unknown; known: .*module:function'
  ):
    schedule(name, ROUNDS, 'serverrate.schedule')


@pytest.fixture
def own(tmp_path, monkeypatch):
  """A module with functions of a user."""
  (tmp_path / 'own_rates.py').write_text(
    'def half(round, rounds):\n  return 0.5 * round / rounds\n'
    'def vector(round, rounds):\n  return [1.0, 2.0]\n'
  )
  monkeypatch.syspath_prepend(tmp_path)
  yield
  sys.modules.pop('own_rates', None)


def test_a_function_of_ones_own(own):
  assert float(schedule('own_rates:half', ROUNDS)(4)) == pytest.approx(0.2)
  engine_rounds = {'rounds': 7, 'client.schedule': 'own_rates:half', 'algorithm': 'fedavg'}
  resolved = check(engine_rounds)
  assert identity.depends_on_rounds(resolved) == ["client.schedule='own_rates:half'"]
  assert list(identity.own_code(resolved)) == ['own_rates:half']
  with pytest.raises(ValueError, match='must return one number'):
    schedule('own_rates:vector', ROUNDS)(1)
  with pytest.raises(ValueError, match="no function 'halve'; did you mean 'half'"):
    schedule('own_rates:halve', ROUNDS)
  with pytest.raises(ValueError, match='the number of rounds is not known here'):
    schedule('own_rates:half', 0)(1)


def test_a_file_names_no_function_without_trust(own):
  stored = algorithms.to_json(fs.chain(fs.FedAvg(schedule='own_rates:half')))
  with pytest.raises(ValueError, match='schedule=.* names code'):
    algorithms.from_json(stored)
  assert algorithms.from_json(stored, trusted=True)[fs.FedAvg].schedule == 'own_rates:half'
  for content in (
    {'client': {'schedule': 'own_rates:half'}},
    {'compare': 'fedavg(client.schedule=own_rates:half)'},
  ):
    assert trusted.code_of(content) == {'client.schedule': 'own_rates:half'}
