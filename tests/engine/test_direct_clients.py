"""Clients that do not train locally: a custom layer with client state, server state and metrics."""

import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_syn as fs
from fedjax_syn.core.contexts import Message
from fedjax_syn.data import federated
from fedjax_syn.engine import rounds
from tests import tiny

MODEL = tiny.quadratic(1.0)  # one object: programs are looked up by it


class Sums(fs.Layer):
  """Clients send the mean of their pixels, and 10 for each round in which they took part before."""

  rate: float = fs.field(default=0.5)

  def client_init(self, task, initial, shard):
    return jnp.zeros((), jnp.int32)

  def client_update(self, client):
    x, _, mask = federated.batch(client.task.data, client.shard, 0, 4)
    mean = jnp.sum(x.ravel() * mask) / jnp.maximum(mask.sum(), 1)
    weight = (client.shard.size > 0).astype(mean.dtype)
    numbers = {'loss': mean, 'finite': jnp.isfinite(mean), 'before': client.state}
    sent = Message(weight, {'sums': mean + 10 * client.state + client.broadcast})
    return sent, client.state + 1, numbers

  def server_init(self, task, key, params, messages):
    return jnp.zeros(())

  def broadcast(self, total):
    return total

  def aggregate(self, round):
    moved = self.rate * round.messages.mean('sums')
    return {'w': round.params['w'] + moved}, {'moved': moved}

  def server_update(self, round, new):
    return new, round.state + round.messages.sum('sums')

  def artifacts(self, task, total):
    return {'x': np.asarray(total)}

  def evaluate(self, task, key, total, stats):
    return {'total': np.asarray(total)}


class Stateless(fs.Layer):
  """Sends nothing and has no state: its `artifacts` and `evaluate` see None."""

  def client_update(self, client):
    sent = Message(jnp.ones(()), {'nothing': jnp.zeros(())})
    return sent, None, {'loss': jnp.zeros(()), 'finite': jnp.ones((), bool)}

  def aggregate(self, round):
    return round.params, {}

  def artifacts(self, task, state):
    return {'none': state is None}

  def evaluate(self, task, key, state, stats):
    return {'none': state is None}


def engine_of(layer, **layout):
  """Clients {0}, {4, 4, 4} and one without samples."""
  x = np.array([0, 4, 4, 4], np.uint8).reshape(4, 1, 1, 1)
  data = tiny.clients_of(x, np.zeros(4, int), [1, 3, 0], 1)
  layout = fs.Layout(devices=1, **layout)
  return tiny.build(layer, MODEL, data, loss=tiny.half_square, layout=layout)


@pytest.mark.parametrize(
  'layout', [{}, {'lanes': 2}, {'form': 'loop'}, {'client_state_bytes': 1}], ids=str
)
def test_two_rounds_by_hand(layout):
  """Round 1 sends 0 and 4, so w = 1 + 2 / 2 = 2 and the total is 4.

  Round 2 sends 10 + 4 and 14 + 4, so w = 2 + 16 / 2 = 10 and the total is 36. The mean loss is
  over rows: one of 0 and three of 4.
  """
  engine = engine_of(Sums(), **layout)
  assert engine.client_state_place == ('host' if 'client_state_bytes' in layout else 'device')
  assert engine.client_state_bytes == 3 * 4
  state = engine.init(0)
  for w, total, done, loss in ((2.0, 4.0, 1, 3.0), (10.0, 36.0, 2, 3.0)):
    state, report = engine.run(0, state, 1)
    np.testing.assert_allclose(state.params['w'], w, rtol=1e-6)
    np.testing.assert_allclose(state.server['sums'], total, rtol=1e-6)
    np.testing.assert_array_equal(np.asarray(state.clients['sums'])[:3], [done, done, 0])
    assert report['train/loss'] == pytest.approx(loss)
    assert report['sums/before'] == done - 1
    assert report['sums/moved'] == pytest.approx(w - (1.0 if done == 1 else 2.0))
  np.testing.assert_allclose(engine.message(0, state, 1).payload['sums'], 4 + 20 + 36, rtol=1e-6)
  assert engine.diagnose(0, state) == {'total': 36.0}
  assert engine.artifacts(state) == {'x': 36.0}
  assert engine.bytes_per_round() == (3 * 4, 3 * (4 + 4))  # w and the total go down


def test_without_any_state():
  engine = engine_of(Stateless())
  state, _ = engine.run(0, engine.init(0), 1)
  assert state.clients == {} and state.server == {} and float(state.params['w']) == 1.0
  assert engine.artifacts(state) == engine.diagnose(0, state) == {'none': True}


def test_another_value_of_a_field_is_another_result_of_the_same_program():
  """rate 0.25: w = 1 + 2 / 4."""
  engine_of(Sums()).run(0, engine_of(Sums()).init(0), 1)
  programs = rounds.many_rounds._cache_size()
  engine = engine_of(Sums(rate=0.25))
  state, _ = engine.run(0, engine.init(0), 1)
  np.testing.assert_allclose(state.params['w'], 1.5, rtol=1e-6)
  assert rounds.many_rounds._cache_size() == programs


def test_hooks_of_local_training_beside_client_update_are_refused():
  class Both(Sums):
    def loss(self, client, loss_fn, w, step):
      return loss_fn(w, step)

  with pytest.raises(ValueError, match="'both' replaces local training .* its loss is not called"):
    fs.chain(Both())
