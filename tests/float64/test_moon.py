"""MOON in numpy (Li et al., 2021, Eq. 3 and Algorithm 1).

Features should be near the global model's and far from the last local model's.
"""

import jax
import numpy as np

import fedjax_syn as fs
from fedjax_syn.models.projection import with_projection
from tests.float64 import library as lib
from tests.float64 import model as tiny

COVERS = ('moon',)
MU, TAU = 1.3, 0.5


def contrast(w, x, w_global, w_previous):
  unit = lambda w: (z := tiny.features(w, x)) / np.linalg.norm(z, axis=1, keepdims=True)
  near, far = ((unit(w) * unit(other)).sum(axis=1) / TAU for other in (w_global, w_previous))
  return np.mean(-np.log(np.exp(near) / (np.exp(near) + np.exp(far))))


def test_three_rounds():
  """Two of three clients per round. A client's previous model is from its own last round."""
  share = 2 / 3
  path = lib.rounds(fs.chain(lib.base(), fs.MOON(mu=MU, temperature=TAU)), 3, participation=share)
  w, previous = lib.W0, [lib.W0] * len(lib.SIZES)
  for number in (1, 2, 3):
    chosen = lib.sampled(number, share)
    for k in chosen:
      term = lambda w_k, x: contrast(w_k, x, w, previous[k])
      grad = lambda w_k, x, y: (
        tiny.gradient(w_k, x, y) + MU * tiny.differences(lambda w: term(w, x), w_k)
      )
      previous[k] = lib.local(number, k, w, grad)
    w = tiny.average([previous[k] for k in chosen])
    state = path[number][0]
    lib.close(lib.flat(state.params), w, f'round {number}')
    for k in lib.CLIENTS:
      lib.close(lib.row(state.clients['moon'].params, k), previous[k], f'{k} in round {number}')


def test_a_projection_head_has_the_precision_of_the_run():
  init = with_projection(lib.model(), (2, 2, 1), 3).init
  shapes = jax.tree.leaves(jax.eval_shape(init, jax.random.key(0)))
  assert {leaf.dtype for leaf in shapes} == {np.dtype('float64')}
