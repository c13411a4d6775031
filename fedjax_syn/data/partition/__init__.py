"""How the rows of a training set go to clients: numpy only, a seed of its own, bounded time.

`PARTITIONERS` lists the ways: `dirichlet.py` draws Dirichlet partitions, `natural.py` follows the
data set's own clients, the others are here. `partition` turns what they decide into one flat order.
Every row goes to one client (`natural_sample` leaves some out). The seed shuffles the rows of a
class before they are cut, and the rows of a client once more. Released code of the papers cuts a
class contiguously, so that there a client's rows depend on how the file is sorted.
"""

import math
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np

from fedjax_syn.core import paths
from fedjax_syn.core.fields import as_field
from fedjax_syn.data.partition import dirichlet, from_file, natural
from fedjax_syn.data.partition.spec import Spec, even_sizes
from fedjax_syn.data.settings import Data

_SHARES, _ROWS, _ORDER = range(3)  # purposes of random numbers: a draw for one changes no other


class Partitioner(NamedTuple):
  """One way to give rows to clients."""

  summary: str
  draw: Callable[[Spec, np.random.Generator], np.ndarray]
  result: Literal['class', 'row', 'natural'] = 'class'
  """What `draw` returns: rows by 'class' and client [classes, clients], the client of each 'row'
  [rows], or the 'natural' client of each client [clients]."""
  one_class: bool = False
  """Whether rows must have one class each; those by 'class' must."""

  @property
  def by_class(self) -> bool:
    """Whether rows must have one class each."""
    return self.one_class or self.result == 'class'


def _iid(spec: Spec, rng: np.random.Generator) -> np.ndarray:
  return rng.permutation(np.repeat(np.arange(spec.clients), even_sizes(len(spec.y), spec.clients)))


