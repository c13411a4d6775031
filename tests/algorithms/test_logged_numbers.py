"""Numbers that methods log for the experimenter."""

import numpy as np
import pytest

import fedjax_syn as fs
from fedjax_syn import algorithms
from fedjax_syn.models import create
from tests import tiny


def quadratic(method, rounds, start=1.0):
  engine = tiny.build(method, tiny.quadratic(start), tiny.two_points(), loss=tiny.half_square)
  state, report = engine.run(0, engine.init(0), rounds)
  return float(state.params['w']), report, state


def sgd(lr=0.5, **fields):
  return fs.FedAvg(lr=lr, optimizer='sgd', batch_size=1, **fields)


def test_extrapolation():
  """FedExP: w = 1, d_A = -0.5, d_B = 2.625, mean 1.0625.

  The mean square is (0.25 + 6.890625) / 2 = 3.5703125.
  """
  eta = 3.5703125 / (2 * (1.0625**2 + 0.1))
  report = quadratic(fs.chain(sgd(), fs.FedExP(epsilon=0.1)), 1)[1]
  np.testing.assert_allclose(report['fedexp/server_step'], eta, rtol=1e-6)


def test_sharpness():
  """FedSAM at w + rho sign(w - x), rate 1/2: A ends at 0.4, B at 3.8.

  A: (0.6^2 - 0.4^2) / 2 = 0.1. B: (0.4^2 - 0.2^2) / 2 = 0.06.
  """
  report = quadratic(fs.chain(sgd(), fs.FedSAM(rho=0.2)), 1)[1]
  np.testing.assert_allclose(report['fedsam/sharpness'], 0.08, rtol=1e-5)


def test_cosines_and_correlation():
  """In the first round the previous model is the global one; later they differ."""
  base = fs.FedAvg(lr=0.5, optimizer='sgd', batch_size=4, epochs=5)
  method = fs.chain(base, fs.FedDecorr(), fs.MOON())
  engine = tiny.build(method, tiny.net(4, 3), tiny.federated([6, 0, 3]))
  state, first = engine.run(0, engine.init(0), 1)
  assert 0 < first['moon/cosine_global'] < 1
  assert first['moon/cosine_global'] == first['moon/cosine_previous']
  _, second = engine.run(0, state, 1)
  assert second['moon/cosine_global'] != second['moon/cosine_previous']
  assert first['feddecorr/correlation'] > 0


LOGGED = {'fedreg': 'forgotten', 'vhl': 'noise_loss', 'fedrep': 'head_moved', 'ditto': 'distance'}


@pytest.mark.parametrize('names', [('fedreg', 'vhl'), ('fedrep',), ('ditto',)], ids='+'.join)
def test_a_number_of_each_method_is_positive(names):
  layers = [algorithms.layer_class(name)() for name in names]
  method = fs.chain(fs.FedAvg(lr=0.1, optimizer='sgd', batch_size=4), *layers)
  model = create('mlp', shape=(2, 2, 1), num_classes=3, width=5, depth=1)
  engine = tiny.build(method, model, tiny.federated([6, 0, 3]))
  _, report = engine.run(0, engine.init(0), 2)  # Ditto's models differ from the second round on
  for name in names:
    value = report[f'{name}/{LOGGED[name]}']
    assert np.isfinite(value) and value > 0
