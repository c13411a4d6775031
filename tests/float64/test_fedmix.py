"""FedMix in numpy (Yoon et al., 2021, Eq. 4): a mashed image and label of some client enter every batch's loss."""

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_syn.algorithms.fedmix import fedmix
from fedjax_syn.client.local import STEP
from fedjax_syn.keys import fold
from tests.float64 import library as lib
from tests.float64 import model as tiny

COVERS = ('fedmix',)
L = 0.3


def mixed(w, x, y, x_g, y_g):
  """(1-l) CE(u, y) + l CE(u, y_g) + l <d (1-l) CE(u, y) / du, x_g> with u = (1-l) x, sample by sample."""
  u = (1 - L) * x
  slope = tiny.input_gradient(w, tiny.softmax(tiny.logits(w, u)) - tiny.targets(y))
  own, other = tiny.losses(w, u, y), tiny.losses(w, u, np.tile(y_g, (len(x), 1)))
  return np.mean((1 - L) * own + L * other + L * (1 - L) * (slope @ x_g))


def test_a_round():
  (_, (state, _)) = lib.rounds(fedmix(lib.base(), mixing=L), 1)
  means = [
    (x.mean(axis=0), np.bincount(y, minlength=3) / len(y))
    for x, y in zip(lib.X, lib.Y, strict=True)
  ]
  trained, drawn = [], set()
  for k in lib.CLIENTS:
    key, w = lib.visit_key(1, k), lib.W0
    for i, (x, y) in enumerate(lib.batches(key, k, batch_size=lib.BATCH)):
      g = int(jax.random.categorical(fold(key, i, STEP), jnp.zeros(len(lib.SIZES))))
      w = w - lib.RATE * tiny.differences(lambda w: mixed(w, x, y, *means[g]), w)
      drawn.add(g)
    trained.append(w)
  assert len(drawn) > 1
  lib.close(lib.flat(state.params), tiny.average(trained))
