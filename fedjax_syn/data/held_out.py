"""Shares of the training rows that no client gets: for validation, and for the server."""

import dataclasses
from typing import Any

import numpy as np

from fedjax_syn.data import unseen
from fedjax_syn.data.dataset import Dataset
from fedjax_syn.data.normalisation import constants_for
from fedjax_syn.data.split import check_split, stratified

# By part: the key of its share, and the purpose of its draw, which no other draw of data.seed has.
_PARTS = {'validation': ('data.validation', 0x76616C), 'proxy': ('data.proxy_share', 0x70726F)}


def hold_out(dataset: Dataset, part: str, share: float, seed: int) -> Dataset:
  """Makes a stratified share of the training rows the validation split, or the server's own rows.

  Args:
    dataset: the data set.
    part: what they become, 'validation' or 'proxy'.
    share: of its training rows, 0 < f < 1.
    seed: `data.seed`.

  Returns:
    The data set with fewer training rows, and with these rows.

  Raises:
    ValueError: if it has validation rows, or the share comes to none.
  """
  if part == 'validation' and dataset.validation is not None:
    raise ValueError(
      f'data.validation={share}: {dataset.name} brings its own validation split; use 0'
    )
  (key, purpose), y = _PARTS[part], dataset.train.y
  order = np.random.default_rng([seed, purpose]).permutation(len(y))
  held = stratified(y, round(share * len(y)), order)
  if not held.any():
    raise ValueError(
      f'{key}={share} holds out none of the {len(y)} training rows of {dataset.name}'
    )
  left, taken = (check_split(*dataset.train.take(own), dataset.name) for own in (~held, held))
  changed: dict[str, Any] = {'train': left, part: taken}
  if part == 'validation' and dataset.clients is not None:
    changed['validation_clients'] = dataset.clients[held]
  return dataclasses.replace(
    dataset,
    clients=None if dataset.clients is None else dataset.clients[~held],
    natural_clients=dataset.num_clients(),  # a client keeps its number without a row, too
    **changed,
  )


def from_training(dataset: Dataset, unseen_clients: float, validation: float, seed: int) -> Dataset:
  """Takes clients that never train, and rows for validation, out of a data set.

  Args:
    dataset: the data set.
    unseen_clients: the share of clients; see `unseen.hold_out`.
    validation: the share of the other training rows; see `hold_out`.
    seed: `data.seed`.

  Returns:
    The data set; computed constants of its pixels are those of the rows that are left.

  Raises:
    ValueError: if a share comes to none or to all.
  """
  if unseen_clients:
    dataset = unseen.hold_out(dataset, unseen_clients, seed)
  if validation:
    dataset = hold_out(dataset, 'validation', validation, seed)
  return normalised(dataset) if unseen_clients or validation else dataset


def normalised(dataset: Dataset, normalisation: str = '') -> Dataset:
  """Computes constants from the rows that are left for training, or takes those of a name.

  Args:
    dataset: the data set.
    normalisation: a name of NORMALISATIONS; '': computed if they were computed.
  """
  chosen = normalisation or ('auto' if dataset.normalisation.name == 'auto' else '')
  if not chosen:
    return dataset
  return dataclasses.replace(dataset, normalisation=constants_for(chosen, dataset.train.x))