def _labels_per_client(spec: Spec, rng: np.random.Generator) -> np.ndarray:
  """Gives every client k classes in turn: FedCOG's NIID-2 for all numbers that divide evenly.

  Client i holds the classes (k i + j) mod classes, j = 0 .. k - 1, and shares each evenly.
  10 classes, k = 2, 10 clients: i and i + 5 halve classes 2 (i mod 5) and 2 (i mod 5) + 1, its
  'noniid-skew-2'. 100 classes, k = 10, 10 clients: i owns 10 i .. 10 i + 9, its 'noniid-skew-10'.
  """
  k, classes, pairs = spec.labels, spec.classes, spec.clients * spec.labels
  if not 1 <= k <= classes:
    raise ValueError(f'labels_per_client: data.labels = {k}, but 1 to {classes} classes would work')
  if pairs % classes:
    step = classes // math.gcd(classes, k)
    raise ValueError(
      f'labels_per_client: {classes} classes cannot be shared evenly with data.labels = {k} and '
      f'data.clients = {spec.clients}; data.clients = {step} or a multiple of it would work'
    )
  counts = np.zeros((classes, spec.clients), np.int64)
  for c, total in enumerate(spec.totals):
    counts[c, np.arange(c, pairs, classes) // k] = even_sizes(total, pairs // classes)
  return counts


PARTITIONERS: dict[str, Partitioner] = {
  'iid': Partitioner('rows at random, equal sizes', _iid, 'row'),
  'dirichlet': Partitioner(
    'each class by a Dirichlet over clients; sizes differ, clients may be empty',
    dirichlet.dirichlet,
  ),
  'balanced_dirichlet': Partitioner(
    'dirichlet, normalised until all sizes are equal (DynaFed)', dirichlet.balanced_dirichlet
  ),
  'dirichlet_per_client': Partitioner(
    'each client by a Dirichlet over classes, equal sizes (Hsu et al.)',
    dirichlet.dirichlet_per_client,
  ),
  'dirichlet_min': Partitioner(
    'dirichlet with a cap and a minimum size (NIID-Bench; FedCOG NIID-1)', dirichlet.dirichlet_min
  ),
  'fedcog_niid1': Partitioner(
    "dirichlet_min with the draws of FedCOG's released code: seed 0 is the paper's NIID-1",
    dirichlet.fedcog_niid1,
    'row',
    one_class=True,
  ),
  'labels_per_client': Partitioner(
    'a fixed number of classes per client (FedCOG NIID-2)', _labels_per_client
  ),
  'natural': Partitioner("the data set's own clients", natural.natural, 'natural'),
  'natural_sample': Partitioner(
    "data.clients of the data set's own clients, by data.seed; the others' rows are left out",
    natural.natural_sample,
    'natural',
  ),
}


class Partition(NamedTuple):
  """Rows of the training set by client; client i holds order[start[i] : start[i] + size[i]]."""

  order: np.ndarray
  """int32 [rows that clients have]."""
  start: np.ndarray
  """int32 [clients]."""
  size: np.ndarray
  """int32 [clients], may be zero."""
  natural: np.ndarray | None = None
  """int32 [clients], the natural client of each; None: of none."""


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
  """Gives rows to exactly `clients` clients; a function of its arguments alone.

  Args:
    name: one of `names()`, or 'file:PATH' (see `from_file.owners`).
    y: class labels [rows]; 'iid', 'natural' and 'natural_sample' also take multi-hot labels
      [rows, labels].
    clients: how many clients; some may come out empty.
    alpha: concentration of the Dirichlet partitions; small means heterogeneous.
    seed: the partition's own seed.
    num_classes: how many classes exist; None means the largest label plus one.
    min_size: rows that 'dirichlet_min' gives every client at least.
    labels: classes per client in 'labels_per_client'.
    client_ids: 0..clients-1 for every row [rows], for 'natural' and 'natural_sample'.
    natural_clients: how many the data set has, with or without rows; 0: as many as `client_ids`
      name.

  Returns:
    A Partition whose order is a permutation of the rows that clients have.

  Raises:
    ValueError: for an unknown name, or numbers that no partition can satisfy.
  """
  if name.startswith(from_file.PREFIX):
    path = paths.given(name.removeprefix(from_file.PREFIX), 'data.partition')
    return _ordered(from_file.owners(path, len(y), clients), clients, seed)
  if name not in PARTITIONERS:
    raise ValueError(f'data.partition = {name!r} is none of {", ".join(PARTITIONERS)}')
  given = {'clients': clients, 'alpha': alpha, 'min_size': min_size, 'labels': labels}
  for key, value in given.items():
    as_field(Data, key, value, f'data.{key}')
  y, partitioner = np.asarray(y), PARTITIONERS[name]
  if not len(y):
    raise ValueError(f'data.partition = {name!r}: there are no training rows to divide')
  if partitioner.by_class:
    num_classes = _classes(name, y, num_classes)
  numbers = alpha, min_size, labels
  spec = Spec(y, clients, num_classes or 0, *numbers, client_ids, natural_clients, seed)
  drawn = partitioner.draw(spec, _generator(seed, _SHARES))
  chosen = None
  if partitioner.result == 'class':
    owner = _owners(drawn, spec, _generator(seed, _ROWS))
  elif partitioner.result == 'natural':
    owner, chosen = natural.owners(spec, drawn), drawn.astype(np.int32)
  else:
    owner = drawn
  return _ordered(owner, clients, seed, chosen)


def _ordered(
  owner: np.ndarray, clients: int, seed: int, chosen: np.ndarray | None = None
) -> Partition:
  """Returns a partition in which each client's rows are shuffled; owner [rows], -1 for nobody."""
  shuffled = _generator(seed, _ORDER).permutation(len(owner))
  shuffled = shuffled[owner[shuffled] >= 0]
  order = shuffled[np.argsort(owner[shuffled], kind='stable')]
  size = np.bincount(owner[shuffled], minlength=clients)
  start = np.cumsum(size) - size
  return Partition(order.astype(np.int32), start.astype(np.int32), size.astype(np.int32), chosen)


def names() -> dict[str, str]:
  """Returns the name of every partition with one line about it."""
  return {name: partitioner.summary for name, partitioner in PARTITIONERS.items()}


def is_natural(name: str) -> bool:
  """Returns whether a partition follows the data set's own clients."""
  return name in PARTITIONERS and PARTITIONERS[name].result == 'natural'


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


def owners_of(partition: Partition, natural_clients: np.ndarray | None) -> np.ndarray | None:
  """Returns the client of the partition that has each row, test rows for instance.

  Args:
    partition: who takes part.
    natural_clients: the natural client of each row, -1 for nobody's [rows]; None if unknown.

  Returns:
    int32 [rows], -1 for a row of nobody who takes part. None if all rows are such, or clients are
    not the data set's own.
  """
  if partition.natural is None or natural_clients is None:
    return None
  number = {int(client): i for i, client in enumerate(partition.natural)}
  owners = np.array([number.get(int(client), -1) for client in natural_clients], np.int32)
  return owners if (owners >= 0).any() else None


def names_of(partition: Partition, names: Sequence[str]) -> tuple[str, ...]:
  """Returns the names of a partition's clients from those of the natural clients, or ()."""
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
  """Cuts the shuffled rows of every class by counts [classes, clients]; returns clients [rows]."""
  shuffled = rng.permutation(len(spec.y))
  rows = shuffled[np.argsort(spec.y[shuffled], kind='stable')]
  owner = np.empty(len(rows), np.int64)
  owner[rows] = np.repeat(np.tile(np.arange(spec.clients), spec.classes), counts.ravel())
  return owner
