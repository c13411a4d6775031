"""FedOpt in numpy (Reddi et al., 2021, Algorithm 2): the negative mean difference is a server optimizer's gradient."""

import numpy as np
import pytest

from fedjax_syn.algorithms.fedopt import fedopt
from tests.float64 import library as lib
from tests.float64 import model as tiny

COVERS = ('fedopt',)
LR = 0.05


class Yogi(tiny.Adam):
  """v moves by (1 - b2) g^2 towards g^2, whatever the gap; optax begins at 1e-6 and adds 1e-3 to the root."""

  def __call__(self, w, g):
    self.t += 1
    m, v = (self.m, self.v) if self.t > 1 else (1e-6, 1e-6)
    self.m = self.b1 * m + (1 - self.b1) * g
    self.v = v - (1 - self.b2) * np.sign(v - g**2) * g**2
    m, v = self.m / (1 - self.b1**self.t), self.v / (1 - self.b2**self.t)
    return w - self.lr * m / (np.sqrt(v) + 1e-3)


@pytest.mark.parametrize('name', ['adam', 'yogi'])
def test_two_rounds(name):
  path = lib.rounds(fedopt(lib.base(), optimizer=name, lr=LR), 2)
  w, server = lib.W0, {'adam': tiny.Adam, 'yogi': Yogi}[name](LR)
  for number in (1, 2):
    d = tiny.average([lib.local(number, k, w) for k in lib.CLIENTS]) - w
    w = server(w, -d)
    lib.close(lib.flat(path[number][0].params), w, f'round {number}')
