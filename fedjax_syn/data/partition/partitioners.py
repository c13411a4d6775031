"""The ways to deal rows to clients: each decides counts [classes, clients] or owners [rows]."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fedjax_syn.data.partition import dirichlet

LEFT_OUT = -1  # the owner of a row that no client has


class Spec(NamedTuple):
  """What a partitioner may read; the fields are those of `partition`."""

  y: np.ndarray  # [rows] class labels, or [rows, labels] multi-hot
  clients: int
  classes: int
  alpha: float
  min_size: int
  labels: int
  client_ids: np.ndarray | None  # [rows]
  natural_clients: int  # of the data set; 0: as many as `client_ids` name

  @property
  def totals(self) -> np.ndarray:
    """Rows by class, int64 [classes]."""
    return np.bincount(self.y, minlength=self.classes)

  @property
  def concentration(self) -> np.ndarray:
    """Alpha for every entry, [classes, clients]."""
    return np.full((self.classes, self.clients), float(self.alpha))


Deal = Choose = Callable[[Spec, np.random.Generator], np.ndarray]


class Partitioner(NamedTuple):
  """One way to deal rows."""

  summary: str
  deal: Deal
  by_class: bool  # `deal` returns counts [classes, clients]; otherwise owners [rows]
  choose: Choose | None = None  # with the same draw: the natural client of each client [clients]


def _iid(spec: Spec, rng: np.random.Generator) -> np.ndarray:
  sizes = dirichlet.even(len(spec.y), spec.clients)
  return rng.permutation(np.repeat(np.arange(spec.clients), sizes))


def _dirichlet(spec: Spec, rng: np.random.Generator) -> np.ndarray:
  share = np.exp(dirichlet.log_dirichlet(rng, spec.concentration))
  return dirichlet.round_shares(share * spec.totals[:, None])


def _balanced_dirichlet(spec: Spec, rng: np.random.Generator, sweeps: int = 500) -> np.ndarray:
  """DynaFed (Pi et al., 2023), by its released code: normalises rows and columns in turn.

  Here in log space, towards margins (class sizes; rows / clients) that exist for classes of unequal
  size too. What sweeps and rounding leave is moved: sizes differ by at most one row.
  """
  present = spec.totals > 0
  log_rows = np.log(spec.totals[present])
  log_column = math.log(len(spec.y) / spec.clients)
  log_share = dirichlet.log_dirichlet(rng, spec.concentration[present]) + log_rows[:, None]
  for _ in range(sweeps):
    excess = dirichlet.logsumexp(log_share, 0) - log_column
    if np.abs(excess).max() < 1e-3:
      break
    log_share -= excess
    log_share += (log_rows - dirichlet.logsumexp(log_share, 1))[:, None]
  sizes = dirichlet.even(len(spec.y), spec.clients)
  counts = np.zeros((spec.classes, spec.clients), np.int64)
  rounded = dirichlet.round_shares(np.exp(log_share))
  counts[present] = dirichlet.level(rounded, sizes.min(), sizes.max(), log_share)
  return counts


def _dirichlet_per_client(spec: Spec, rng: np.random.Generator) -> np.ndarray:
  """Hsu et al. (2019): every client draws a mix of classes; an exhausted class leaves the mix.

  The mix is Dirichlet(alpha * classes * prior): alpha is meant per class, as in the other
  partitions; theirs is the sum over classes. Only fractions of rows are drawn, not every row, as
  the last client takes what is left, and with it the sampling noise of all others. Sizes differ by
  at most one row.
  """
  left = spec.totals
  concentration = spec.alpha * spec.classes * left / left.sum()
  mixes = dirichlet.log_dirichlet(rng, np.tile(concentration, (spec.clients, 1)))
  counts = np.zeros((spec.classes, spec.clients), np.int64)
  for client, missing in enumerate(dirichlet.even(len(spec.y), spec.clients)):
    while missing:  # whatever is still missing after a pass has exhausted a class
      mix = np.where(left > 0, mixes[client], -np.inf)
      due = missing * np.exp(mix - dirichlet.logsumexp(mix, 0))
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


def _dirichlet_min(spec: Spec, rng: np.random.Generator, tries: int = 30) -> np.ndarray:
  """NIID-Bench (Li et al., 2022), FedCOG's NIID-1: full clients get no more, and none gets too few.

  A class is shared by those that hold less than rows / clients. Where no draw of `tries` reaches
  the minimum (80 clients, alpha 0.04: never), the last is repaired: the smallest client takes from
  the largest, class by class, in the order of its own draw.
  """
  rows, totals = len(spec.y), spec.totals
  if spec.min_size * spec.clients > rows:
    raise ValueError(
      f'dirichlet_min, data.alpha = {spec.alpha}: data.min_size = {spec.min_size} for '
      f'{spec.clients} clients takes more than the {rows} rows; data.min_size <= '
      f'{rows // spec.clients} or data.clients <= {rows // spec.min_size} would work'
    )
  for _ in range(tries):
    log_share = dirichlet.log_dirichlet(rng, spec.concentration)
    counts = np.zeros((spec.classes, spec.clients), np.int64)
    size = np.zeros(spec.clients, np.int64)
    for c in np.flatnonzero(totals):  # as long as a row is left, somebody is below the mean
      mix = np.where(size < rows / spec.clients, log_share[c], -np.inf)
      share = np.exp(mix - dirichlet.logsumexp(mix, 0)) * totals[c]
      counts[c] = dirichlet.round_shares(share[None])[0]
      size += counts[c]
    if size.min() >= spec.min_size:
      break
  return dirichlet.level(counts, spec.min_size, rows, log_share)


def _labels_per_client(spec: Spec, rng: np.random.Generator) -> np.ndarray:
  """FedCOG's NIID-2 for all numbers that come out even: k classes for every client, in turn.

  Client i holds the classes (k i + j) mod classes, j = 0 .. k - 1, and shares each evenly.
  10 classes, k = 2, 10 clients: i and i + 5 halve classes 2 (i mod 5) and 2 (i mod 5) + 1, its
  'noniid-skew-2'. 100 classes, k = 10, 10 clients: i owns 10 i .. 10 i + 9, its 'noniid-skew-10'.
  """
  del rng  # which classes a client gets is fixed; which of their rows, is drawn by `partition`
  k, classes, slots = spec.labels, spec.classes, spec.clients * spec.labels
  if not 1 <= k <= classes:
    raise ValueError(f'labels_per_client: data.labels = {k}, but 1 to {classes} classes would work')
  if slots % classes:
    step = classes // math.gcd(classes, k)
    raise ValueError(
      f'labels_per_client: {classes} classes cannot be shared evenly with data.labels = {k} and '
      f'data.clients = {spec.clients}; data.clients = {step} or a multiple of it would work'
    )
  counts = np.zeros((classes, spec.clients), np.int64)
  for c, total in enumerate(spec.totals):
    counts[c, np.arange(c, slots, classes) // k] = dirichlet.even(total, slots // classes)
  return counts


def _all_natural(spec: Spec, rng: np.random.Generator) -> np.ndarray:
  del rng
  own = _natural_clients(spec)
  if own != spec.clients:
    raise ValueError(
      f'data.clients = {spec.clients}, but the data set has {own} clients: use {own}'
    )
  return np.arange(own)


def _some_natural(spec: Spec, rng: np.random.Generator) -> np.ndarray:
  own = _natural_clients(spec)
  if own <= spec.clients:
    return _all_natural(spec, rng)
  return np.sort(rng.choice(own, spec.clients, replace=False))


def _natural_clients(spec: Spec) -> int:
  """The number of the data set's own clients, whether or not they have a row left."""
  if spec.client_ids is None:
    raise ValueError(
      "data.partition = 'natural': this data set does not say whose its rows are (a folder of images does as CLIENT/CLASS/IMAGE)"
    )
  ids = np.asarray(spec.client_ids)
  if ids.shape != (len(spec.y),) or not np.issubdtype(ids.dtype, np.integer) or ids.min() < 0:
    raise ValueError(
      f'client_ids must be {len(spec.y)} numbers 0, 1, ...: got {ids.dtype}{ids.shape}'
    )
  own = max(spec.natural_clients, int(ids.max()) + 1)
  if own > np.iinfo(np.int32).max:
    raise ValueError(
      f'client_ids must be numbered 0, 1, ..., and one is {own - 1}: np.unique(ids, return_inverse=True)[1] would work'
    )
  return own


