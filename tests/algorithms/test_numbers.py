"""The numbers of methods are arguments of the compiled programs: another value compiles nothing."""

import jax
import numpy as np
import pytest

import fedjax_syn as fs
from fedjax_syn.engine import rounds
from tests import tiny


@pytest.mark.parametrize(
  'layers',
  [
    lambda v: (
      fs.FedProx(mu=v),
      fs.FedDecorr(beta=v),
      fs.FedSAM(rho=v),
      fs.MOON(mu=v, temperature=v),
      fs.FedReg(gamma=v, eta_s=v, eta_p=v, beta=v, iterations=1),
      fs.FedOpt(lr=v),
    ),
    lambda v: (fs.FedProx(mu=v), fs.FedNova(), fs.FedAvgM(momentum=v)),
    lambda v: (fs.FedExP(epsilon=v), fs.FedAvgM(momentum=v, form='damped')),
    lambda v: (fs.DP(clip=v, noise_multiplier=v, delta=v),),
  ],
)
def test_another_number_compiles_nothing_and_is_not_ignored(layers):
  model, data = tiny.net(4, 3), tiny.federated([4, 3])

  def after(value):
    method = fs.chain(fs.FedAvg(lr=value, optimizer='sgd', batch_size=2), *layers(value))
    engine = tiny.build(method, model, data)
    state, _ = engine.run(0, engine.init(0), 2)
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(state.params)])

  first = after(0.2)
  compiled = rounds.many_rounds._cache_size()
  second = after(0.3)
  assert rounds.many_rounds._cache_size() == compiled > 0
  assert np.abs(first - second).max() > 1e-4
