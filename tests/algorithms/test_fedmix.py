"""FedMix: whose averages are drawn."""

import jax
import numpy as np

import fedjax_syn as fs
from tests import tiny


def test_it_draws_no_client_without_samples():
  """FedMix never draws client 1, which has no samples. With lambda 0 FedMix is its base."""
  data = tiny.federated([4, 0, 3])
  base = lambda: fs.FedAvg(lr=0.1, optimizer='sgd', batch_size=2)
  mixed = tiny.build(fs.chain(base(), fs.FedMix(mixing=0.0)), tiny.net(4, 3), data)
  plain = tiny.build(base(), tiny.net(4, 3), data)
  a, _ = mixed.run(0, mixed.init(0), 2)
  b, _ = plain.run(0, plain.init(0), 2)
  for p, q in zip(jax.tree.leaves(a.params), jax.tree.leaves(b.params), strict=True):
    np.testing.assert_allclose(p, q, rtol=0, atol=1e-6)
  images, labels, present = mixed.init(0).server['fedmix']
  np.testing.assert_array_equal(present, [1, 0, 1])
  np.testing.assert_allclose(np.asarray(labels).sum(1), [1, 0, 1], rtol=1e-6)
  want = (np.asarray(data.x[:4], float) / 255 - 0.5).mean(0) / 0.3
  np.testing.assert_allclose(images[0], want, rtol=1e-4, atol=1e-6)