def _by_choice(choose: Choose) -> Deal:
  """Gives every row to its natural client, if that is chosen, under its number among the chosen."""

  def deal(spec: Spec, rng: np.random.Generator) -> np.ndarray:
    chosen = choose(spec, rng)
    number = np.full(_natural_clients(spec), LEFT_OUT)
    number[chosen] = np.arange(len(chosen))
    return number[np.asarray(spec.client_ids)]

  return deal


PARTITIONERS: dict[str, Partitioner] = {
  'iid': Partitioner('rows at random, equal sizes', _iid, by_class=False),
  'dirichlet': Partitioner(
    'each class by a Dirichlet over clients; sizes differ, clients may be empty', _dirichlet, True
  ),
  'balanced_dirichlet': Partitioner(
    'dirichlet, normalised until all sizes are equal (DynaFed)', _balanced_dirichlet, True
  ),
  'dirichlet_per_client': Partitioner(
    'each client by a Dirichlet over classes, equal sizes (Hsu et al.)', _dirichlet_per_client, True
  ),
  'dirichlet_min': Partitioner(
    'dirichlet with a cap and a minimum size (NIID-Bench; FedCOG NIID-1)', _dirichlet_min, True
  ),
  'labels_per_client': Partitioner(
    'a fixed number of classes per client (FedCOG NIID-2)', _labels_per_client, True
  ),
  'natural': Partitioner(
    "the data set's own clients", _by_choice(_all_natural), by_class=False, choose=_all_natural
  ),
  'natural_sample': Partitioner(
    "data.clients of the data set's own clients, by data.seed; the others' rows are left out",
    _by_choice(_some_natural),
    by_class=False,
    choose=_some_natural,
  ),
}
