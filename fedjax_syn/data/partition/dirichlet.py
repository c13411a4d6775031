"""Dirichlet partitions: draws each client's share of each class, and rounds shares to whole rows.

A partitioner takes a `Spec` and returns counts of rows, int64 [classes, clients], `fedcog_niid1`
the client of each row. `log_dirichlet` draws shares in log space, so that a small alpha does not
underflow; `round_shares` rounds them.
"""

import math

import numpy as np

from fedjax_syn.data.partition.spec import Spec, even_sizes


def dirichlet(spec: Spec, rng: np.random.Generator) -> np.ndarray:
  """Draws the shares of each class from Dirichlet(alpha); clients may be empty."""
  share = np.exp(log_dirichlet(rng, spec.concentration))
  return round_shares(share * spec.totals[:, None])


def balanced_dirichlet(spec: Spec, rng: np.random.Generator, sweeps: int = 500) -> np.ndarray:
  """Normalises Dirichlet shares by class and by client in turn (DynaFed, Pi et al., 2023).

  It differs from their released code in two points. It works in log space, towards sums (class
  sizes; rows / clients) that exist for classes of unequal size too, and `bound_sizes` moves what
  the sweeps and the rounding leave: sizes differ by at most one row.
  """
  occurs = spec.totals > 0
  log_rows = np.log(spec.totals[occurs])
  log_column = math.log(len(spec.y) / spec.clients)
  log_share = log_dirichlet(rng, spec.concentration[occurs]) + log_rows[:, None]
  for _ in range(sweeps):
    excess = logsumexp(log_share, 0) - log_column
    if np.abs(excess).max() < 1e-3:
      break
    log_share -= excess
    log_share += (log_rows - logsumexp(log_share, 1))[:, None]
  sizes = even_sizes(len(spec.y), spec.clients)
  counts = np.zeros((spec.classes, spec.clients), np.int64)
  rounded = round_shares(np.exp(log_share))
  counts[occurs] = bound_sizes(rounded, sizes.min(), sizes.max(), log_share)
  return counts


def dirichlet_per_client(spec: Spec, rng: np.random.Generator) -> np.ndarray:
  """Draws a mix of classes for every client (Hsu et al., 2019); an exhausted class leaves the mix.

  The mix is Dirichlet(alpha * classes * prior): alpha counts per class, as in the other partitions;
  in the paper it is the sum over classes. Only fractions of rows are drawn. Were every row drawn,
  the last client would get the sampling noise of all others. Sizes differ by at most one row.
  """
  left = spec.totals
  concentration = spec.alpha * spec.classes * left / left.sum()
  mixes = log_dirichlet(rng, np.tile(concentration, (spec.clients, 1)))
  counts = np.zeros((spec.classes, spec.clients), np.int64)
  for client, missing in enumerate(even_sizes(len(spec.y), spec.clients)):
    while missing:  # a pass that does not suffice has exhausted a class
      mix = np.where(left > 0, mixes[client], -np.inf)
      due = missing * np.exp(mix - logsumexp(mix, 0))
      given = np.minimum(_draw_fractions(rng, due, missing), left)
      counts[:, client] += given
      left = left - given
      missing -= given.sum()
  return counts


def _draw_fractions(rng: np.random.Generator, due: np.ndarray, rows: int) -> np.ndarray:
  """Rounds due [classes] to `rows` rows in all, up with the probability of the fraction."""
  whole = np.floor(due).astype(np.int64)
  short, fraction = rows - whole.sum(), due - whole
  return whole + rng.multinomial(short, fraction / fraction.sum()) if short else whole


def dirichlet_min(spec: Spec, rng: np.random.Generator, tries: int = 30) -> np.ndarray:
  """Draws Dirichlet shares with a cap and a minimum size (NIID-Bench, Li et al., 2022).

  FedCOG calls it NIID-1. Only clients with fewer than rows / clients rows share a class. If no draw
  of `tries` reaches the minimum (80 clients, alpha 0.04: never), `bound_sizes` repairs the last
  one: the smallest client takes rows from the largest, class by class, in the order of its own
  shares.
  """
  rows, totals = len(spec.y), spec.totals
  if spec.min_size * spec.clients > rows:
    raise ValueError(
      f'dirichlet_min, data.alpha = {spec.alpha}: data.min_size = {spec.min_size} for '
      f'{spec.clients} clients takes more than the {rows} rows; data.min_size <= '
      f'{rows // spec.clients} or data.clients <= {rows // spec.min_size} would work'
    )
  for _ in range(tries):
    log_share = log_dirichlet(rng, spec.concentration)
    counts = np.zeros((spec.classes, spec.clients), np.int64)
    size = np.zeros(spec.clients, np.int64)
    for c in np.flatnonzero(totals):  # while a row is left, a client is below the mean
      mix = np.where(size < rows / spec.clients, log_share[c], -np.inf)
      share = np.exp(mix - logsumexp(mix, 0)) * totals[c]
      counts[c] = round_shares(share[None])[0]
      size += counts[c]
    if size.min() >= spec.min_size:
      break
  return bound_sizes(counts, spec.min_size, rows, log_share)


