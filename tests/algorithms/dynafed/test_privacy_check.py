"""The privacy check: distances, shares and areas by hand, and sets that leak or do not leak."""

import jax
import numpy as np
import pytest
from scipy.spatial.distance import cdist

from fedjax_syn.algorithms.dynafed.privacy_check import (
  membership,
  nearest_distances,
  nearness,
  sample_losses,
)
from fedjax_syn.data import federated
from tests import tiny


def images_of(rng, rows):
  return rng.integers(0, 256, (rows, 2, 2, 1)).astype(np.uint8)


@pytest.fixture
def data():
  return tiny.federated([6, 3, 0, 8])  # mean 0.5 and std 0.3


@pytest.mark.parametrize('chunk', [1, 2, 100])
def test_distances_by_hand(chunk):
  """Pixels are seen as they are. (0, 0) is sqrt((9 + 16) / 2) from (3, 4) and further from (6, 8);
  (6, 7) is sqrt(1 / 2) from (6, 8)."""
  data = tiny.two_points()
  x = np.array([[0, 0], [6, 7]], float).reshape(2, 1, 2, 1)
  references = np.array([[3, 4], [6, 8], [60, 80]], np.uint8).reshape(3, 1, 2, 1)
  found = nearest_distances(data, x, references, chunk)
  np.testing.assert_allclose(found, [np.sqrt(12.5), np.sqrt(0.5)], rtol=1e-6)


def test_distances_against_all_pairs_in_normalised_space(data):
  rng = np.random.default_rng(0)
  x, references = images_of(rng, 9), images_of(rng, 31)
  pixels = lambda a: ((a / 255 - 0.5) / 0.3).reshape(len(a), 4)
  expected = cdist(pixels(x), pixels(references)).min(axis=1) / np.sqrt(4)
  np.testing.assert_allclose(nearest_distances(data, x, references, 7), expected, rtol=1e-5)


def test_shares_by_hand():
  """Held out: 0, 1, ..., 20, with the 5 % quantile 1 and the median 10.

  Of 0, 0.5, 1, 30 two lie below 1. Their median is 0.75. Their 5 % quantile is 0.15 of the way
  from 0 to 0.5.
  """
  found = nearness(np.array([0, 0.5, 1, 30]), np.arange(21.0))
  assert found == pytest.approx((0.75, 0.075, 10, 1, 0.5))


def test_area_by_hand():
  """The members score {3, 1}, the others {0, 1, 2}. A member is higher in four of the six pairs.

  The four pairs are 3 > 0, 3 > 1, 3 > 2 and 1 > 0. One pair is equal: A = 4.5 / 6. Hanley and
  McNeil: Q1 = A / (2 - A) = 3/5 and Q2 = 2 A^2 / (1 + A) = 9/14. The variance is
  (3/16 + 1 (3/5 - 9/16) + 2 (9/14 - 9/16)) / 6.
  """
  found = membership(np.array([3, 1]), np.array([0, 1, 2]))
  assert found.auc == 0.75
  variance = (3 / 16 + (3 / 5 - 9 / 16) + 2 * (9 / 14 - 9 / 16)) / 6
  assert found.std_error == pytest.approx(np.sqrt(variance))


def test_ties_are_chance_with_wilcoxon_s_error():
  """All scores equal: A = 1/2 exactly, and the variance is (n + m + 1) / (12 n m)."""
  found = membership(np.zeros(7), np.zeros(5))
  assert found.auc == 0.5
  assert found.std_error == pytest.approx(np.sqrt(13 / (12 * 35)))


def test_the_error_is_the_spread_of_the_area():
  """Both samples of a pair have one distribution; 500 pairs give the area's spread to 3.2 %."""
  rng = np.random.default_rng(0)
  found = [membership(rng.normal(size=20), rng.normal(size=30)) for _ in range(500)]
  spread = np.std([attack.auc for attack in found])
  assert np.mean([attack.std_error for attack in found]) == pytest.approx(spread, rel=0.1)


def test_copies_of_training_images_are_found(data):
  """All 17 training images are copied: every copy has distance 0 and is nearer than new images.

  A = 1: each member is at distance 0, and no new image is.
  """
  rng = np.random.default_rng(1)
  train, new = np.asarray(data.x), images_of(rng, 40)
  copies = np.asarray(federated.normalise(data, data.x))
  distances = nearest_distances(data, copies, train)
  np.testing.assert_array_equal(distances, 0)
  summary = nearness(distances, nearest_distances(data, new, train))
  assert summary.share_nearer == 1 and summary.median == 0 and summary.held_out_low > 0
  score = lambda x: -nearest_distances(data, x, copies)
  assert membership(score(train), score(new)).auc == 1


def test_half_of_the_training_images_copied(data):
  """8 of the 16 members are copied. They have distance 0 and win every pair.

  The other 8 are like new images. So A is 1/2 + 1/2 1/2 = 3/4, up to half the error of their own
  area. That half is about sqrt(9 / (12 8)) / 2 = 0.15.
  """
  rng = np.random.default_rng(2)
  train, new = images_of(rng, 16), images_of(rng, 400)
  copies = train[:8]
  score = lambda x: -nearest_distances(data, x, copies)
  assert (score(train)[:8] == 0).all() and (score(new) < 0).all()
  found = membership(score(train), score(new)).auc
  rest = membership(score(train)[8:], score(new)).auc
  assert found == pytest.approx((1 + rest) / 2) and rest < 0.9


def test_noise_tells_nothing(data):
  """Four standard errors: 1 in 16,000 by chance, and the seed is fixed."""
  rng = np.random.default_rng(3)
  train, new = images_of(rng, 300), images_of(rng, 200)
  noise = rng.normal(size=(20, 2, 2, 1)).astype(np.float32)
  score = lambda x: -nearest_distances(data, x, noise)
  found = membership(score(train), score(new))
  assert abs(found.auc - 0.5) < 4 * found.std_error
  assert 0.02 < found.std_error < 0.03


def test_losses_against_numpy(data):
  """Batches of four with five rows: the padding must not come back."""
  model = tiny.net(4, 3)
  variables = model.init(jax.random.key(0))
  x, y = np.asarray(data.x)[:5], np.asarray(data.y)[:5]
  w = jax.tree.map(np.asarray, variables.params)
  z = np.tanh(((x / 255 - 0.5) / 0.3).reshape(5, 4) @ w['w0'] + w['b0']) @ w['w1']
  expected = np.log(np.exp(z).sum(1)) - z[np.arange(5), y]
  for batch_size in (4, 500):
    found = sample_losses(model, data, variables, x, y, batch_size)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
