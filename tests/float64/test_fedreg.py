"""FedReg in numpy (Xu et al., 2022, and its code).

It takes gradients between w and w^t and projects steps by what they forget.
"""

import numpy as np

import fedjax_syn as fs
from tests.float64 import library as lib
from tests.float64 import model as tiny

COVERS = ('fedreg',)
RATE = 3.0  # steps so long that some go up the losses that b looks at
GAMMA, BETA, ETA_S, ETA_P, ASCENTS = 0.4, 0.7, 0.1, 0.02, 3


def ascend(w, x, y, eta):
  for _ in range(ASCENTS):
    x = x + eta * np.sign(tiny.input_gradient(w, tiny.softmax(tiny.logits(w, x)) - tiny.targets(y)))
  return x


def test_a_round():
  method = fs.chain(
    lib.base(lr=RATE),
    fs.FedReg(gamma=GAMMA, beta=BETA, eta_s=ETA_S, eta_p=ETA_P, iterations=ASCENTS),
  )
  (_, (state, _)) = lib.rounds(method, 1)
  w_global, trained, used = lib.W0, [], []
  for k in lib.CLIENTS:
    w = w_global
    for x, y in lib.batches(lib.client_key(1, k), k, batch_size=lib.BATCH):
      w = w - RATE * tiny.gradient(GAMMA * w + (1 - GAMMA) * w_global, x, y)
      between, drift = BETA * w + (1 - BETA) * w_global, w - w_global
      pseudo, near = ascend(w_global, x, y, ETA_S), ascend(w_global, x, y, ETA_P)
      g2 = tiny.gradient(between, pseudo, tiny.softmax(tiny.logits(w_global, pseudo)))
      g3 = tiny.gradient(between, near, y)
      a = max(0.0, drift @ g2 / (g2 @ g2))
      b = max(0.0, (drift - a * g2) @ g3 / (g3 @ g3))
      w = w - a * g2 - b * g3
      used.append((bool(a > 0), bool(b > 0)))
    trained.append(w)
  assert {(True, False), (False, True)} <= set(used)  # each of the two projects, and does not
  lib.close(lib.flat(state.params), tiny.average(trained))
