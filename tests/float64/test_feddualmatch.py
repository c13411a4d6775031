"""FedDualMatch in numpy (Algorithm 1, Eqs. 3 and 4).

Clients match sets by layers; the server matches them by gradients.
"""

import jax
import numpy as np
import pytest

import fedjax_syn as fs
from fedjax_syn.core.keys import fold
from tests.float64 import library as lib
from tests.float64 import model as tiny
from tests.float64 import sets

COVERS = ('feddualmatch',)
PER_CLASS, ITERATIONS, LR, MOMENTUM, RADIUS, RADIUS_LR = 2, 2, 0.3, 0.5, 1.5, 2.0
MATCHES, MATCH_STEPS, MATCH_LR = 2, 2, 0.2
STEPS, BATCH, SERVER_LR = 3, 5, 0.05


SETTINGS = dict(
  images_per_class=PER_CLASS,
  iterations=ITERATIONS,
  lr=LR,
  momentum=MOMENTUM,
  layers='pooled+logits',
  squared=False,
  radius=RADIUS,
  radius_lr=RADIUS_LR,
  server_steps=STEPS,
  server_batch=BATCH,
  server_lr=SERVER_LR,
)


def distil(number, k, w, radius, real_batch=0, resample=False):
  """LDM: stage 1 has the last layer (logits), stage 2 both; norms are not squared, as in Eq. 3."""
  key, own = lib.client_key(number, k), {}
  shape = (tiny.CLASSES, PER_CLASS, 2, 2, 1)
  noise = np.asarray(jax.random.normal(fold(key, 0, 3), shape)).reshape(*shape[:2], -1)
  w_k = sets.in_ball(fold(key, 0), w, radius)

  def slope(w_k, f, x, goal):
    apart = f(w_k, x).mean(axis=0) - f(w_k, goal).mean(axis=0)
    return apart / np.linalg.norm(apart)

  for c in np.flatnonzero(lib.COUNTS[k]):
    x, v, goal = noise[c], 0.0, lib.X[k][lib.Y[k] == c]
    mine = goal
    for i in range(2 * ITERATIONS):
      w_i = sets.in_ball(fold(key, i, 1), w, radius) if resample else w_k
      if real_batch:
        drawn = jax.random.randint(fold(fold(key, i, 4), c), (real_batch,), 0, len(mine))
        goal = mine[np.asarray(drawn)]
      second = i >= ITERATIONS
      of_features = slope(w_i, tiny.features, x, goal) if second else np.zeros(tiny.FEATURES)
      v = MOMENTUM * v + sets.pull(w_i, x, of_features, slope(w_i, tiny.logits, x, goal))
      x = x - LR * v
    own[c] = x
  return own


def distance(a, b):
  """Sum over the weight matrices' output units of 1 - cos; biases count for nothing."""
  total = 0.0
  for matrices in zip(tiny.unpack(a)[:2], tiny.unpack(b)[:2], strict=True):
    for r, s in zip(*(m.T for m in matrices), strict=True):
      total += 1 - r @ s / (np.linalg.norm(r) * np.linalg.norm(s) + 1e-6)
  return total


def match(own, w_g, target):
  """GGM for one client: gradient descent on the distance of its set's gradient to the union's."""
  own = dict(own)
  for _ in range(MATCH_STEPS):
    before = dict(own)
    for c in own:
      f = lambda x, c=c: distance(tiny.gradient(w_g, *sets.listed([before | {c: x}])), target)
      own[c] = before[c] - MATCH_LR * tiny.differences(f, before[c])
  return own


def test_a_round_with_batches_of_real_samples_and_models_drawn_in_every_iteration():
  method = fs.FedDualMatch(
    **SETTINGS,
    real_batch=3,
    resample=True,
    matches=0,
  )
  (_, (state, _)) = lib.rounds(method, 1)
  own = [distil(1, k, lib.W0, RADIUS, 3, True) for k in lib.sampled(1, 1.0)]
  x, y = sets.listed(own)
  tuning = fold(lib.server_key(1), 0, 2), lib.W0, x, y, tiny.Adam(SERVER_LR)
  lib.close(lib.flat(state.params), sets.train_on(*tuning, steps=STEPS, batch_size=BATCH))


def test_noised_means_are_those_of_all_samples():
  layer = fs.FedDualMatch(real_batch=3, clip=1.0, sigma_s=1.0)
  with pytest.raises(ValueError, match=r"real_batch=3 with clip and clipping='example'"):
    layer.check()


def test_two_rounds():
  method = fs.FedDualMatch(
    **SETTINGS,
    matches=MATCHES,
    match_steps=MATCH_STEPS,
    match_lr=MATCH_LR,
  )
  path = lib.rounds(method, 2)
  w, radius = lib.W0, RADIUS
  for number in (1, 2):
    own = [distil(number, k, w, radius) for k in lib.sampled(number, 1.0)]
    key = lib.server_key(number)
    union = tiny.gradient(w, *sets.listed(own))
    single = [tiny.gradient(w, *sets.listed([s])) for s in own]
    radius = RADIUS_LR * max(np.linalg.norm(g - union) for g in single)
    for m in range(MATCHES):  # S' begins at S for every model: the last one's is used
      w_g = sets.in_ball(fold(key, m, 1), w, radius)
      target = tiny.gradient(w_g, *sets.listed(own))
      matched = [match(s, w_g, target) for s in own]
    x, y = sets.listed(own + matched)
    adam = tiny.Adam(SERVER_LR)
    w = sets.train_on(fold(key, 0, 2), w, x, y, adam, steps=STEPS, batch_size=BATCH)
    state = path[number][0]
    lib.close(state.server['feddualmatch'].radius, radius, f'radius of round {number}')
    lib.close(lib.flat(state.params), w, f'round {number}')
