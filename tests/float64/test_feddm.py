"""FedDM in numpy (Xiong et al., 2023, as in re-implementations).

Sets match mean features and logits.
"""

import jax
import numpy as np

import fedjax_syn as fs
from fedjax_syn.core.keys import fold
from tests.float64 import library as lib
from tests.float64 import model as tiny
from tests.float64 import sets

COVERS = ('feddm',)
PER_CLASS, ITERATIONS, LR, MOMENTUM, REAL, RADIUS, LEAST = 2, 3, 0.4, 0.5, 3, 2.5, 2
STEPS, BATCH, SERVER_LR, DECAY = 3, 4, 0.2, 5e-4


def distil(k):
  """A client's set, whose images follow the means of random real ones.

  A class needs LEAST samples.
  """
  key, own = lib.client_key(1, k), {}
  for c in np.flatnonzero(lib.COUNTS[k] >= LEAST):
    mine = lib.X[k][lib.Y[k] == c]

    def real(key, rows, mine=mine):
      return mine[np.asarray(jax.random.randint(key, (rows,), 0, len(mine)))]

    x, v = real(fold(key, c, 1), PER_CLASS), 0.0
    for i in range(ITERATIONS):
      w = sets.in_ball(fold(fold(key, i), 0), lib.W0, RADIUS)
      goal = real(fold(fold(key, i), c, 1), REAL)
      apart = lambda f: 2 * (f(w, x).mean(axis=0) - f(w, goal).mean(axis=0))  # of squared norms
      v = MOMENTUM * v + sets.pull(w, x, apart(tiny.features), apart(tiny.logits))
      x = x - LR * v
    own[c] = x
  return own


def test_a_round():
  method = fs.FedDM(
    images_per_class=PER_CLASS,
    iterations=ITERATIONS,
    lr=LR,
    momentum=MOMENTUM,
    real_batch=REAL,
    radius=RADIUS,
    least=LEAST,
    server_steps=STEPS,
    server_batch=BATCH,
    server_lr=SERVER_LR,
  )
  (_, (state, report)) = lib.rounds(method, 1)
  received = [distil(k) for k in lib.sampled(1, 1.0)]  # in the order of the round's slots
  assert [] in [list(own) for own in received]  # the single sample is below LEAST
  x, y = sets.listed([own for own in received if own])
  assert report['feddm/images'] == len(x)
  sgd = tiny.Sgd(SERVER_LR, 0.9, DECAY)
  w = sets.train_on(lib.server_key(1), lib.W0, x, y, sgd, steps=STEPS, batch_size=BATCH)
  lib.close(lib.flat(state.params), w)
