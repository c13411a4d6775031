"""Partitions: exact covers, bounded time, the right statistics, and the traps others fell into."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedjax_syn.data.partition import (
  Partition,
  class_counts,
  names,
  owners_of,
  partition,
)

DIRICHLET = ('dirichlet', 'balanced_dirichlet', 'dirichlet_per_client', 'dirichlet_min')
OTHERS = ('labels_per_client', 'natural', 'natural_sample')
EQUAL = ('iid', 'balanced_dirichlet', 'dirichlet_per_client')
CASES = settings(max_examples=15, deadline=None)
ALPHA = st.floats(-3, 4).map(lambda power: 10.0**power)
CLIENTS = st.integers(1, 200)


def sorted_labels(classes=10, rows=200):
  return np.repeat(np.arange(classes), rows)


def uneven_labels(seed, classes, rows):
  """Labels of classes of very different sizes; some classes may have no row at all."""
  rng = np.random.default_rng(seed)
  return rng.choice(classes, size=rows, p=rng.dirichlet(np.full(classes, 0.5)))


def assert_exact_cover(p, rows, clients):
  assert p.start.shape == p.size.shape == (clients,)
  assert p.size.sum() == rows and p.size.min() >= 0
  np.testing.assert_array_equal(p.start, np.cumsum(p.size) - p.size)
  np.testing.assert_array_equal(np.sort(p.order), np.arange(rows))
  assert all(a.dtype == np.int32 for a in p[:3])


def entropy_bits(counts):
  """Mean label entropy of the clients that have rows."""
  counts = counts[counts.sum(1) > 0]
  q = counts / counts.sum(1, keepdims=True)
  return -np.where(q > 0, q * np.log2(np.where(q > 0, q, 1)), 0).sum(1).mean()


@pytest.mark.parametrize('name', ['iid', *DIRICHLET])
@CASES
@given(alpha=ALPHA, clients=CLIENTS, seed=st.integers(0, 99), rows=st.integers(500, 3000))
def test_every_row_is_dealt_once(name, alpha, clients, seed, rows):
  """No shared, lost or last-dropped row, exactly `clients` clients, classes of unequal size."""
  y = uneven_labels(seed, 10, rows)
  p = partition(name, y, clients, alpha=alpha, seed=seed, num_classes=10, min_size=2)
  assert_exact_cover(p, rows, clients)
  if name in EQUAL:
    assert p.size.max() - p.size.min() <= 1
  if name == 'dirichlet_min':
    assert p.size.min() >= 2
  counts = class_counts(p, y, 10)
  np.testing.assert_array_equal(counts.sum(1), p.size)
  np.testing.assert_array_equal(counts.sum(0), np.bincount(y, minlength=10))


@CASES
@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 40), st.integers(0, 9))
def test_labels_per_client_is_even_or_refused(classes, labels, clients, seed):
  y = sorted_labels(classes, 60)
  if labels > classes or (clients * labels) % classes:
    with pytest.raises(ValueError, match='would work'):
      partition('labels_per_client', y, clients, labels=labels, num_classes=classes)
    return
  p = partition('labels_per_client', y, clients, labels=labels, seed=seed, num_classes=classes)
  assert_exact_cover(p, len(y), clients)
  held = class_counts(p, y, classes)
  owners = (held > 0).sum(0)
  if clients * labels // classes <= 60:
    assert (owners == clients * labels // classes).all()
    assert ((held > 0).sum(1) == labels).all()
  assert p.size.max() - p.size.min() <= labels  # a shard is off by at most one row


def test_classes_without_rows_leave_the_others_alone():
  """Classes 0 and 2 are empty; class 1 has 7 rows for its two owners: 4 and 3."""
  p = partition('labels_per_client', np.ones(7, int), 2, labels=3, num_classes=3)
  np.testing.assert_array_equal(p.size, [4, 3])


def test_fedcog_skew_2_pairs_clients():
  """Clients i and i + 5 halve classes 2 (i mod 5) and 2 (i mod 5) + 1; 200 rows each: 100 + 100."""
  y = sorted_labels()
  counts = class_counts(partition('labels_per_client', y, 10, labels=2), y, 10)
  expected = np.zeros((10, 10), int)
  for i in range(10):
    expected[i, [2 * (i % 5), 2 * (i % 5) + 1]] = 100
  np.testing.assert_array_equal(counts, expected)


def test_fedcog_skew_10_gives_ten_classes_each():
  """Client i owns all of classes 10 i .. 10 i + 9."""
  y = sorted_labels(100, 20)
  counts = class_counts(partition('labels_per_client', y, 10, labels=10), y, 100)
  np.testing.assert_array_equal(counts, np.kron(np.eye(10, dtype=int), np.full((1, 10), 20)))


def test_iid_on_sorted_labels_gives_every_client_every_label():
  y = sorted_labels()
  assert (class_counts(partition('iid', y, 10), y, 10) > 0).all()


@pytest.mark.parametrize('name', DIRICHLET)
def test_rows_of_a_class_are_not_cut_contiguously(name):
  """A contiguous cut gives a client neighbours of the file; shuffled ones are nearly all apart."""
  y = sorted_labels(2, 1000)
  p = partition(name, y, 4, alpha=100.0)
  for start, size in zip(p.start, p.size, strict=True):
    rows = np.sort(p.order[start : start + size])
    assert np.mean(np.diff(rows) == 1) < 0.5
    drift = np.corrcoef(p.order[start : start + size], np.arange(size))[0, 1]
    assert abs(drift) < 0.25  # neither are they in the file's order (or by class) within the client


@pytest.mark.parametrize('name', DIRICHLET)
def test_large_alpha_is_uniform(name):
  """Dirichlet(1e4): 50 rows per class and client, within three sigma of a multinomial draw.

  Three sigma are 3 sqrt(1000 / 20 (1 - 1 / 20)) = 20.7 rows. All but the capped partition do much
  better, as they round shares (relative deviation 0.01) instead of drawing rows.
  """
  y = sorted_labels(10, 1000)
  for seed in range(5):
    off = np.abs(class_counts(partition(name, y, 20, alpha=1e4, seed=seed), y, 10) - 50)
    assert off.max() < 20.7 and off.mean() < 3


@pytest.mark.parametrize('name', DIRICHLET)
def test_alpha_has_an_effect_on_permuted_labels(name):
  y = np.random.default_rng(0).permutation(sorted_labels())
  low, high = (
    entropy_bits(class_counts(partition(name, y, 20, alpha=alpha), y, 10))
    for alpha in (0.05, 100.0)
  )
  assert high - low > 1.0


@pytest.mark.parametrize('name', DIRICHLET)
@pytest.mark.parametrize('classes, clients', [(10, 100), (100, 200)])
@pytest.mark.parametrize('alpha', [1e-3, 0.05, 1e4])
def test_full_size_returns_in_bounded_time(name, classes, clients, alpha):
  """60,000 rows; where others re-draw for ever (no draw with ten rows for all at alpha 0.05)."""
  y = sorted_labels(classes, 60_000 // classes)
  began = time.perf_counter()
  p = partition(name, y, clients, alpha=alpha, seed=1, min_size=10)
  assert time.perf_counter() - began < 5
  assert_exact_cover(p, 60_000, clients)
  if name == 'dirichlet_min':
    assert p.size.min() >= 10


@pytest.mark.parametrize(
  'alpha, classes_per_client', [(1e-3, 1.5), (0.01, 1.7), (0.04, 3.2), (0.16, 6.7), (10.0, 10.0)]
)
def test_balanced_dirichlet_has_dynafeds_statistics(alpha, classes_per_client):
  """80 clients, 10 classes of 5000: sizes 625, and the published code's classes per client.

  At alpha = 1e-3 a spanning tree of the 90 margins has 89 entries, 1.1 per client; stray rows of
  the final rounding add less than one.
  """
  y = sorted_labels(10, 5000)
  for seed in range(3):
    p = partition('balanced_dirichlet', y, 80, alpha=alpha, seed=seed)
    assert set(p.size) == {625}
    mean = (class_counts(p, y, 10) > 0).sum(1).mean()
    assert abs(mean - classes_per_client) < 0.5


def test_balanced_dirichlet_without_freedom_is_forced():
  """One class, or one client: the margins leave one matrix only."""
  np.testing.assert_array_equal(partition('balanced_dirichlet', np.zeros(12, int), 4).size, [3] * 4)
  p = partition('balanced_dirichlet', sorted_labels(3, 5), 1, alpha=1e-3)
  np.testing.assert_array_equal(class_counts(p, sorted_labels(3, 5), 3), [[5, 5, 5]])


def test_plain_dirichlet_leaves_clients_empty():
  """80 clients at alpha 0.01: about 29 of 80 empty (10 classes x 5000), and that is legal."""
  empty = [
    (partition('dirichlet', sorted_labels(10, 5000), 80, alpha=0.01, seed=s).size == 0).sum()
    for s in range(5)
  ]
  assert 20 < np.mean(empty) < 40


def test_minimum_is_met_where_rejection_never_ends():
  y = sorted_labels(10, 5000)
  p = partition('dirichlet_min', y, 80, alpha=0.01, min_size=10)
  assert p.size.min() == 10
  assert (class_counts(p, y, 10) > 0).sum(1).mean() < 2.5  # the repair does not undo the skew


def test_minimum_as_large_as_the_mean_makes_sizes_equal():
  p = partition('dirichlet_min', sorted_labels(10, 60), 20, alpha=0.1, min_size=30)
  np.testing.assert_array_equal(p.size, [30] * 20)


def test_dirichlet_min_caps_full_clients():
  """A client below rows / clients = 100 can take one class of 100 more, not two: 199 at most.

  Without the cap, alpha = 1e-3 gives somebody two or more of the ten classes in nearly any draw.
  """
  y = sorted_labels(10, 100)
  capped, plain = (
    [partition(name, y, 10, alpha=1e-3, min_size=1, seed=s).size.max() for s in range(5)]
    for name in ('dirichlet_min', 'dirichlet')
  )
  assert max(capped) <= 199 < max(plain)


def test_exhausted_classes_leave_the_mix():
  """One class has 2 rows of 200: clients after its end still get 20 rows, from the other."""
  y = np.repeat([0, 1], [2, 198])
  p = partition('dirichlet_per_client', y, 10, alpha=1e-3, seed=5)
  np.testing.assert_array_equal(p.size, [20] * 10)
  assert_exact_cover(p, 200, 10)


@pytest.mark.parametrize('name', ['iid', *DIRICHLET, 'labels_per_client'])
def test_seed_decides_everything(name):
  y = sorted_labels()
  first, again, other = (partition(name, y, 20, alpha=0.3, seed=s, labels=2) for s in (7, 7, 8))
  for a, b in zip(first, again, strict=True):
    np.testing.assert_array_equal(a, b)
  assert (first.order != other.order).any()
  if name in DIRICHLET:
    assert (class_counts(first, y, 10) != class_counts(other, y, 10)).any()


def test_global_numpy_state_is_neither_read_nor_changed():
  np.random.seed(0)
  before = partition('dirichlet', sorted_labels(), 5).order
  state = np.random.get_state()[1].copy()
  np.random.seed(1)
  np.testing.assert_array_equal(partition('dirichlet', sorted_labels(), 5).order, before)
  np.random.seed(0)
  np.testing.assert_array_equal(np.random.get_state()[1], state)


def test_natural_keeps_the_owners():
  ids = np.array([2, 0, 2, 3, 0, 2])
  p = partition('natural', np.arange(6), 4, client_ids=ids)
  assert_exact_cover(p, 6, 4)
  np.testing.assert_array_equal(p.size, [2, 0, 3, 1])
  np.testing.assert_array_equal(ids[p.order], [0, 0, 2, 2, 2, 3])


@pytest.mark.parametrize('name', ['natural', 'natural_sample'])
def test_a_client_without_rows_keeps_its_number(name):
  """Of five clients the second and the last have lost their rows: nobody takes their numbers."""
  ids = np.array([2, 0, 3, 0])
  p = partition(name, np.arange(4), 5, client_ids=ids, natural_clients=5)
  np.testing.assert_array_equal(p.size, [2, 0, 1, 1, 0])
  np.testing.assert_array_equal(p.natural, np.arange(5))
  with pytest.raises(ValueError, match='data.clients = 4, but the data set has 5 clients: use 5'):
    partition('natural', np.arange(4), 4, client_ids=ids, natural_clients=5)


def test_whether_a_client_has_rows_changes_no_draw_of_clients():
  ids = np.arange(40) % 10
  chosen = lambda kept: partition(
    'natural_sample', kept, 4, seed=3, client_ids=ids[kept], natural_clients=10
  )
  everyone, fewer = chosen(np.arange(40)), chosen(np.flatnonzero(ids < 5))
  np.testing.assert_array_equal(everyone.natural, fewer.natural)
  np.testing.assert_array_equal(fewer.size > 0, fewer.natural < 5)


def test_whose_test_rows_are_whose():
  """Clients 1 and 4 of six take part, as 0 and 1.

  A row of -1 has no owner, and 9 is a client without training rows.
  """
  p = Partition(np.arange(2), np.arange(2), np.ones(2, int), np.array([1, 4]))
  np.testing.assert_array_equal(owners_of(p, np.array([4, 1, 0, 9, -1, 4])), [1, 0, -1, -1, -1, 1])
  assert owners_of(p, None) is None and owners_of(p, np.array([0, -1])) is None
  assert owners_of(p._replace(natural=None), np.array([4, 1])) is None


def test_multi_hot_labels():
  """Rows with labels {0, 2}, {1}, {} at client 0 and {2} at client 1."""
  y = np.array([[1, 0, 1], [0, 1, 0], [0, 0, 0], [0, 0, 1]], np.uint8)
  p = partition('natural', y, 2, client_ids=np.array([0, 0, 0, 1]))
  np.testing.assert_array_equal(class_counts(p, y, 3), [[1, 1, 1], [0, 0, 1]])
  assert_exact_cover(partition('iid', y, 3), 4, 3)


def test_more_clients_than_rows():
  for name in ('iid', 'dirichlet', 'balanced_dirichlet', 'dirichlet_per_client'):
    assert_exact_cover(partition(name, np.array([0, 1, 1]), 7, alpha=1e-3), 3, 7)


@pytest.mark.parametrize(
  'arguments, match',
  [
    ({'name': 'niid'}, 'niid.*dirichlet_min'),
    ({'clients': 0}, 'data.clients=0: must be at least 1'),
    ({'alpha': 0.0}, 'data.alpha=0.0: must be greater than 0'),
    ({'alpha': float('inf')}, 'data.alpha=inf: must be a finite'),
    ({'alpha': float('nan')}, 'data.alpha=nan: must be a finite'),
    ({'name': 'dirichlet_min', 'min_size': 21}, r'alpha = 0.1.*min_size = 21.*<= 20 or.*<= 95'),
    ({'name': 'labels_per_client', 'labels': 11}, 'labels = 11, but 1 to 10'),
    ({'name': 'labels_per_client', 'labels': 3, 'clients': 15}, 'clients = 10 or a multiple'),
    ({'name': 'natural'}, 'does not say whose'),
    ({'name': 'natural', 'client_ids': np.zeros(3, int)}, 'must be 2000'),
    ({'name': 'natural', 'client_ids': np.arange(2000) % 62}, 'has 62 clients'),
    ({'num_classes': 9}, r'0\.\.9, but must be 0\.\.8'),
    ({'y': np.zeros((4, 3), int)}, 'needs one class per row'),
    ({'y': np.zeros(0, int)}, 'no training rows'),
  ],
)
def test_what_cannot_be_is_refused(arguments, match):
  arguments = {'name': 'dirichlet', 'y': sorted_labels(), 'clients': 100, **arguments}
  with pytest.raises(ValueError, match=match) as refusal:
    partition(**arguments)
  assert '\n' not in str(refusal.value)


def test_names_cover_the_registry():
  assert set(names()) == {'iid', *DIRICHLET, 'fedcog_niid1', *OTHERS}
  assert all(line and '\n' not in line for line in names().values())
