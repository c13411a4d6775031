"""FedAvgM in numpy (Hsu et al., 2019, and two other forms): momentum on the mean difference."""

import pytest

import fedjax_syn as fs
from tests.float64 import library as lib
from tests.float64 import model as tiny

COVERS = ('fedavgm',)
M = 0.6


@pytest.mark.parametrize('form', ['heavy_ball', 'average', 'damped'])
def test_three_rounds(form):
  path = lib.rounds(fs.chain(lib.base(), fs.FedAvgM(momentum=M, form=form)), 3)
  w, v = lib.W0, 0.0
  for number in (1, 2, 3):
    d = tiny.average([lib.local(number, k, w) for k in lib.CLIENTS]) - w
    v = M * v + ((1 - M) * d if form == 'average' else d)
    # FedCOG's code: the first round moves by v, later ones by v / (1 + m).
    w = w + (v / (1 + M) if form == 'damped' and number > 1 else v)
    lib.close(lib.flat(path[number][0].params), w, f'round {number}')
    lib.close(lib.flat(path[number][0].server['fedavgm'].v), v, f'velocity {number}')
