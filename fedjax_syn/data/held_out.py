"""Shares of the training rows that no client gets: for validation, and for the server."""

import dataclasses

import numpy as np

from fedjax_syn.data.dataset import Dataset
from fedjax_syn.data.split import Split, check_split, stratified

# The purposes of the draws, so that no other draw from data.seed equals them.
_VALIDATION, _PROXY = 0x76616C, 0x70726F


def hold_out_validation(dataset: Dataset, share: float, seed: int) -> Dataset:
  """Makes a stratified share of the training rows the validation split.

  Args:
    dataset: the data set.
    share: of its training rows, 0 < f < 1.
    seed: `data.seed`.

  Returns:
    The data set with fewer training rows, and with validation rows.

  Raises:
    ValueError: if it has validation rows, or the share comes to none.
  """
  if dataset.validation is not None:
    raise ValueError(
      f'data.validation={share}: {dataset.name} brings its own validation split; use 0'
    )
  left, held = _take_out(dataset, 'data.validation', share, [seed, _VALIDATION])
  return dataclasses.replace(left, validation=held)


def hold_out_proxy(dataset: Dataset, share: float, seed: int) -> Dataset:
  """Makes a stratified share of the training rows the server's own; see `hold_out_validation`."""
  left, held = _take_out(dataset, 'data.proxy_share', share, [seed, _PROXY])
  return dataclasses.replace(left, proxy=held)


def _take_out(dataset: Dataset, key: str, share: float, draw: list[int]) -> tuple[Dataset, Split]:
  """Takes a stratified share out of the training rows; returns what is left, and the share."""
  y = dataset.train.y
  held = stratified(y, round(share * len(y)), np.random.default_rng(draw).permutation(len(y)))
  if not held.any():
    raise ValueError(
      f'{key}={share} holds out none of the {len(y)} training rows of {dataset.name}'
    )
  left = dataclasses.replace(
    dataset,
    train=check_split(*dataset.train.take(~held), dataset.name),
    clients=None if dataset.clients is None else dataset.clients[~held],
    natural_clients=dataset.num_clients(),  # a client keeps its number without a row, too
  )
  return left, check_split(*dataset.train.take(held), dataset.name)