def fedcog_niid1(spec: Spec, rng: np.random.Generator, tries: int = 100) -> np.ndarray:
  """Draws the clients of FedCOG's released code: with seed 0 and Fashion-MNIST, the paper's NIID-1.

  As `dirichlet_min`, with the numbers of `numpy.random.RandomState(seed)`, which nothing else has
  drawn from: for each class its rows are shuffled, and Dirichlet shares, those of clients with
  rows / clients rows or more set to 0, are cut off at whole rows. All classes are drawn again until
  every client has the minimum.

  Args:
    spec: what is divided; `rng` is not used.
    rng: of the other partitions.
    tries: draws before it is refused.

  Returns:
    The client of each row, [rows].
  """
  del rng
  random, rows = np.random.RandomState(spec.seed), len(spec.y)
  for _ in range(tries):
    owner, size = np.empty(rows, np.int64), np.zeros(spec.clients, np.int64)
    for c in range(spec.classes):
      of_class = np.flatnonzero(spec.y == c)
      random.shuffle(of_class)
      share = random.dirichlet(np.full(spec.clients, spec.alpha)) * (size < rows / spec.clients)
      if not share.sum() > 0:  # a small alpha: every client with a share is full
        break
      end = (np.cumsum(share / share.sum()) * len(of_class)).astype(np.int64)
      end[-1] = len(of_class)
      counts = np.diff(end, prepend=0)
      owner[of_class] = np.repeat(np.arange(spec.clients), counts)
      size += counts
    else:
      if size.min() >= spec.min_size:
        return owner
  raise ValueError(
    f'fedcog_niid1, data.alpha = {spec.alpha}, data.clients = {spec.clients}: no draw of {tries}'
    f' gives every client data.min_size = {spec.min_size} rows; dirichlet_min would work'
  )


def log_dirichlet(rng: np.random.Generator, concentration: np.ndarray) -> np.ndarray:
  """Draws logarithms of Dirichlet vectors.

  Gamma(a) is Gamma(a + 1) U^(1/a), which underflows at a = 1e-3 while its logarithm does not, so
  that no vector is all zeros.

  Args:
    rng: the source of randomness.
    concentration: [..., entries]; zero means that the entry does not take part.

  Returns:
    [..., entries], finite where the concentration is positive, else -inf.
  """
  log_gamma = np.log(rng.gamma(concentration + 1))
  with np.errstate(divide='ignore', invalid='ignore'):
    log_gamma += np.log1p(-rng.random(concentration.shape)) / concentration
  log_gamma = np.where(concentration > 0, log_gamma, -np.inf)
  return log_gamma - logsumexp(log_gamma, -1)[..., None]


def logsumexp(a: np.ndarray, axis: int) -> np.ndarray:
  """Returns log(sum(exp(a))) along an axis; at least one entry must be finite."""
  top = a.max(axis, keepdims=True)
  return np.log(np.exp(a - top).sum(axis)) + top.squeeze(axis)


def round_shares(share: np.ndarray) -> np.ndarray:
  """Rounds shares up or down to whole rows, keeping the sum of every class.

  The largest remainders go up; what a client lost in one class counts for it in the next, so that
  client sizes stay close as well. Remainders under 1/20 come last, so that clients gain hardly any
  stray row of a class.

  Args:
    share: rows that are due, [classes, clients]; every class sums to a whole number.

  Returns:
    int64 [classes, clients].
  """
  counts = np.floor(share).astype(np.int64)
  missing = np.rint(share.sum(1)).astype(np.int64) - counts.sum(1)
  owed = np.zeros(share.shape[1])
  for c, remainder in enumerate(share - counts):
    rank = np.where(remainder > 0.05, remainder + owed, remainder - len(share) - 1)
    up = np.argsort(-rank, kind='stable')[: missing[c]]
    counts[c, up] += 1
    owed += remainder
    owed[up] -= 1
  return counts


def bound_sizes(counts: np.ndarray, low: int, high: int, prefer: np.ndarray) -> np.ndarray:
  """Moves rows from the largest to the smallest client until all sizes lie in low..high.

  Every move ends a violation or empties an entry, so that their number is bounded.

  Args:
    counts: rows [classes, clients], with low * clients <= all rows <= high * clients.
    low: smallest size allowed.
    high: largest size allowed.
    prefer: [classes, clients], finite where the class has rows; of what the larger client holds,
      the smaller one takes the class with the largest entry.

  Returns:
    Rows [classes, clients] with the same sums over clients.
  """
  counts = counts.copy()
  while True:
    size = counts.sum(0)
    giver, taker = size.argmax(), size.argmin()
    need = max(size[giver] - high, low - size[taker])
    if need <= 0:
      return counts
    c = np.where(counts[:, giver] > 0, prefer[:, taker], -np.inf).argmax()
    amount = min(need, size[giver] - low, high - size[taker], counts[c, giver])
    counts[c, giver] -= amount
    counts[c, taker] += amount
