"""Ditto in numpy (Li et al., 2021, Algorithm 1).

v_k follows F_k(v) + lambda/2 ||v - w^t||^2 beside FedAvg.
"""

import fedjax_syn as fs
from fedjax_syn.algorithms.ditto import PERSONAL
from fedjax_syn.core.keys import fold
from tests.float64 import library as lib
from tests.float64 import model as tiny

COVERS = ('ditto',)
LAMBDA, STEPS = 0.8, 2


def test_two_rounds():
  path = lib.rounds(fs.chain(lib.base(), fs.Ditto(lambda_personal=LAMBDA, steps=STEPS)), 2)
  w, v = lib.W0, [lib.W0] * len(lib.SIZES)
  for number in (1, 2):
    near = lambda v, x, y: tiny.gradient(v, x, y) + LAMBDA * (v - w)
    for k in lib.CLIENTS:
      key = fold(lib.client_key(number, k), 0, PERSONAL)
      drawn = lib.batches(key, k, batch_size=lib.BATCH, steps=STEPS)
      v[k] = tiny.train(v[k], drawn, tiny.Sgd(lib.RATE), near)
    w = tiny.average([lib.local(number, k, w) for k in lib.CLIENTS])
    state = path[number][0]
    lib.close(lib.flat(state.params), w, f'round {number}')
    for k in lib.CLIENTS:
      lib.close(lib.row(state.clients['ditto'].params, k), v[k], f'v_{k} in round {number}')
