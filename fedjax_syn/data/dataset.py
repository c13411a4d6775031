"""The type of all data sets."""

import dataclasses
from typing import Any

import numpy as np

from fedjax_syn.data import features
from fedjax_syn.data.normalisation import Normalisation, constants_for
from fedjax_syn.data.split import Split, check_shapes, checksum, scale_splits


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset:
  """One data set: its rows, and what is known of them."""

  name: str
  """As in the config."""
  title: str
  """For tables and figures."""
  train: Split
  test: Split
  validation: Split | None
  """A stratified share held out of the training rows."""
  num_classes: int
  normalisation: Normalisation = 'auto'  # type: ignore[assignment]
  """Or a known name, as 'auto': computed from the training rows."""
  checksum: str = ''
  """SHA-256 of all training and test arrays, before anything is held out."""
  clients: np.ndarray | None = None
  """int32 [training rows], natural client of each row."""
  proxy: Split | None = None
  """The server's own rows; labels -1 if they are not those of this data set."""
  domains: tuple[str, ...] = ()
  """Of a data set of several: client k has the rows of domain k."""
  test_domains: np.ndarray | None = None
  """int32 [test rows], the number of each row's domain."""
  class_names: tuple[str, ...] = ()
  """By number; () if unknown."""
  feature_names: tuple[str, ...] = ()
  """Of a table, by column; () if unknown."""
  client_names: tuple[str, ...] = ()
  """Of the natural clients, by number; () if unknown."""
  test_clients: np.ndarray | None = None
  """int32 [test rows], natural client of each; -1: nobody's."""
  validation_clients: np.ndarray | None = None
  """int32 [validation rows], natural client of each; None if nobody says."""
  natural_clients: int = 0
  """How many the data name; 0: as many as rows name. Kept when rows are held out."""
  filled: bool = False
  """Whether missing values were filled by statistics of the training rows."""
  unseen: Split | None = None
  """Rows of clients that never train."""
  unseen_owners: np.ndarray | None = None
  """int32 [unseen rows], the number of the client among those that never train."""
  notes: tuple[str, ...] = ()
  """What was scaled, renamed or left out, and why; a sentence each."""

  def __post_init__(self) -> None:
    """Brings pixels of other types to uint8, all splits by one range, and other floats to float32.

    See docs/data.md.

    Raises:
      ValueError: if pixels have no such range or splits no common kind and shape, the constants are
        for another range, or a part is of another type.
    """
    for name in _SPLITS:
      value = getattr(self, name)
      missing = value is None and name in ('validation', 'proxy', 'unseen')
      if not missing and not all(hasattr(value, part) for part in 'xy'):
        raise ValueError(
          f'data set {self.name!r}: {name} must be a Split(x, y), got {type(value).__name__}'
        )
    try:
      given: dict[str, Any] = {name: getattr(self, name) for name in _SPLITS}
      check_shapes({name: split for name, split in given.items() if split is not None})
      splits, notes = scale_splits(given)
      constants = constants_for(self.normalisation, splits['train'].x)
    except ValueError as error:
      raise ValueError(f'data set {self.name!r}: {error}') from error
    changed = {**splits, 'normalisation': constants, 'notes': (*self.notes, *notes)}
    for name, value in changed.items():
      object.__setattr__(self, name, value)

  @property
  def shape(self) -> tuple[int, ...]:
    """Of a row: (height, width, channels), (features,), (time, channels); of tokens (length,)."""
    return np.shape(self.train.x)[1:]

  @property
  def kind(self) -> str:
    """What rows are: 'images', 'table', 'sequences' or 'tokens'."""
    return features.kind_of(np.asarray(self.train.x))

  def num_clients(self) -> int:
    """How many natural clients the data name, with or without training rows; 0: none."""
    if self.clients is None:
      return 0
    rows = 1 + int(np.max(self.clients, initial=-1))
    return max(self.natural_clients, len(self.client_names), rows)

  def test_by_domain(self) -> dict[str, Split]:
    """The test rows of each domain that has any, by 'domain/NAME'."""
    rows = {
      f'domain/{name}': np.asarray(self.test_domains == i) for i, name in enumerate(self.domains)
    }
    return {name: self.test.take(own) for name, own in rows.items() if own.any()}


_SPLITS = ('train', 'test', 'validation', 'proxy', 'unseen')


def make(
  name: str,
  title: str,
  train: Split,
  test: Split,
  num_classes: int,
  normalisation: str | Normalisation,
  **parts: Any,
) -> Dataset:
  """Returns a data set with the checksum of its arrays.

  Args:
    name: as in the config.
    title: for tables and figures.
    train: the training rows.
    test: the test rows.
    num_classes: how many there are.
    normalisation: a known name, or constants.
    **parts: other fields of `Dataset`.

  Raises:
    ValueError: as `Dataset`.
  """
  given: dict[str, Any] = {'validation': None, 'checksum': '', 'clients': None, **parts}
  given |= {'num_classes': num_classes, 'normalisation': normalisation}
  dataset = Dataset(name, title, train, test, **given)
  digest = checksum(dataset.train, dataset.test, dataset.clients, dataset.test_clients)
  return dataclasses.replace(dataset, checksum=digest)
