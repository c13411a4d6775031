"""FedOpt in numpy (Reddi et al., 2021, Algorithm 2).

A server optimizer takes the negative mean difference as its gradient.
"""

import fedjax_syn as fs
from tests.float64 import library as lib
from tests.float64 import model as tiny

COVERS = ('fedopt',)
LR = 0.05


def test_two_rounds():
  """FedAdam in optax's form: moments without bias, epsilon 1e-8."""
  path = lib.rounds(fs.chain(lib.base(), fs.FedOpt(optimizer='adam', lr=LR)), 2)
  w, server = lib.W0, tiny.Adam(LR)
  for number in (1, 2):
    d = tiny.average([lib.local(number, k, w) for k in lib.CLIENTS]) - w
    w = server(w, -d)
    lib.close(lib.flat(path[number][0].params), w, f'round {number}')
