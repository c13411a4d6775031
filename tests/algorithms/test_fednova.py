"""FedNova: what it needs of local training."""

import jax
import numpy as np
import pytest

import fedjax_syn as fs
from tests import tiny


def test_adam_is_refused():
  with pytest.raises(ValueError, match='client.optimizer=sgd'):
    fs.chain(fs.FedAvg(lr=1e-3), fs.FedNova())


@pytest.mark.slow  # tests/float64 would fail as well
def test_equal_steps_are_fedavg():
  sgd = {'lr': 0.1, 'optimizer': 'sgd', 'momentum': 0.9, 'batch_size': 2, 'epochs': 0, 'steps': 5}
  methods = fs.FedAvg(**sgd), fs.chain(fs.FedAvg(**sgd), fs.FedNova())
  engines = (tiny.build(method, tiny.net(4, 3), tiny.federated([4, 0, 3])) for method in methods)
  one, other = (engine.run(0, engine.init(0), 3)[0].params for engine in engines)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-6), one, other)
