"""FedBE in numpy (Chen and Chao, 2021, Algorithm 1).

An ensemble teaches: drawn models, the clients' models and their mean.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_syn as fs
from fedjax_syn.core.keys import fold
from tests.float64 import library as lib
from tests.float64 import model as tiny

COVERS = ('fedbe',)
SAMPLES, SCALE, POWER, LR, BATCH = 2, 0.4, 2.0, 0.1, 2
STEPS, FROM, EVERY = 12, 6, 5  # weights are averaged after the steps 6 and 11, counted from 0


def noise(key):
  """N(0, 1) for each drawn model, leaf by leaf in the order of their names."""
  names = sorted(lib.tree(lib.W0).items())
  draw = lambda i, leaf: jax.random.normal(fold(key, i), (SAMPLES, *leaf.shape), jnp.float64)
  drawn = {name: draw(i, leaf) for i, (name, leaf) in enumerate(names)}
  return [lib.row(drawn, m) for m in range(SAMPLES)]


@pytest.mark.parametrize('weighting', ['size', pytest.param('uniform', marks=pytest.mark.slow)])
def test_a_round(weighting):
  """mu = sum_i p_i w_i and sigma^2 = sum_i p_i (w_i - mu)^2.

  p_i = |D_i| / |D| as in the paper, or the same for all.
  """
  p_i = {'size': lib.SIZES / lib.SIZES.sum(), 'uniform': np.full(3, 1 / 3)}[weighting]
  method = fs.chain(
    lib.base(weighting=weighting),
    fs.FedBE(samples=SAMPLES, scale=SCALE, steps=STEPS, lr=LR, batch_size=BATCH),
  )
  (_, (state, _)) = lib.rounds(method, 1, proxy=True)
  trained = [lib.local(1, k, lib.W0) for k in lib.CLIENTS]
  w, key = p_i @ np.stack(trained), lib.server_key(1)
  spread = np.sqrt(SCALE * (p_i @ (np.stack(trained) - w) ** 2))
  ensemble = [w + spread * e for e in noise(fold(key, 0))] + trained + [w]
  p = tiny.average([tiny.softmax(tiny.logits(m, lib.PROXY_X)) for m in ensemble]) ** POWER
  teacher = p / p.sum(axis=1, keepdims=True)
  sgd, kept = tiny.Sgd(LR, 0.9), []
  for i, rows in enumerate(lib.proxy_batches(fold(key, 0, 1), BATCH, STEPS)):
    w = sgd(w, tiny.gradient(w, lib.PROXY_X[rows], teacher[rows]))
    if i in (FROM, FROM + EVERY):
      kept.append(w)
  lib.close(lib.flat(state.params), tiny.average(kept))
