"""FedExP in numpy (Jhunjhunwala et al., 2023, Eq. 8), with means by the clients' weights."""

import numpy as np

import fedjax_syn as fs
from tests.float64 import library as lib

COVERS = ('fedexp',)
EPSILON = 1e-3


def test_two_rounds():
  path = lib.rounds(fs.chain(lib.base(weighting='size'), fs.FedExP(epsilon=EPSILON)), 2)
  w, p, steps = lib.W0, lib.SIZES / lib.SIZES.sum(), []
  for number in (1, 2):
    d_i = np.stack([lib.local(number, k, w) - w for k in lib.CLIENTS])
    d = p @ d_i
    steps.append(max(1.0, p @ (d_i**2).sum(axis=1) / (2 * (d @ d + EPSILON))))
    w = w + steps[-1] * d
    lib.close(lib.flat(path[number][0].params), w, f'round {number}')
    np.testing.assert_allclose(path[number][1]['fedexp/server_step'], steps[-1], rtol=1e-6)
  assert max(steps) > 1.05  # the clients disagree enough for the formula to act
