"""A client's message by itself is the one that the round aggregates."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_syn as fs
from fedjax_syn.core.contexts import Messages
from fedjax_syn.engine.placement import weighted_sum
from tests import tiny


def test_the_messages_of_the_next_round_add_up_to_it():
  """With uniform weights w^2 = w^1 + (m_0 + m_1) / 2.

  SCAFFOLD's state and broadcast are those of round 1.
  """
  method = fs.chain(fs.FedAvg(lr=0.1, optimizer='sgd', batch_size=2), fs.SCAFFOLD())
  engine = tiny.build(method, tiny.net(4, 3), tiny.federated([5, 3]))
  state, _ = engine.run(0, engine.init(0), 1)
  sent = [engine.message(0, state, client).payload['params'] for client in (0, 1)]
  expected = jax.tree.map(lambda w, a, b: np.asarray(w + (a + b) / 2), state.params, *sent)
  # Without the control variates the round would be another one.
  plain = state._replace(clients=jax.tree.map(np.zeros_like, state.clients))
  other = engine.message(0, plain, 0).payload['params']
  after, _ = engine.run(0, state, 1)
  for key, value in expected.items():
    np.testing.assert_allclose(after.params[key], value, atol=1e-6)
  assert not np.allclose(other['w0'], sent[0]['w0'], atol=1e-4)


NUMBERS = [3, 200, 100]  # of three clients, of which the last has no sample
WEIGHTS = [0.5, 1.5, 0.0]


@pytest.mark.parametrize('kind', ['float32', 'bfloat16', 'int32', 'uint8'])
def test_sums_of_whole_numbers_keep_fractions_and_do_not_overflow(kind):
  """0.5 * 3 + 1.5 * 200 = 301.5, their mean 150.75, and without weights 203 = 3 + 200."""
  weight = jnp.array(WEIGHTS)
  payload = {'n': jnp.array(NUMBERS, kind)}
  weighted, present = weighted_sum(payload, weight), weighted_sum(payload, weight > 0)
  exact = kind != 'bfloat16'  # eight bits of a number
  np.testing.assert_allclose(weighted['n'].astype(float), 301.5, rtol=0 if exact else 2**-8)
  np.testing.assert_allclose(present['n'].astype(float), 203, rtol=0 if exact else 2**-8)
  whole = kind in ('int32', 'uint8')
  types = ('float32', 'int32') if whole else (kind, kind)
  assert (weighted['n'].dtype, present['n'].dtype) == types
  mean = Messages(weight, weighted, present, None).mean('n').astype(float)
  np.testing.assert_allclose(mean, 150.75, rtol=0 if exact else 2**-7)


def test_booleans_are_counted():
  """Clients 0 and 2 say yes to the first, client 2 to the second; their weights are 0.5 and 0."""
  said = {'yes': jnp.array([[True, False], [False, False], [True, True]])}
  weight = jnp.array([0.5, 1.5, 0.0])
  assert weighted_sum(said, weight)['yes'].tolist() == [0.5, 0.0]
  assert weighted_sum(said, weight >= 0)['yes'].tolist() == [2, 1]
