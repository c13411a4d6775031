"""Partitions that follow the data set's own clients: all of them, or some."""

import numpy as np

from fedjax_syn.data.partition.spec import Spec


def natural(spec: Spec, rng: np.random.Generator) -> np.ndarray:
  """Returns all clients of the data set, int [clients]."""
  existing = _natural_clients(spec)
  if existing != spec.clients:
    raise ValueError(
      f'data.clients = {spec.clients}, but the data set has {existing} clients: use {existing}'
    )
  return np.arange(existing)


def natural_sample(spec: Spec, rng: np.random.Generator) -> np.ndarray:
  """Draws `spec.clients` clients of the data set, int [clients], sorted."""
  existing = _natural_clients(spec)
  if existing <= spec.clients:
    return natural(spec, rng)
  return np.sort(rng.choice(existing, spec.clients, replace=False))


def owners(spec: Spec, chosen: np.ndarray) -> np.ndarray:
  """Returns the position in `chosen` [clients] of every row's client, int [rows]; -1: none."""
  position = np.full(_natural_clients(spec), -1)
  position[chosen] = np.arange(len(chosen))
  return position[np.asarray(spec.client_ids)]


def _natural_clients(spec: Spec) -> int:
  """Returns how many clients the data set has, with or without rows."""
  if spec.client_ids is None:
    raise ValueError(
      "data.partition = 'natural': this data set does not say whose its rows are (a folder of "
      'images does as CLIENT/CLASS/IMAGE)'
    )
  ids = np.asarray(spec.client_ids)
  if ids.shape != (len(spec.y),) or not np.issubdtype(ids.dtype, np.integer) or ids.min() < 0:
    raise ValueError(
      f'client_ids must be {len(spec.y)} numbers 0, 1, ...: got {ids.dtype}{ids.shape}'
    )
  existing = max(spec.natural_clients, int(ids.max()) + 1)
  if existing > np.iinfo(np.int32).max:
    raise ValueError(
      f'client_ids must be numbered 0, 1, ..., and one is {existing - 1}: '
      'np.unique(ids, return_inverse=True)[1] would work'
    )
  return existing
