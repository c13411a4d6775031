"""A client's message by itself is the one that the round aggregates."""

import jax
import numpy as np

import fedjax_syn as fs
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
