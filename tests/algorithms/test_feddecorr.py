"""FedDecorr: the correlation loss."""

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_syn.algorithms.feddecorr import correlation_loss


def test_correlation_loss_by_hand():
  """Three samples have the features (1, 2, 3), (2, 4, 6) and (1, 0, 1).

  Standardised, the first two are equal, so their product is N - 1 = 2. The third,
  (1, -2, 1) / sqrt(3), has the product 0 with (-1, 0, 1). The six off-diagonal squares are
  4, 4, 0, 0, 0, 0. Their mean over N = 3 is 8 / 6 / 3. A padded sample changes nothing.
  """
  z = jnp.array([[1.0, 2.0, 1.0], [2.0, 4.0, 0.0], [3.0, 6.0, 1.0], [50.0, -70.0, 9.0]])
  mask = jnp.array([1.0, 1.0, 1.0, 0.0])
  np.testing.assert_allclose(correlation_loss(z, mask), 4 / 9, rtol=1e-5)
  np.testing.assert_allclose(correlation_loss(z[:3], mask[:3]), 4 / 9, rtol=1e-5)
  assert np.isfinite(jax.grad(lambda z: correlation_loss(z, jnp.array([1.0, 0, 0, 0])))(z)).all()
