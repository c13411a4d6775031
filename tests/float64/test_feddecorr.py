"""FedDecorr in numpy (Shi et al., 2023, as in its code): beta penalises correlated features."""

import numpy as np

import fedjax_syn as fs
from tests.float64 import library as lib
from tests.float64 import model as tiny

COVERS = ('feddecorr',)
BETA = 0.8


def penalty(w, x):
  """The mean squared off-diagonal entry of z^T z, divided by the batch size.

  z is standardised, with the unbiased variance.
  """
  rows, z = len(x), tiny.features(w, x)
  if rows == 1:
    return 0.0  # a sample has no correlation with itself
  z = (z - z.mean(axis=0)) / np.sqrt(z.var(axis=0, ddof=1) + 1e-8)
  products = [(z[:, i] @ z[:, j]) ** 2 for i in range(2) for j in range(2) if i != j]
  return np.mean(products) / rows


def test_a_round():
  (_, (state, _)) = lib.rounds(fs.chain(lib.base(), fs.FedDecorr(beta=BETA)), 1)

  def grad(w, x, y):
    return tiny.gradient(w, x, y) + BETA * tiny.differences(lambda w: penalty(w, x), w)

  trained = [lib.local(1, k, lib.W0, grad) for k in lib.CLIENTS]
  lib.close(lib.flat(state.params), tiny.average(trained))
