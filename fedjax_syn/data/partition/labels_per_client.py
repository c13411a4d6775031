"""A fixed number of classes per client."""

import math

import numpy as np

from fedjax_syn.data.partition.spec import Spec, even_sizes


def labels_per_client(spec: Spec, rng: np.random.Generator) -> np.ndarray:
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
