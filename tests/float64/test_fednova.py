"""FedNova in numpy (Wang et al., 2020, Eqs. 4 and 9).

The server divides differences by ||a_i||_1 and takes a step of the mean ||a||_1.
"""

import numpy as np
import pytest

import fedjax_syn as fs
from fedjax_syn.algorithms.fednova import proximal_steps
from tests.float64 import library as lib
from tests.float64 import model as tiny

COVERS = ('fednova',)
MU = 0.7


def steps_of(k, epochs=2):
  return epochs * -(-lib.SIZES[k] // lib.BATCH)


def aggregated(trained, a):
  """Eq. 9, clients weighed by their sizes."""
  p = lib.SIZES / lib.SIZES.sum()
  directions = [(y - lib.W0) / a_k for y, a_k in zip(trained, a, strict=True)]
  return lib.W0 + (p @ a) * (p @ np.stack(directions)), p @ a


def test_a_round():
  momentum = 0.9
  base = lib.base(momentum=momentum, epochs=2, weighting='size')
  (_, (state, report)) = lib.rounds(fs.chain(base, fs.FedNova()), 1)
  trained, a = [], []
  for k in lib.CLIENTS:
    trained.append(lib.local(1, k, lib.W0, optimizer=tiny.Sgd(lib.RATE, momentum), epochs=2))
    tau = steps_of(k)
    # The gradient of step i is in the velocity of every step j >= i, times momentum^(j - i).
    a.append(sum(momentum ** (j - i) for i in range(tau) for j in range(i, tau)))
  assert len(set(a)) > 1
  w, mean = aggregated(trained, a)
  lib.close(lib.flat(state.params), w)
  np.testing.assert_allclose(report['fednova/effective_steps'], mean, rtol=1e-12)


@pytest.mark.parametrize(
  'chain',
  [
    lambda b: fs.chain(b, fs.FedProx(mu=MU), fs.FedNova()),
    lambda b: fs.chain(b, fs.FedNova(), fs.FedProx(mu=MU)),
  ],
)
def test_with_fedprox(chain):
  """a_i = (1 - (1 - eta mu)^tau) / (eta mu).

  A gradient's move decays by eta mu in every later step.
  """
  base = lib.base(epochs=2, weighting='size')
  (_, (state, report)) = lib.rounds(chain(base), 1)
  proximal = lambda w, x, y: tiny.gradient(w, x, y) + MU * (w - lib.W0)
  trained = [lib.local(1, k, lib.W0, proximal, epochs=2) for k in lib.CLIENTS]
  decay = lib.RATE * MU
  a = [(1 - (1 - decay) ** steps_of(k)) / decay for k in lib.CLIENTS]
  w, mean = aggregated(trained, a)
  lib.close(lib.flat(state.params), w)
  np.testing.assert_allclose(report['fednova/effective_steps'], mean, rtol=1e-12)


@pytest.mark.parametrize(('momentum', 'decay'), [(0.0, 0.2), (0.9, 0.2), (0.5, 0.0), (0.0, 1.5)])
def test_the_steps_weights_are_those_of_unit_gradients(momentum, decay):
  """The end of SGD on gradients g_i + mu (y - x), as a function of g_i alone, one at a time."""
  for tau in (1, 2, 7):
    weights = []
    for i in range(tau):
      moved, velocity = 0.0, 0.0
      for j in range(tau):
        velocity = momentum * velocity + (i == j) - decay * moved
        moved += velocity
      weights.append(moved)
    np.testing.assert_allclose(
      proximal_steps(tau, momentum, decay), np.abs(weights).sum(), rtol=1e-12
    )
  assert proximal_steps(0, momentum, decay) == 0
