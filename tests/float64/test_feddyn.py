"""FedDyn in numpy (Acar et al., 2021, Algorithm 1), two of three clients in a round."""

import numpy as np

import fedjax_syn as fs
from tests.float64 import library as lib
from tests.float64 import model as tiny

COVERS = ('feddyn',)
ALPHA, SHARE = 0.3, 2 / 3


def test_three_rounds():
  path = lib.rounds(fs.chain(lib.base(), fs.FedDyn(alpha=ALPHA)), 3, participation=SHARE)
  w, h = lib.W0, np.zeros(tiny.SIZE)
  g = [np.zeros(tiny.SIZE) for _ in lib.CLIENTS]
  seen = []
  for number in (1, 2, 3):
    chosen, trained = lib.sampled(number, SHARE), []
    seen.append(tuple(sorted(chosen)))
    for k in chosen:
      gradient = lambda v, x, y: tiny.gradient(v, x, y) - g[k] + ALPHA * (v - w)
      own = lib.local(number, k, w, gradient)
      g[k] = g[k] - ALPHA * (own - w)
      trained.append(own)
    h = h - ALPHA / len(lib.SIZES) * sum(own - w for own in trained)
    w = tiny.average(trained) - h / ALPHA
    state = path[number][0]
    lib.close(lib.flat(state.params), w, f'round {number}')
    lib.close(lib.flat(state.server['feddyn']), h, f'h of round {number}')
    for k in lib.CLIENTS:
      lib.close(lib.row(state.clients['feddyn'], k), g[k], f'g_{k} of round {number}')
  assert len(set(seen)) > 1  # a client came back after a round without it
