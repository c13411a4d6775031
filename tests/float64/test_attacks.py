"""Attacks in numpy: who attacks, labels that are reversed, updates of the opposite sign."""

import numpy as np

import fedjax_syn as fs
from fedjax_syn.core.sampling import chosen
from tests.float64 import library as lib
from tests.float64 import model as tiny

COVERS = ('labelflip', 'signflip')
SHARE, SCALE = 0.4, 3.0  # 0.4 of three clients is one


def attackers(seed):
  return np.asarray(chosen(len(lib.SIZES), SHARE, seed))


def flipped(w, x, y):
  return tiny.gradient(w, x, tiny.CLASSES - 1 - y)


def test_a_client_trains_on_reversed_labels():
  path = lib.rounds(fs.chain(lib.base(), fs.LabelFlip(share=SHARE, seed=1)), 2)
  w, attacks = lib.W0, attackers(1)
  for number in (1, 2):
    grads = [flipped if attacks[k] else tiny.gradient for k in lib.CLIENTS]
    w = tiny.average([lib.local(number, k, w, grads[k]) for k in lib.CLIENTS])
    lib.close(lib.flat(path[number][0].params), w, f'round {number}')


def test_a_client_sends_the_opposite():
  path = lib.rounds(fs.chain(lib.base(), fs.SignFlip(share=SHARE, scale=SCALE)), 2)
  w, attacks = lib.W0, attackers(0)
  for number in (1, 2):
    d = [lib.local(number, k, w) - w for k in lib.CLIENTS]
    w = w + tiny.average([-SCALE * d[k] if attacks[k] else d[k] for k in lib.CLIENTS])
    lib.close(lib.flat(path[number][0].params), w, f'round {number}')


def test_the_share_of_the_attackers_and_their_seed():
  assert attackers(0).sum() == attackers(1).sum() == 1
  for share, wanted in ((0.0, 0), (0.2, 4), (0.29, 6), (1.0, 20)):
    assert int(chosen(20, share, 0).sum()) == wanted
  draws = {tuple(np.flatnonzero(chosen(20, 0.2, seed))) for seed in range(5)}
  assert len(draws) > 1
