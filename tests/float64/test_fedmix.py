"""FedMix in numpy (Yoon et al., 2021, Eq. 4).

The mean image and label of some client enter every batch's loss.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_syn as fs
from fedjax_syn.client.local import STEP
from fedjax_syn.core.keys import fold
from fedjax_syn.core.sampling import minibatch
from tests.float64 import library as lib
from tests.float64 import model as tiny
from tests.float64.test_feddecorr import penalty

COVERS = ('fedmix',)
L = 0.3


def mixed(w, x, y, x_g, y_g):
  """(1-l) CE(u, y) + l CE(u, y_g) + l <d (1-l) CE(u, y) / du, x_g> with u = (1-l) x, per sample."""
  u = (1 - L) * x
  slope = tiny.input_gradient(w, tiny.softmax(tiny.logits(w, u)) - tiny.targets(y))
  own, other = tiny.losses(w, u, y), tiny.losses(w, u, np.tile(y_g, (len(x), 1)))
  return np.mean((1 - L) * own + L * other + L * (1 - L) * (slope @ x_g))


MEANS = [
  (x.mean(axis=0), np.bincount(y, minlength=3) / len(y)) for x, y in zip(lib.X, lib.Y, strict=True)
]


def trained_by(loss_of):
  """The mean of the clients' models after two passes.

  loss_of(k, step, x, mixed loss) returns the loss; both losses are functions of w.
  """
  trained, drawn = [], set()
  for k in lib.CLIENTS:
    key, w = lib.client_key(1, k), lib.W0
    for i, (x, y) in enumerate(lib.batches(key, k, batch_size=lib.BATCH, epochs=2)):
      g = int(jax.random.categorical(fold(key, i, STEP), jnp.zeros(len(lib.SIZES))))
      loss = loss_of(k, i, x, lambda w, x=x, y=y, g=g: mixed(w, x, y, *MEANS[g]))
      w = w - lib.RATE * tiny.differences(loss, w, 2e-4)
      drawn.add(g)
    trained.append(w)
  assert len(drawn) > 1
  return tiny.average(trained)


def test_a_round():
  (_, (state, _)) = lib.rounds(fs.chain(lib.base(epochs=2), fs.FedMix(mixing=L)), 1)
  lib.close(lib.flat(state.params), trained_by(lambda k, i, x, mix: mix))


MU, BETA = 0.7, 0.8
ADDED = {
  'fedprox': (
    lambda base: fs.chain(base, fs.FedProx(mu=MU)),
    lambda w, x: MU / 2 * np.sum((w - lib.W0) ** 2),
  ),
  'feddecorr': (
    lambda base: fs.chain(base, fs.FedDecorr(beta=BETA)),
    lambda w, x: BETA * penalty(w, (1 - L) * x),
  ),
}


@pytest.mark.parametrize('name', ADDED)
def test_what_a_layer_adds_keeps_its_weight(name):
  """FedMix mixes the samples' loss only. A regulariser keeps its weight, not 1 - l of it."""
  layer, added = ADDED[name]
  (_, (state, _)) = lib.rounds(fs.chain(layer(lib.base(epochs=2)), fs.FedMix(mixing=L)), 1)
  wanted = trained_by(lambda k, i, x, mix: lambda w: mix(w) + added(w, x))
  lib.close(lib.flat(state.params), wanted)


def test_fedcog_weighs_the_mixed_loss():
  """a F + b KD with the mixed loss for F: b stays, and a is on all terms of the mixture.

  Images are noise here.
  """
  samples, size = 7, 4
  method = fs.chain(
    lib.base(epochs=2),
    fs.FedCOG(
      start=0,
      samples=samples,
      kd_batch=size,
      source='noise',
      supervision='hard',
      labels='uniform',
    ),
  )
  (_, (state, _)) = lib.rounds(fs.chain(method, fs.FedMix(mixing=L)), 1)
  y_g = np.sort(np.arange(samples) % tiny.CLASSES)

  def loss_of(k, i, x, mix):
    key, counts = lib.client_key(1, k), lib.COUNTS[k]
    lacking = (counts.max() - counts).sum()
    share = lacking / (lacking + counts.sum())
    x_g = np.asarray(jax.random.normal(fold(fold(key, 0), 0, 1), (samples, 2, 2, 1))).reshape(
      samples, -1
    )
    rows = np.asarray(minibatch(fold(key, 0, 1), samples, size, i))
    return lambda w: (1 - share) * mix(w) + share * tiny.loss(w, x_g[rows], y_g[rows])

  lib.close(lib.flat(state.params), trained_by(loss_of))
