"""Dirichlet shares in log space, and how they become whole numbers of rows; numpy only."""

import numpy as np


def even(rows: int, parts: int) -> np.ndarray:
  """Returns the sizes [parts] of parts of `rows` rows that differ by at most one."""
  return rows // parts + (np.arange(parts) < rows % parts)


def logsumexp(a: np.ndarray, axis: int) -> np.ndarray:
  """Returns log(sum(exp(a))) along an axis; at least one entry must be finite."""
  top = a.max(axis, keepdims=True)
  return np.log(np.exp(a - top).sum(axis)) + top.squeeze(axis)


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


def level(counts: np.ndarray, low: int, high: int, prefer: np.ndarray) -> np.ndarray:
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
