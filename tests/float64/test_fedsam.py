"""FedSAM in numpy (Qu et al., 2022, Algorithm 1): the batch's gradient at w + rho g / ||g||."""

import numpy as np

import fedjax_syn as fs
from tests.float64 import library as lib
from tests.float64 import model as tiny

COVERS = ('fedsam',)
RHO = 0.4


def test_a_round():
  (_, (state, _)) = lib.rounds(fs.chain(lib.base(), fs.FedSAM(rho=RHO)), 1)

  def sharp(w, x, y):
    g = tiny.gradient(w, x, y)
    return tiny.gradient(w + RHO * g / np.linalg.norm(g), x, y)

  trained = [lib.local(1, k, lib.W0, sharp) for k in lib.CLIENTS]
  lib.close(lib.flat(state.params), tiny.average(trained))
