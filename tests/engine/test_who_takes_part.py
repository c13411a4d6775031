"""Dropouts, stragglers and own samplers: what happened is what counts."""

import sys

import jax
import numpy as np
import pytest

import fedjax_syn as fs
from fedjax_syn.config import check
from fedjax_syn.engine import Engine, Layout
from fedjax_syn.engine.inspection import sampled_clients
from tests import tiny


class Steps(fs.Layer):
  """Clients send how many steps they took."""

  def finish(self, client, trained, steps):
    return steps, None


def sgd(**fields):
  return fs.FedAvg(lr=0.5, optimizer='sgd', batch_size=1, **fields)


def engine_of(*layers, data=None, **options):
  data = tiny.two_points() if data is None else data
  return tiny.build(fs.chain(*layers), tiny.quadratic(1.0), data, loss=tiny.half_square, **options)


def test_a_straggler_takes_a_part_of_its_steps():
  """From w = 1, k steps of B's three towards 4 at rate 1/2 end at 4 - 3 / 2^k."""
  engine = engine_of(sgd(stragglers=1.0), Steps())
  state, taken = engine.init(0), set()
  for seed in range(20):
    payload = engine.message(seed, state, 1).payload
    steps = int(payload['steps'])
    np.testing.assert_allclose(payload['params']['w'], 3 - 3 / 2**steps, rtol=1e-6)
    taken.add(steps)
  assert taken == {1, 2, 3}
  some = engine_of(sgd(stragglers=0.5, epochs=4), Steps())  # 12 steps
  steps = [int(some.message(seed, state, 1).payload['steps']) for seed in range(40)]
  assert 10 < sum(k == 12 for k in steps) < 34 and min(steps) >= 1
  assert int(engine_of(sgd(), Steps()).message(0, state, 1).payload['steps']) == 3


def test_stragglers_take_the_same_steps_in_every_layout():
  """And FedNova counts the steps that were taken."""
  data, ends, counted = tiny.federated([6, 0, 3, 9]), [], []
  for layout in (Layout(1, 'loop', 1), Layout(4, 'blocks', 1)):
    method = fs.chain(
      fs.FedAvg(lr=0.1, optimizer='sgd', batch_size=2, epochs=2, stragglers=0.7), fs.FedNova()
    )
    engine = Engine(method, tiny.net(4, 3), data, layout=layout)
    state, report = engine.run(0, engine.init(0), 3)
    ends.append(state.params)
    counted.append(report['fednova/effective_steps'])
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), *ends)
  assert counted[0] == pytest.approx(counted[1]) and counted[0] < (6 + 4 + 10) / 3


def test_who_drops_out_sends_nothing():
  data = tiny.federated([4] * 10)
  method = fs.FedAvg(lr=0.1, optimizer='sgd', batch_size=2, dropouts=0.5)
  engine = tiny.build(method, tiny.net(4, 3), data)
  drawn = np.stack(
    [sampled_clients(engine.setting, np.int32(3), np.int32(r)) for r in range(1, 31)]
  )
  answers = (drawn < 10).sum()
  assert 100 < answers < 200  # of 300
  each = 4 * (20 + 5 + 15)  # bytes of w0 [4, 5], b0 [5], w1 [5, 3]
  assert engine.bytes_per_round()[1] == 10 * each and engine.bytes_up(3, 30) == answers * each
  nobody = tiny.build(
    fs.FedAvg(lr=0.1, optimizer='sgd', batch_size=2, dropouts=1.0), tiny.net(4, 3), data
  )
  state, report = nobody.run(0, nobody.init(0), 2)
  jax.tree.map(np.testing.assert_array_equal, state.params, nobody.init(0).params)
  assert nobody.bytes_up(0, 2) == 0 and 'train/loss' not in report
  assert nobody.empty_rounds(0, 0, 2) == 2
  with pytest.raises(ValueError, match='client.dropouts=0.5: no epsilon could be stated'):
    tiny.build(fs.chain(method, fs.DP()), tiny.net(4, 3), data)
  with pytest.raises(ValueError, match='take no local steps; 0 would work'):
    tiny.build(fs.chain(fs.FedAvg(stragglers=0.5), Sends()), tiny.net(4, 3), data)


class Sends(fs.Layer):
  """Clients that do not train."""

  def client_update(self, client):
    raise AssertionError('not called')


SAMPLERS = """
import jax.numpy as jnp

def in_turn(key, round, clients, cohort):
  return (cohort * round + jnp.arange(cohort)) % clients

def twice(key, round, clients, cohort):
  return jnp.full(cohort, 2)

def other(key, round, clients, cohort):
  return jnp.arange(cohort + 1)
"""


def test_a_sampler_of_ones_own(tmp_path, monkeypatch):
  (tmp_path / 'own_samplers_of_tests.py').write_text(SAMPLERS)
  monkeypatch.syspath_prepend(tmp_path)
  data = tiny.federated([2] * 5)

  def drawn(name, number):
    engine = tiny.build(
      sgd(), tiny.net(4, 3), data, participation=0.4, sampler=f'own_samplers_of_tests:{name}'
    )
    return sampled_clients(engine.setting, np.int32(0), np.int32(number)).tolist()

  assert [drawn('in_turn', r) for r in (1, 2, 3)] == [[2, 3], [4, 0], [1, 2]]
  assert drawn('twice', 1) == [2, 5]  # the second time it is nobody
  with pytest.raises(ValueError, match='must return 2 client numbers, got int'):
    drawn('other', 1)
  fine = {'algorithm': 'fedavg', 'compare': '', 'client.sampler': 'own_samplers_of_tests:in_turn'}
  assert check(fine).client.sampler == fine['client.sampler']
  with pytest.raises(ValueError, match="client.sampler='own_samplers_of_tests:turn'.*'in_turn'"):
    check({**fine, 'client.sampler': 'own_samplers_of_tests:turn'})
  sys.modules.pop('own_samplers_of_tests', None)
