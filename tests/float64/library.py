"""The library's side of the tiny problem: its model, data, draws and the engine's rounds.

Draws are never pinned. A numpy version needs orders of batches and noise. It gets them from the
library's own sampling functions, with the run's keys (`fedjax_syn.core.keys`: of seed, purpose,
round and client).
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

import fedjax_syn as fs
from fedjax_syn.client.local import shuffled
from fedjax_syn.core.keys import Purpose, fold, stream
from fedjax_syn.core.sampling import SAMPLERS
from fedjax_syn.core.types import Model, Output, Variables
from fedjax_syn.data.federated import Proxy
from fedjax_syn.engine import Engine
from fedjax_syn.engine.layout import Layout
from fedjax_syn.server.distill import draw_batches
from tests.float64 import model as tiny
from tests.float64.model import CLASSES, PIXELS, SIZE, pack, unpack
from tests.tiny import clients_of

SEED = 3
SIZES = np.array([4, 1, 6])  # one client has a single sample
CLIENTS = range(len(SIZES))
RNG = np.random.default_rng(0)
W0 = RNG.normal(size=SIZE) / 2
PIXEL_VALUES = RNG.integers(0, 256, (SIZES.sum(), PIXELS))
LABELS = np.array([0, 1, 1, 0, 2, 2, 0, 1, 2, 2, 1])
PLACES = RNG.permutation(SIZES.sum())  # where each sample lies in the library's arrays
PROXY_VALUES, PROXY_LABELS = RNG.integers(0, 256, (5, PIXELS)), np.array([0, 1, 2, 2, 0])
MEAN, STD = 0.45, 0.3


def normalise(values):
  return (values / 255 - MEAN) / STD


STARTS = np.cumsum(SIZES) - SIZES
X = [normalise(PIXEL_VALUES[a : a + n]) for a, n in zip(STARTS, SIZES, strict=True)]
Y = [LABELS[a : a + n] for a, n in zip(STARTS, SIZES, strict=True)]
COUNTS = np.stack([np.bincount(y, minlength=CLASSES) for y in Y])
PROXY_X = normalise(PROXY_VALUES)


def images(values, places=None):
  """uint8 images of 2 x 2 pixels, put where the places say."""
  rows = np.arange(len(values)) if places is None else places
  x = np.empty((len(values), 2, 2, 1), np.uint8)
  x[rows] = values.reshape(-1, 2, 2, 1)
  return x


def data(proxy=False):
  """The clients' samples as the engine takes them: unsorted, and found by `order`."""
  y = np.empty(len(LABELS), np.int32)
  y[PLACES] = LABELS
  there = clients_of(images(PIXEL_VALUES), LABELS, SIZES, CLASSES)._replace(
    x=jnp.asarray(images(PIXEL_VALUES, PLACES)),
    y=jnp.asarray(y),
    order=jnp.asarray(PLACES, jnp.int32),
    mean=jnp.array([MEAN]),
    std=jnp.array([STD]),
  )
  assert there.mean.dtype == jnp.float64
  if proxy:
    server = Proxy(jnp.asarray(images(PROXY_VALUES)), jnp.asarray(PROXY_LABELS, jnp.int32))
    there = there._replace(proxy=server)
  return there


@functools.cache  # compiled programs are looked up by the model
def model():
  """features x U, logits z V + b; one block, whose output is the features."""

  def init(key):
    u, v, b = unpack(W0)
    return Variables({'u': jnp.asarray(u), 'v': jnp.asarray(v), 'b': jnp.asarray(b)}, {})

  def apply(variables, x, train=False, mask=None, stages=False):
    params, stats = variables
    z = x.reshape(x.shape[0], -1) @ params['u']
    out = Output(head(params, z), z, stats)
    return (out, (z,)) if stages else out

  head = lambda params, z: z @ params['v'] + params['b']
  return Model('linear', init, apply, head, lambda path: path[0].key != 'u')


