"""FedGen in numpy (Zhu et al., 2021, Algorithm 1).

The server trains a generator of features, and clients train with it.
"""

import jax
import jax.numpy as jnp
import numpy as np

import fedjax_syn as fs
from fedjax_syn.client.local import STEP
from fedjax_syn.core.keys import fold
from tests.float64 import library as lib
from tests.float64 import model as tiny

COVERS = ('fedgen',)
ALPHA, BETA, DECAY = 0.7, 0.9, 0.8
NOISE, HIDDEN, STEPS, BATCH, LR, WEIGHT_DECAY = 2, 3, 2, 5, 0.02, 0.05
SHAPES = {
  'first': (NOISE + tiny.CLASSES, HIDDEN),
  'scale': (HIDDEN,),
  'shift': (HIDDEN,),
  'second': (HIDDEN, tiny.FEATURES),
  'second_bias': (tiny.FEATURES,),
}


def weights_of(params):
  """The library's generator as one flat vector, in the order of SHAPES."""
  one, two = params['Dense_0'], params['Dense_1']
  leaves = one['kernel'], params['scale'], params['bias'], two['kernel'], two['bias']
  return np.concatenate([np.ravel(leaf) for leaf in leaves])


def parts(g):
  at, out = 0, {}
  for name, shape in SHAPES.items():
    out[name] = g[at : at + np.prod(shape)].reshape(shape)
    at += np.prod(shape)
  return out


def hidden(g, y, eps):
  return np.hstack([eps, np.eye(tiny.CLASSES)[y]]) @ parts(g)['first']


def generate(g, y, eps, moments=None):
  """[noise, one-hot label] - linear - batch norm - ReLU - linear: [rows, features].

  Batch norm uses `moments`, or the batch's own without them.
  """
  p, h = parts(g), hidden(g, y, eps)
  mean, variance = (h.mean(axis=0), h.var(axis=0)) if moments is None else moments
  h = (h - mean) / np.sqrt(variance + 1e-5) * p['scale'] + p['shift']
  return np.maximum(h, 0) @ p['second'] + p['second_bias']


def generator_loss(g, clients, y, eps):
  """sum_k w_{k,y} CE_k(G(y, eps), y) + exp(-mean over pairs of |eps_i - eps_j|^2 |z_i - z_j|)."""
  z, total = generate(g, y, eps), 0.0
  for w, counts in zip(clients, lib.COUNTS, strict=True):
    ce = -tiny.log_softmax(tiny.head(w, z))[np.arange(len(y)), y]
    total += np.mean(counts[y] / lib.COUNTS.sum(axis=0)[y] * ce)
  apart = lambda a: a[:, None] - a[None]
  pairs = (apart(eps) ** 2).mean(axis=-1) * np.abs(apart(z)).mean(axis=-1)
  return total + np.exp(-pairs.mean())


def train_generator(g, moments, adam, clients, key):
  for i in range(STEPS):
    now = fold(key, i)
    holders = np.log((lib.COUNTS > 0).sum(axis=0))
    y = np.asarray(jax.random.categorical(fold(now, 0), jnp.asarray(holders), shape=(BATCH,)))
    eps = np.asarray(jax.random.uniform(fold(now, 0, 1), (BATCH, NOISE)))
    slope = tiny.differences(lambda g: generator_loss(g, clients, y, eps), g, 1e-4)
    h = hidden(g, y, eps)
    batch = h.mean(axis=0), h.var(axis=0, ddof=1)
    moments = [0.9 * old + 0.1 * new for old, new in zip(moments, batch, strict=True)]
    g = adam(g, slope)
  return g, moments


def local(number, k, w, g, moments):
  key, factor = lib.client_key(number, k), DECAY ** (number - 1) if number > 1 else 0.0
  for i, (x, y) in enumerate(lib.batches(key, k, batch_size=lib.BATCH)):
    now, n = fold(key, i, STEP), len(y)
    eps = np.asarray(jax.random.uniform(fold(now, 0), (2, lib.BATCH, NOISE)))
    other = np.asarray(jax.random.randint(fold(now, 0, 1), (lib.BATCH,), 0, tiny.CLASSES))
    z = generate(g, other, eps[0], moments)
    d = (tiny.softmax(tiny.head(w, z)) - np.eye(tiny.CLASSES)[other]) / lib.BATCH
    teacher = tiny.pack(np.zeros((tiny.PIXELS, tiny.FEATURES)), z.T @ d, d.sum(axis=0))
    target = tiny.softmax(tiny.head(w, generate(g, y, eps[1][:n], moments)))  # held fixed
    pull = tiny.gradient(w, x, target)
    w = w - lib.RATE * (tiny.gradient(w, x, y) + factor * (ALPHA * teacher + BETA * pull))
  return w


def test_two_rounds():
  method = fs.chain(
    lib.base(),
    fs.FedGen(
      alpha=ALPHA,
      beta=BETA,
      decay=DECAY,
      steps=STEPS,
      batch_size=BATCH,
      lr=LR,
      weight_decay=WEIGHT_DECAY,
      noise=NOISE,
      hidden=HIDDEN,
    ),
  )
  path = lib.rounds(method, 2)
  g = weights_of(path[0][0].server['fedgen'].generator).astype(float)
  w, adam = lib.W0, tiny.Adam(LR, decay=WEIGHT_DECAY)
  moments = np.zeros(HIDDEN), np.ones(HIDDEN)
  for number in (1, 2):
    clients = [local(number, k, w, g, moments) for k in lib.CLIENTS]
    w, state = tiny.average(clients), path[number][0]
    lib.close(lib.flat(state.params), w, f'round {number}')
    g, moments = train_generator(g, moments, adam, clients, lib.server_key(number))
    for got, wanted in zip(state.server['fedgen'].moments, moments, strict=True):
      lib.close(got, wanted, f'running moments after round {number}')
    got, wanted = parts(weights_of(state.server['fedgen'].generator)), parts(g)
    for name in SHAPES:
      lib.close(got[name], wanted[name], f'{name} of the generator in round {number}')
