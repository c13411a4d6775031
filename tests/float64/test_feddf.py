"""FedDF in numpy (Lin et al., 2020, Algorithm 1).

The mean model follows softmax(mean of the clients' logits).
"""

import numpy as np

import fedjax_syn as fs
from tests.float64 import library as lib
from tests.float64 import model as tiny

COVERS = ('feddf',)
LR, STEPS, BATCH = 0.05, 4, 2


def test_a_round():
  method = fs.chain(lib.base(weighting='size'), fs.FedDF(steps=STEPS, lr=LR, batch_size=BATCH))
  (_, (state, _)) = lib.rounds(method, 1, proxy=True)
  trained = [lib.local(1, k, lib.W0) for k in lib.CLIENTS]
  teacher = tiny.softmax(tiny.average([tiny.logits(w, lib.PROXY_X) for w in trained]))
  w, adam = tiny.average(trained, lib.SIZES), tiny.Adam(LR)
  for i, rows in enumerate(lib.proxy_batches(lib.server_key(1), BATCH, STEPS)):
    adam.lr = LR * (1 + np.cos(np.pi * i / STEPS)) / 2  # from LR to zero by a cosine
    w = adam(w, tiny.gradient(w, lib.PROXY_X[rows], teacher[rows]))
  lib.close(lib.flat(state.params), w)
