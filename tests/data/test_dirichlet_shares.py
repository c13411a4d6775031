"""Shares of Dirichlet partitions: their moments, and how they become whole rows, by hand."""

import numpy as np

from fedjax_syn.data.partition import dirichlet


def test_log_dirichlet_neither_underflows_nor_is_biased():
  """Entries of Dirichlet(a, ..., a) have mean 1/5 and second moment (a + 1) / (5 (5 a + 1))."""
  rng = np.random.default_rng(0)
  for a in (1e-6, 1e-3, 0.1, 1.0, 100.0):
    logs = dirichlet.log_dirichlet(rng, np.full((20_000, 5), a))
    q = np.exp(logs)
    assert np.isfinite(logs).all()
    np.testing.assert_allclose(q.sum(1), 1, atol=1e-9)
    np.testing.assert_allclose(q.mean(0), 0.2, atol=0.012)  # four sigma are 0.0113 at most
    np.testing.assert_allclose((q**2).mean(), (a + 1) / (5 * (5 * a + 1)), rtol=0.03)


def test_log_dirichlet_leaves_out_zero_concentrations():
  logs = dirichlet.log_dirichlet(np.random.default_rng(0), np.array([0.5, 0.0, 0.5]))
  assert logs[1] == -np.inf and np.isfinite(logs[[0, 2]]).all()


def test_rounding_by_hand():
  """One row is short in every class; owed after each is what was due less what was given.

  Class 0: remainders .5 .3 .2, client 0 goes up: owed -.5 .3 .2.
  Class 1: .4 .35 .25 plus owed: -.1 .65 .45, client 1: owed -.1 -.35 .45.
  Class 2: .6 .02 .38 plus owed: .5 - .83, client 2 (client 1 comes last, .02 < 1/20).
  """
  share = np.array([[1.5, 2.3, 0.2], [0.4, 0.35, 0.25], [0.6, 0.02, 0.38]])
  np.testing.assert_array_equal(dirichlet.round_shares(share), [[2, 2, 0], [0, 1, 0], [0, 0, 1]])


def test_bound_sizes_by_hand():
  """Client 1 lacks two rows of 3 and wants class 0, of which client 0 has one, then class 1."""
  counts = np.array([[1, 0], [4, 1]])
  prefer = np.array([[0.0, 2.0], [0.0, 1.0]])
  np.testing.assert_array_equal(dirichlet.bound_sizes(counts, 3, 3, prefer), [[0, 1], [3, 2]])
  np.testing.assert_array_equal(dirichlet.bound_sizes(counts, 1, 6, prefer), counts)
