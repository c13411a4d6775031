"""Local training: how wide a step is."""

import jax
import numpy as np
import pytest

import fedjax_syn as fs
from fedjax_syn.core.objectives import cross_entropy
from tests import tiny


@pytest.mark.parametrize('options', [{'epochs': 2}, {'epochs': 0, 'steps': 3}])
def test_a_step_is_never_wider_than_the_largest_client(options):
  """A batch of a billion, or 0, takes a whole client's data, as a batch of 5 does here.

  All compile to the same program and agree to the last bit.
  """
  data, widths, ends = tiny.federated([5, 0, 2]), [], []

  def loss(logits, y, mask):
    widths.append(mask.shape[0])
    return cross_entropy(logits, y, mask)

  for batch_size in (5, 10**9, 0):
    method = fs.FedAvg(lr=0.1, optimizer='sgd', momentum=0.5, batch_size=batch_size, **options)
    engine = tiny.build(method, tiny.net(4, 3), data, loss=loss)
    ends.append(engine.run(0, engine.init(0), 2)[0].params)
  assert set(widths) == {5}
  for end in ends[1:]:
    jax.tree.map(np.testing.assert_array_equal, ends[0], end)


def test_gradients_are_clipped_before_weight_decay():
  """w = 1, rate 1/2, one batch. A: 1 is clipped to 0.4, + 0.2 w: 0.7. B: -0.4 + 0.2: 1.1."""
  method = fs.FedAvg(lr=0.5, optimizer='sgd', batch_size=0, clip_norm=0.4, weight_decay=0.2)
  engine = tiny.build(method, tiny.quadratic(1.0), tiny.two_points(), loss=tiny.half_square)
  state, _ = engine.run(0, engine.init(0), 1)
  np.testing.assert_allclose(state.params['w'], (0.7 + 1.1) / 2, rtol=1e-6)
