"""ABAVG in numpy (Xiao et al., 2021): weights are accuracies on the server's labelled samples."""

import numpy as np

import fedjax_syn as fs
from tests.float64 import library as lib
from tests.float64 import model as tiny

COVERS = ('abavg',)


def test_two_rounds():
  path = lib.rounds(fs.chain(lib.base(), fs.ABAVG()), 2, proxy=True)
  w, all_accuracies = lib.W0, []
  for number in (1, 2):
    trained = [lib.local(number, k, w) for k in lib.CLIENTS]
    right = lambda w: np.argmax(tiny.logits(w, lib.PROXY_X), axis=1) == lib.PROXY_LABELS
    accuracies = [right(w).mean() for w in trained]
    all_accuracies.append(accuracies)
    w = tiny.average(trained, accuracies)
    lib.close(lib.flat(path[number][0].params), w, f'round {number}')
  assert any(len(set(accuracies)) > 1 for accuracies in all_accuracies)
