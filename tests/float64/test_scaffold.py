"""SCAFFOLD in numpy (Karimireddy et al., 2020, Algorithm 1), with both options.

Two of three clients take part in a round.
"""

import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_syn as fs
from fedjax_syn.core.types import Model, Output, Variables
from fedjax_syn.engine import Engine, Layout
from tests.float64 import library as lib
from tests.float64 import model as tiny

COVERS = ('scaffold',)


@pytest.mark.parametrize(('option', 'momentum'), [(1, 0.5), (2, 0.0)])
def test_three_rounds(option, momentum):
  share = 2 / 3
  base = lib.base(momentum=momentum)
  path = lib.rounds(
    fs.chain(base, fs.SCAFFOLD()), 3, participation=share
  )  # option 0 is 2 for plain SGD, else 1
  x, c = lib.W0, np.zeros(tiny.SIZE)
  c_i = [np.zeros(tiny.SIZE) for _ in lib.CLIENTS]
  seen = []
  for number in (1, 2, 3):
    chosen, moves, changes = lib.sampled(number, share), [], []
    seen.append(tuple(sorted(chosen)))
    for k in chosen:
      corrected = lambda w, *batch: tiny.gradient(w, *batch) - c_i[k] + c
      y = lib.local(number, k, x, corrected, tiny.Sgd(lib.RATE, momentum))
      steps = -(-lib.SIZES[k] // lib.BATCH)
      if option == 1:
        new = tiny.gradient(x, lib.X[k], lib.Y[k])
      else:
        new = c_i[k] - c + (x - y) / (steps * lib.RATE)
      moves.append(y - x)
      changes.append(new - c_i[k])
      c_i[k] = new
    x = x + tiny.average(moves)
    c = c + np.sum(changes, axis=0) / len(lib.SIZES)
    state = path[number][0]
    lib.close(lib.flat(state.params), x, f'round {number}')
    lib.close(lib.flat(state.server['scaffold']), c, f'c of round {number}')
    for k in lib.CLIENTS:
      lib.close(lib.row(state.clients['scaffold'], k), c_i[k], f'c_{k} of round {number}')
  assert len(set(seen)) > 1  # a client came back after a round without it


EPSILON = 1e-5


def batch_norm():
  """The linear network, with features normalised by their batch.

  The running statistics are far from the batch's.
  """
  plain = lib.model()

  def init(key):
    return Variables(plain.init(key).params, {'mean': jnp.full(2, 5.0), 'var': jnp.full(2, 9.0)})

  def apply(variables, x, train=False, mask=None):
    z = plain.apply(variables, x).features
    mean, var = variables.stats['mean'], variables.stats['var']
    if train:
      share = (mask / jnp.maximum(mask.sum(), 1))[:, None]
      mean = jnp.sum(share * z, axis=0)
      var = jnp.sum(share * (z - mean[None]) ** 2, axis=0)
    z = (z - mean[None]) / jnp.sqrt(var + EPSILON)[None]
    return Output(plain.head(variables.params, z), z, variables.stats)

  return Model('batch norm', init, apply, plain.head, plain.is_head)


def test_option_1_under_batch_norm_is_the_gradient_of_the_loss_that_is_trained():
  """g_i(x) uses the batches' statistics (here the client's samples in threes), not running ones."""
  method = fs.chain(lib.base(momentum=0.5), fs.SCAFFOLD(option=1))
  engine = Engine(method, batch_norm(), lib.data(), layout=Layout(3, 'blocks', 1))
  state, _ = engine.run(lib.SEED, engine.init(lib.SEED), 1)

  def loss(w, x, y):
    z = tiny.features(w, x)
    z = (z - z.mean(axis=0)) / np.sqrt(z.var(axis=0) + EPSILON)
    return -np.sum(tiny.targets(y) * tiny.log_softmax(tiny.head(w, z)))

  for k in lib.CLIENTS:
    x, y = lib.X[k], lib.Y[k]
    cut = [slice(a, a + lib.BATCH) for a in range(0, len(x), lib.BATCH)]
    mean = lambda w: sum(loss(w, x[i], y[i]) for i in cut) / len(x)
    wanted = tiny.differences(mean, lib.W0, 1e-4)
    lib.close(lib.row(state.clients['scaffold'], k), wanted, f'c_{k}')
