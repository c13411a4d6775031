"""FedNova in numpy (Wang et al., 2020, Eqs. 4 and 9): differences over ||a_i||_1, then a step of the mean ||a||_1."""

import numpy as np

from fedjax_syn.algorithms.fednova import fednova
from tests.float64 import library as lib
from tests.float64 import model as tiny

COVERS = ('fednova',)


def test_a_round():
  momentum = 0.9
  base = lib.base(momentum=momentum, epochs=2, weighting='size')
  (_, (state, report)) = lib.rounds(fednova(base), 1)
  p, a, directions = lib.SIZES / lib.SIZES.sum(), [], []
  for k in lib.CLIENTS:
    optimizer = tiny.Sgd(lib.RATE, momentum)
    y = lib.local(1, k, lib.W0, optimizer=optimizer, epochs=2)
    tau = 2 * -(-lib.SIZES[k] // lib.BATCH)
    # The gradient of step i is in the velocity of every step j >= i, times momentum^(j - i).
    a.append(sum(momentum ** (j - i) for i in range(tau) for j in range(i, tau)))
    directions.append((y - lib.W0) / a[-1])
  assert len(set(a)) > 1
  w = lib.W0 + (p @ a) * (p @ np.stack(directions))
  lib.close(lib.flat(state.params), w)
  np.testing.assert_allclose(report['fednova/effective_steps'], p @ a, rtol=1e-12)
