"""SCAFFOLD in numpy (Karimireddy et al., 2020, Algorithm 1), both options, two of three clients in a round."""

import numpy as np
import pytest

from fedjax_syn.algorithms.scaffold import scaffold
from tests.float64 import library as lib
from tests.float64 import model as tiny

COVERS = ('scaffold',)


@pytest.mark.parametrize(('option', 'momentum'), [(1, 0.5), (2, 0.0)])
def test_three_rounds(option, momentum):
  share = 2 / 3
  base = lib.base(momentum=momentum)
  path = lib.rounds(scaffold(base), 3, participation=share)  # option 0 is 2 for plain SGD, else 1
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
