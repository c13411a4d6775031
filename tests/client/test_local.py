"""Local training: how wide a step is."""

import jax
import numpy as np
import pytest

import fedjax_syn as fs
from fedjax_syn.core.objectives import cross_entropy
from tests import tiny


@pytest.mark.parametrize('options', [{'epochs': 2}, {'epochs': 0, 'steps': 3}])
def test_a_step_is_never_wider_than_the_largest_client(options):
  """A batch of a billion takes a whole client's data, as a batch of 5 does here.

  Both compile to the same program and agree to the last bit.
  """
  data, widths, ends = tiny.federated([5, 0, 2]), [], []

  def loss(logits, y, mask):
    widths.append(mask.shape[0])
    return cross_entropy(logits, y, mask)

  for batch_size in (5, 10**9):
    method = fs.FedAvg(lr=0.1, optimizer='sgd', momentum=0.5, batch_size=batch_size, **options)
    engine = tiny.build(method, tiny.net(4, 3), data, loss=loss)
    ends.append(engine.run(0, engine.init(0), 2)[0].params)
  assert set(widths) == {5}
  jax.tree.map(np.testing.assert_array_equal, *ends)
