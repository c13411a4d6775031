"""Server warm-up in numpy: w + min(1, c / rounds) (mean of the clients' models - w)."""

import fedjax_syn as fs
from tests.float64 import library as lib
from tests.float64 import model as tiny

COVERS = ('serverwarmup',)


def test_three_rounds_of_two_to_warm_up():
  path = lib.rounds(fs.chain(lib.base(), fs.ServerWarmUp(warm_rounds=2.0)), 3)
  w = lib.W0
  for number, share in ((1, 0.5), (2, 1.0), (3, 1.0)):
    trained = [lib.local(number, k, w, tiny.gradient) for k in lib.CLIENTS]
    w = w + share * (tiny.average(trained) - w)
    lib.close(lib.flat(path[number][0].params), w, f'round {number}')