def flat(params):
  """The library's parameters as the numpy versions have them."""
  return pack(*(np.asarray(params[name]) for name in 'uvb'))


def tree(w):
  """The numpy versions' parameters as the library has them."""
  return dict(zip('uvb', map(jnp.asarray, unpack(w)), strict=True))


def engine_of(method, *, proxy=False, **options):
  """An engine on the tiny problem: vmapped lanes of unequal length, as an accelerator runs them."""
  return Engine(method, model(), data(proxy), layout=Layout(len(SIZES), 'blocks', 1), **options)


def rounds(method, count, **options):
  """Runs a method round by round.

  Returns:
    [(state as numpy arrays, the round's report)], w^0 first.
  """
  engine = engine_of(method, **options)
  state, report = engine.init(SEED), {}
  path = [(jax.tree.map(np.asarray, state), report)]
  for _ in range(count):
    state, report = engine.run(SEED, state, 1)
    path.append((jax.tree.map(np.asarray, state), report))
  return path


def sampled(number, participation):
  """Who takes part in a round, in the order of the slots."""
  key = stream(SEED, Purpose.SAMPLE, number)
  return [int(k) for k in SAMPLERS['fixed'](len(SIZES), participation)[1](key)]


def client_key(number, client):
  """The key of one client in one round."""
  return fold(stream(SEED, Purpose.CLIENT, number), client)


def server_key(number, transform=0):
  """The key of a server transform in one round."""
  return fold(stream(SEED, Purpose.SERVER, number), transform)


def orders(key, client, epochs):
  """The orders of a client's samples in the epochs of a round."""
  slots, n = jnp.arange(SIZES.max()), SIZES[client]
  drawn = [np.asarray(shuffled(key, epoch, slots, n))[:n] for epoch in range(epochs)]
  for order in drawn:
    np.testing.assert_array_equal(np.sort(order), np.arange(n))
  return drawn


def rows_of(key, client, *, batch_size, epochs=1, steps=0):
  """The rows of each local step: epochs one after the other, the last batch of each partial."""
  n = SIZES[client]
  per_epoch = -(-n // batch_size)
  cut = range(0, n, batch_size)
  whole = orders(key, client, -(-steps // per_epoch) if steps else epochs)
  rows = [order[a : a + batch_size] for order in whole for a in cut]
  return rows[:steps] if steps else rows


def batches(key, client, **passes):
  """The batches (x, y) of each local step; see `rows_of`."""
  return [(X[client][rows], Y[client][rows]) for rows in rows_of(key, client, **passes)]


def close(got, wanted, what=''):
  """Asserts that float64 arrays agree to 1e-6, relative where values are large."""
  got = np.asarray(got)
  assert got.dtype == np.float64, f'{what}: {got.dtype}'
  np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-6, err_msg=what)


RATE, BATCH = 0.3, 3


def base(**options):
  """FedAvg by SGD: one pass in batches of 3 with a partial last one, unless told otherwise."""
  return fs.FedAvg(**{'lr': RATE, 'optimizer': 'sgd', 'batch_size': BATCH} | options)


def local(number, client, w, grad=tiny.gradient, optimizer=None, **passes):
  """`base`'s local training in numpy, by default with SGD without momentum.

  It trains on the batches of a round; `grad` is a gradient (w, x, y) -> g.
  """
  drawn = batches(client_key(number, client), client, batch_size=BATCH, **passes)
  return tiny.train(w, drawn, optimizer or tiny.Sgd(RATE), grad)


def row(params, client):
  """One client's parameters out of per-client state, flat."""
  return flat({name: leaf[client] for name, leaf in params.items()})


def proxy_batches(key, batch_size, steps):
  """Rows of the server's samples for each step of distillation, dealt after one shuffle."""
  count = len(PROXY_LABELS)
  shuffled_once = np.asarray(jax.random.permutation(fold(key, 0, 1), count))
  return shuffled_once[np.asarray(draw_batches(fold(key, 0, 2), count, batch_size, steps))]
