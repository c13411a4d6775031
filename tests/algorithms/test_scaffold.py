"""SCAFFOLD: options and corrections worked by hand; tests/float64 has whole rounds."""

import numpy as np
import pytest

import fedjax_syn as fs
from tests import tiny


def quadratic_run(method, rounds):
  engine = tiny.build(method, tiny.quadratic(1.0), tiny.two_points(), loss=tiny.half_square)
  state, _ = engine.run(0, engine.init(0), rounds)
  return state


def test_a_correction_after_a_step_with_momentum():
  """w = 1, rate 1/2, momentum 1/2, two steps on all samples.

  The optimizer's steps are 1/2 of d = g + (last d) / 2.

  Round 1: A: d = 1, then 0.5 + 0.5 = 1: 1 -> 0.5 -> 0. B: d = -3, -3: to 2.5, to 4. Variates are
  the mean d, 1 and -3, c = -1, and x = 1 + (-1 + 3) / 2 = 2.

  Round 2: A adds -(c - c_A) / 2 = 1 to each step: d = 2 to 2, d = 2 + 1 = 3 to 1.5; c_A = 2.5.
  B adds -(c - c_B) / 2 = -1: d = -2 to 2, d = -2 - 1 = -3 to 2.5; c_B = -2.5.
  c = 0, x = 2 + (-0.5 + 0.5) / 2 = 2.
  """
  sgd = fs.FedAvg(lr=0.5, optimizer='sgd', momentum=0.5, epochs=0, steps=2, batch_size=3)
  state = quadratic_run(fs.chain(sgd, fs.SCAFFOLD(correction='step')), 2)
  np.testing.assert_allclose(state.clients['scaffold']['w'], [2.5, -2.5], rtol=1e-6)
  np.testing.assert_allclose(state.server['scaffold']['w'], 0, atol=1e-6)
  np.testing.assert_allclose(state.params['w'], 2, rtol=1e-6)


@pytest.mark.parametrize('option', [1, 2])
def test_for_plain_sgd_both_corrections_are_the_same(option):
  sgd = fs.FedAvg(lr=0.1, optimizer='sgd', batch_size=1)
  one, other = (
    quadratic_run(fs.chain(sgd, fs.SCAFFOLD(option=option, correction=c)), 3)
    for c in ('gradient', 'step')
  )
  np.testing.assert_allclose(one.params['w'], other.params['w'], rtol=1e-6)
  np.testing.assert_allclose(
    one.clients['scaffold']['w'], other.clients['scaffold']['w'], rtol=1e-5
  )
  assert abs(float(one.params['w']) - 1) > 0.1
  with pytest.raises(ValueError, match="correction='steps': unknown; known: 'gradient', 'step'"):
    fs.SCAFFOLD(correction='steps')


def test_option_0_is_2_for_plain_sgd_only():
  """One round from w = 1: option 1 keeps the gradients 1 and -3, option 2 (x - y) / (K eta)."""

  def variates(method):
    engine = tiny.build(method, tiny.quadratic(1.0), tiny.two_points(), loss=tiny.half_square)
    return engine.run(0, engine.init(0), 1)[0].clients['scaffold']['w']

  plain = lambda: fs.FedAvg(lr=0.5, optimizer='sgd', batch_size=1)
  adam = lambda: fs.FedAvg(lr=0.5, optimizer='adam', batch_size=1)
  np.testing.assert_allclose(variates(fs.chain(plain(), fs.SCAFFOLD())), [1, -1.75], rtol=1e-6)
  np.testing.assert_allclose(variates(fs.chain(adam(), fs.SCAFFOLD())), [1, -3], rtol=1e-6)
  # Adam moves by its rate in every step: A 1 -> 0.5, B towards 4. Option 2 can run there too.
  np.testing.assert_allclose(variates(fs.chain(adam(), fs.SCAFFOLD(option=2)))[0], 1, rtol=1e-4)
