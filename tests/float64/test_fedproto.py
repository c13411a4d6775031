"""FedProto in numpy (Tan et al., 2022, Eqs. 3, 5 and 6), with and without averaged models."""

import numpy as np
import pytest

import fedjax_syn as fs
from tests.float64 import library as lib
from tests.float64 import model as tiny

COVERS = ('fedproto',)
LAMBDA = 0.4


def gradient_to(prototypes):
  """The gradient of the loss plus lambda mean (z - C_y)^2.

  The mean is over the samples whose class has a prototype.
  """

  def gradient(w, x, y):
    known = np.array([c in prototypes for c in y])
    apart = np.array(
      [z - prototypes.get(c, z) for z, c in zip(tiny.features(w, x), y, strict=True)]
    )
    pull = 2 * LAMBDA * apart / max(known.sum(), 1) / tiny.FEATURES
    rest = np.zeros(tiny.SIZE - tiny.PIXELS * tiny.FEATURES)
    return tiny.gradient(w, x, y) + np.concatenate([(x.T @ pull).ravel(), rest])

  return gradient


@pytest.mark.parametrize('average', [True, False])
def test_three_rounds(average):
  method = fs.chain(lib.base(), fs.FedProto(lambda_proto=LAMBDA, average=average))
  path = lib.rounds(method, 3)
  own, w, prototypes = [lib.W0 for _ in lib.CLIENTS], lib.W0, {}
  for number in (1, 2, 3):
    begin = [w if average else model for model in own]
    own = [lib.local(number, k, begin[k], gradient_to(prototypes)) for k in lib.CLIENTS]
    features = np.concatenate([tiny.features(own[k], lib.X[k]) for k in lib.CLIENTS])
    labels = np.concatenate(lib.Y)
    prototypes = {c: features[labels == c].mean(axis=0) for c in range(tiny.CLASSES)}
    w = tiny.average(own) if average else lib.W0
    state = path[number][0]
    lib.close(lib.flat(state.params), w, f'round {number}')
    for c in range(tiny.CLASSES):
      lib.close(state.server['fedproto'].mean[c], prototypes[c], f'class {c} of round {number}')
    if not average:
      for k in lib.CLIENTS:
        lib.close(lib.row(state.clients['fedproto'], k), own[k], f'client {k} of round {number}')


def test_a_class_that_nobody_has_keeps_its_prototype():
  """One client of three in a round: classes that it lacks stay as they were."""
  path = lib.rounds(fs.chain(lib.base(), fs.FedProto()), 4, participation=1 / 3)
  kept = 0
  for number in range(2, 5):
    (k,) = lib.sampled(number, 1 / 3)
    before, after = (path[n][0].server['fedproto'].mean for n in (number - 1, number))
    absent = lib.COUNTS[k] == 0
    np.testing.assert_array_equal(after[absent], before[absent])
    kept += absent.sum()
  assert kept


def test_without_averaged_models_only_prototypes_travel():
  engine = lib.engine_of(fs.chain(lib.base(), fs.FedProto(average=False)))
  up, down = engine.bytes_per_round()
  features, counts = tiny.CLASSES * tiny.FEATURES * 8, tiny.CLASSES * 8
  assert up == len(lib.SIZES) * (features + counts)
  assert down == len(lib.SIZES) * (features + tiny.CLASSES)
