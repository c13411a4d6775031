"""Rows that belong to people or places, and the data set that they make."""

from typing import NamedTuple

import numpy as np

from fedjax_syn.data.dataset import Dataset, make
from fedjax_syn.data.split import check_split


class ClientRows(NamedTuple):
  """Rows and whose each is."""

  x: np.ndarray  # [n, ...]
  y: np.ndarray  # int32 [n]
  client: np.ndarray  # int32 [n], 0, 1, ...

  def divided(self, test: np.ndarray) -> tuple['ClientRows', 'ClientRows']:
    """Returns training and test rows.

    Args:
      test: whether a row is for testing, bool [n].
    """
    train, held = (ClientRows(*(field[own] for field in self)) for own in (~test, test))
    return train, held


def dataset(
  name: str,
  title: str,
  splits: tuple[ClientRows, ClientRows],
  classes: tuple[str, ...],
  normalisation: str,
  client: str,
) -> Dataset:
  """Makes the data set of a natural federation.

  Args:
    name: as in the config.
    title: as figures show it.
    splits: training and test rows.
    classes: their names.
    normalisation: see `dataset.make`.
    client: what a client is called: 'person'.
  """
  train, test = (check_split(rows.x, rows.y, name, len(classes)) for rows in splits)
  return make(
    name,
    title,
    train,
    test,
    len(classes),
    normalisation,
    clients=splits[0].client,
    test_clients=splits[1].client,
    class_names=classes,
    client_names=tuple(f'{client} {i + 1}' for i in range(splits[0].client.max() + 1)),
  )
