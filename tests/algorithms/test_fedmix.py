"""FedMix: whose averages are there to be drawn."""

import numpy as np

import fedjax_syn as fs
from tests import tiny


def test_a_client_without_samples_has_no_average():
  """Client 1 has no samples; client 0's average is that of its four images."""
  data = tiny.federated([4, 0, 3])
  base = fs.FedAvg(lr=0.1, optimizer='sgd', batch_size=2)
  mixed = tiny.build(fs.chain(base, fs.FedMix(mixing=0.0)), tiny.net(4, 3), data)
  images, labels, present = mixed.init(0).server['fedmix']
  np.testing.assert_array_equal(present, [1, 0, 1])
  np.testing.assert_allclose(np.asarray(labels).sum(1), [1, 0, 1], rtol=1e-6)
  want = (np.asarray(data.x[:4], float) / 255 - 0.5).mean(0) / 0.3
  np.testing.assert_allclose(images[0], want, rtol=1e-4, atol=1e-6)
