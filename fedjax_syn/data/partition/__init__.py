"""How the rows of a training set are dealt to clients: numpy only, a seed of its own, bounded time.

What a partitioner (`fedjax_syn.data.partition.partitioners`) decides becomes one flat order here. Every row
is dealt once (but 'natural_sample' leaves some out). The rows of a class are shuffled by the seed before they are cut (released code of
the papers cuts them contiguously, so that there a client's rows depend on how the file is sorted),
and the rows of a client once more.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedjax_syn.data.partition.partitioners import LEFT_OUT, PARTITIONERS, Spec

_SHARES, _ROWS, _ORDER = range(3)  # purposes of random numbers: a draw for one changes no other


class Partition(NamedTuple):
  """Rows of the training set by client; client i holds order[start[i] : start[i] + size[i]]."""

  order: np.ndarray  # int32 [rows that are dealt]
  start: np.ndarray  # int32 [clients]
  size: np.ndarray  # int32 [clients], zero is legal
  natural: np.ndarray | None = None  # int32 [clients], the natural client of each; None: of none


def partition(
  name: str,
  y: np.ndarray,
  clients: int,
  *,
  alpha: float = 0.1,
  seed: int = 0,
  num_classes: int | None = None,
  min_size: int = 10,
  labels: int = 2,
  client_ids: np.ndarray | None = None,
  natural_clients: int = 0,
) -> Partition:
  """Deals rows to exactly `clients` clients; a function of its arguments alone.

  Args:
    name: one of `names()`.
    y: class labels [rows]; 'iid' and those by 'natural' clients also take multi-hot labels [rows, labels].
    clients: how many clients; some may come out empty.
    alpha: concentration of the Dirichlet partitions; small means heterogeneous.
    seed: the partition's own seed.
    num_classes: how many classes exist; None means the largest label plus one.
    min_size: rows that 'dirichlet_min' gives every client at least.
    labels: classes per client in 'labels_per_client'.
    client_ids: 0..clients-1 for every row [rows], for 'natural' and 'natural_sample'.
    natural_clients: how many the data set has, some without a row perhaps; 0: as many as `client_ids` name.

  Returns:
    A Partition whose order is a permutation of all rows that are dealt.

  Raises:
    ValueError: for an unknown name, or numbers that no partition can satisfy.
  """
  if name not in PARTITIONERS:
    raise ValueError(f'data.partition = {name!r} is none of {", ".join(PARTITIONERS)}')
  if clients < 1:
    raise ValueError(f'data.clients = {clients}: there must be at least one client')
  if not 0 < alpha < math.inf:
    raise ValueError(f'data.alpha = {alpha}: it must be positive and finite')
  y, chosen = np.asarray(y), PARTITIONERS[name]
  if not len(y):
    raise ValueError(f'data.partition = {name!r}: there are no training rows to deal')
  if chosen.by_class:
    num_classes = _classes(name, y, num_classes)
  spec = Spec(y, clients, num_classes or 0, alpha, min_size, labels, client_ids, natural_clients)
  owner = chosen.deal(spec, _generator(seed, _SHARES))
  if chosen.by_class:
    owner = _owners(owner, spec, _generator(seed, _ROWS))
  shuffled = _generator(seed, _ORDER).permutation(len(y))
  shuffled = shuffled[owner[shuffled] != LEFT_OUT]
  order = shuffled[np.argsort(owner[shuffled], kind='stable')]
  size = np.bincount(owner[shuffled], minlength=clients)
  arrays = (a.astype(np.int32) for a in (order, np.cumsum(size) - size, size))
  natural = chosen.choose and chosen.choose(spec, _generator(seed, _SHARES)).astype(np.int32)
  return Partition(*arrays, natural)


def names() -> dict[str, str]:
  """Returns the name of every partition with one line about it."""
  return {name: partitioner.summary for name, partitioner in PARTITIONERS.items()}


def is_natural(name: str) -> bool:
  """Says whether a partition follows the data set's own clients."""
  return PARTITIONERS[name].choose is not None


def class_counts(partition: Partition, y: np.ndarray, num_classes: int) -> np.ndarray:
  """Counts the rows of every client by class.

  Args:
    partition: who holds which rows.
    y: class labels [rows], or multi-hot labels [rows, num_classes].
    num_classes: columns of the result.

  Returns:
    int32 [clients, num_classes].
  """
  y = np.asarray(y)[partition.order]
  owner = np.repeat(np.arange(len(partition.size)), partition.size)
  counts = np.zeros((len(partition.size), num_classes), np.int32)
  if y.ndim == 1:
    np.add.at(counts, (owner, y), 1)
  else:
    np.add.at(counts, owner, y.astype(np.int32))
  return counts


def owners_of(partition: Partition, natural: np.ndarray | None, rows: int) -> np.ndarray | None:
  """Numbers rows' natural clients as the clients of a partition, test rows for instance.

  Args:
    partition: who takes part.
    natural: the natural client of each row, -1 for nobody's [rows]; None if nobody says them.
    rows: how many rows there are.

  Returns:
    int32 [rows], -1 for a row of nobody who takes part; None if all are, or clients are not the data set's own.

  Raises:
    ValueError: if there are more or fewer clients than rows.
  """
  if partition.natural is None or natural is None:
    return None
  if np.shape(natural) != (rows,):
    raise ValueError(
      f'test_clients must be numbers [{rows}], one a test row: got {np.shape(natural)}'
    )
  number = {int(client): i for i, client in enumerate(partition.natural)}
  owners = np.array([number.get(int(client), -1) for client in natural], np.int32)
  return owners if (owners >= 0).any() else None


def names_of(partition: Partition, names: Sequence[str]) -> tuple[str, ...]:
  """Returns the names of a partition's clients from those of the natural clients; () where they have none."""
  if partition.natural is None or not names:
    return ()
  return tuple(names[client] for client in partition.natural)


def _classes(name: str, y: np.ndarray, num_classes: int | None) -> int:
  if y.ndim != 1 or not np.issubdtype(y.dtype, np.integer):
    raise ValueError(
      f'data.partition = {name!r} needs one class per row, but labels are {y.dtype}{y.shape}; '
      'iid or natural would work'
    )
  num_classes = int(y.max()) + 1 if num_classes is None else num_classes
  if y.min() < 0 or y.max() >= num_classes:
    raise ValueError(f'labels are {y.min()}..{y.max()}, but must be 0..{num_classes - 1}')
  return num_classes


def _generator(seed: int, purpose: int) -> np.random.Generator:
  return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(purpose,)))


def _owners(counts: np.ndarray, spec: Spec, rng: np.random.Generator) -> np.ndarray:
  """Deals the shuffled rows of every class by counts [classes, clients]; returns owners [rows]."""
  shuffled = rng.permutation(len(spec.y))
  rows = shuffled[np.argsort(spec.y[shuffled], kind='stable')]
  owner = np.empty(len(rows), np.int64)
  owner[rows] = np.repeat(np.tile(np.arange(spec.clients), spec.classes), counts.ravel())
  return owner
