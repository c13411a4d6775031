"""ServerRate in numpy: w + eta s(c) d, with two schedules written out."""

import numpy as np
import pytest

import fedjax_syn as fs
from tests.float64 import library as lib
from tests.float64 import model as tiny

COVERS = ('serverrate',)
FACTORS = {
  'step(1,0.5)': lambda c: 0.5 ** (c - 1),
  'cosine': lambda c: (1 + np.cos(np.pi * (c - 1) / 2)) / 2,
}


@pytest.mark.parametrize('name', FACTORS)
def test_two_rounds(name):
  method = fs.chain(lib.base(), fs.ServerRate(lr=0.7, schedule=name))
  path, w = lib.rounds(method, 2, rounds=2), lib.W0
  for number in (1, 2):
    d = tiny.average([lib.local(number, k, w) - w for k in lib.CLIENTS])
    w = w + 0.7 * FACTORS[name](number) * d
    lib.close(lib.flat(path[number][0].params), w, f'round {number}')
