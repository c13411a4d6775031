"""FedProx in numpy (Li et al., 2020, Algorithm 2): local steps on F_k(w) + mu/2 ||w - w^t||^2."""

import fedjax_syn as fs
from tests.float64 import library as lib
from tests.float64 import model as tiny

COVERS = ('fedprox',)
MU = 0.7


def test_a_round():
  (_, (state, _)) = lib.rounds(fs.chain(lib.base(), fs.FedProx(mu=MU)), 1)
  proximal = lambda w, x, y: tiny.gradient(w, x, y) + MU * (w - lib.W0)
  trained = [lib.local(1, k, lib.W0, proximal) for k in lib.CLIENTS]
  lib.close(lib.flat(state.params), tiny.average(trained))
