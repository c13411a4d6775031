"""Robust averages in numpy: Yin et al. (2018), Definitions 1 and 2; Blanchard et al. (2017)."""

import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_syn as fs
from fedjax_syn.core.contexts import Messages, Round
from fedjax_syn.server import robust
from tests.float64 import library as lib

COVERS = ('median', 'trimmedmean', 'krum')
RNG = np.random.default_rng(7)


def trimmed_mean(d, beta):
  """The mean of each column without the floor(beta n) smallest and largest values."""
  n, ordered = len(d), np.sort(d, axis=0)
  b = int(np.floor(beta * n))
  return ordered[b : n - b].mean(axis=0)


def krum(d, f, m):
  """The mean of the m rows with the lowest sums of n - f - 2 squared distances to other rows."""
  n, scores = len(d), []
  for i in range(n):
    distances = sorted(((d[i] - d[j]) ** 2).sum() for j in range(n) if j != i)
    scores.append(sum(distances[: n - f - 2]))
  return d[np.argsort(scores)[:m]].mean(axis=0)


CASES = {
  'median': (fs.Median(), lambda d: np.median(d, axis=0)),
  'trimmed mean': (fs.TrimmedMean(beta=0.4), lambda d: trimmed_mean(d, 0.4)),
  # Of three, the two nearest have equal scores: one of them alone would be a draw.
  'multi-krum': (fs.Krum(share=0.0, keep=2), lambda d: krum(d, 0, 2)),
}


@pytest.mark.parametrize('name', CASES)
def test_two_rounds(name):
  layer, average = CASES[name]
  path = lib.rounds(fs.chain(lib.base(weighting='size'), layer), 2)
  w = lib.W0
  for number in (1, 2):
    d = np.stack([lib.local(number, k, w) - w for k in lib.CLIENTS])
    assert np.abs(average(d) - d.mean(axis=0)).max() > 1e-3  # the rule acts
    w = w + average(d)
    lib.close(lib.flat(path[number][0].params), w, f'round {number}')


# Of seven clients, the third and the last are absent.
WEIGHT = np.array([2.0, 1.0, 0.0, 1.0, 1.0, 3.0, 0.0])
UPDATES = {'a': RNG.normal(size=(7, 2, 3)), 'b': RNG.normal(size=(7, 4))}


def aggregated(layer, weight):
  """What a layer makes of the updates, from parameters of zero; flat."""
  updates = {name: jnp.asarray(leaf) for name, leaf in UPDATES.items()}
  params = {name: jnp.zeros(leaf.shape[1:]) for name, leaf in UPDATES.items()}
  messages = Messages(jnp.asarray(weight), {}, {}, {'params': updates})
  new, _ = layer.aggregate(Round(None, None, None, params, {}, messages))
  return np.concatenate([np.ravel(new['a']), np.ravel(new['b'])])


@pytest.mark.parametrize(
  ('layer', 'average'),
  [
    (fs.Median(), lambda d: np.median(d, axis=0)),
    (fs.TrimmedMean(beta=0.0), lambda d: d.mean(axis=0)),
    (fs.TrimmedMean(beta=0.2), lambda d: trimmed_mean(d, 0.2)),
    (fs.TrimmedMean(beta=0.45), lambda d: trimmed_mean(d, 0.45)),
    (fs.Krum(share=0.2), lambda d: krum(d, 1, 1)),
    (fs.Krum(share=0.2, keep=3), lambda d: krum(d, 1, 3)),
    (fs.Krum(share=0.2, keep=9), lambda d: d.mean(axis=0)),
  ],
)
def test_clients_without_samples_count_for_nothing(layer, average):
  d = np.concatenate([UPDATES['a'].reshape(7, -1), UPDATES['b']], axis=1)[WEIGHT > 0]
  np.testing.assert_allclose(aggregated(layer, WEIGHT), average(d), rtol=1e-12)


def test_squared_distances_are_exact_for_near_points():
  """A difference of norms would leave nothing of 1e-9 beside 1e6."""
  d = robust.squared_distances({'a': jnp.array([[1e6, 0.0], [1e6, 3e-9]])})
  np.testing.assert_allclose(d, [[0, 9e-18], [9e-18, 0]], rtol=1e-6)


@pytest.mark.parametrize('layer', [fs.Median(), fs.TrimmedMean(), fs.Krum()])
def test_a_round_without_samples_changes_nothing(layer):
  assert (aggregated(layer, np.zeros(7)) == 0).all()
