"""What a data set is to everything else."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from fedjax_syn.data.builders.split import Split, check_shapes, checksum, scale_splits
from fedjax_syn.data.normalisation import Normalisation, constants_for


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset:
  """One data set, as everything else sees it."""

  name: str  # as in the config
  title: str  # for tables and figures
  train: Split
  test: Split
  validation: Split | None  # a stratified share held out of the training rows
  num_classes: int
  normalisation: Normalisation  # or a known name, as 'auto'
  checksum: str  # SHA-256 of all training and test arrays, before anything is held out
  clients: np.ndarray | None  # int32 [training rows], natural client of each row
  proxy: Split | None = None  # the server's own rows; labels -1 where they mean nothing here
  domains: tuple[str, ...] = ()  # of a data set of several: client k has the rows of domain k
  test_domains: np.ndarray | None = None  # int32 [test rows], the number of each row's domain
  class_names: tuple[str, ...] = ()  # by number; () where nobody says them
  client_names: tuple[str, ...] = ()  # of the natural clients, by number; () as above
  test_clients: np.ndarray | None = None  # int32 [test rows], natural client of each, -1: nobody's
  natural_clients: int = (
    0  # how many the data name, 0: as many as rows name; kept when rows are held out
  )
  notes: tuple[str, ...] = ()  # what was scaled, renamed or left out, and why; a sentence each

  def __post_init__(self):
    """Brings pixels of other types to uint8, all splits by one range; see docs/data.md.

    Raises:
      ValueError: if they have no such range, are no images or tokens of one shape, the constants are for another
        range, or a part is of another type.
    """
    for name in _SPLITS:
      value = getattr(self, name)
      missing = value is None and name in ('validation', 'proxy')
      if not missing and not all(hasattr(value, part) for part in 'xy'):
        raise ValueError(
          f'data set {self.name!r}: {name} must be a Split(x, y), got {type(value).__name__}'
        )
    try:
      given = {name: getattr(self, name) for name in _SPLITS}
      check_shapes({name: split.x for name, split in given.items() if split is not None})
      splits, notes = scale_splits(given)
      constants = constants_for(self.normalisation, splits['train'].x)
    except ValueError as error:
      raise ValueError(f'data set {self.name!r}: {error}') from error
    changed = {**splits, 'normalisation': constants, 'notes': (*self.notes, *notes)}
    for name, value in changed.items():
      object.__setattr__(self, name, value)

  @property
  def shape(self) -> tuple[int, ...]:
    """Height, width and channels of an image; the length of a row of tokens."""
    return np.shape(self.train.x)[1:]

  def num_clients(self) -> int:
    """How many natural clients the data name; 0 if they name none. One may have no training row left."""
    if self.clients is None:
      return 0
    rows = 1 + int(np.max(self.clients, initial=-1))
    return max(self.natural_clients, len(self.client_names), rows)

  def test_by_domain(self) -> dict[str, Split]:
    """The test rows of each domain that has any, by 'domain/NAME'; none where there are no domains."""
    rows = {f'domain/{name}': self.test_domains == i for i, name in enumerate(self.domains)}
    return {
      name: Split(self.test.x[own], self.test.y[own]) for name, own in rows.items() if own.any()
    }


_SPLITS = ('train', 'test', 'validation', 'proxy')


def make(
  name: str,
  title: str,
  train: Split,
  test: Split,
  num_classes: int,
  normalisation: str | Normalisation,
  clients: np.ndarray | None = None,
  class_names: Sequence[str] = (),
  client_names: Sequence[str] = (),
  notes: Sequence[str] = (),
  validation: Split | None = None,
  test_clients: np.ndarray | None = None,
) -> Dataset:
  """Puts a data set together.

  Args:
    name: as in the config.
    title: for tables and figures.
    train: the training rows.
    test: the test rows.
    num_classes: how many there are.
    normalisation: a known name, or constants.
    clients: natural client of each training row, int32 [n].
    class_names: by number; () if nobody says them.
    client_names: of the natural clients, by number; () as above.
    notes: what was scaled, renamed or left out, and why; a sentence each.
    validation: rows that the data set itself holds out.
    test_clients: natural client of each test row, int32, -1 for nobody's; None if nobody says them.

  Returns:
    The data set, with the checksum of its arrays.

  Raises:
    ValueError: if the normalisation does not fit the images.
  """
  given = {'train': train, 'test': test, 'validation': validation}
  splits, scalings = scale_splits(given)
  train, test, validation = splits.values()
  constants = constants_for(normalisation, train.x)
  digest = checksum(train, test, clients, test_clients)
  return Dataset(
    name,
    title,
    train,
    test,
    validation,
    num_classes,
    constants,
    digest,
    clients,
    class_names=tuple(class_names),
    client_names=tuple(client_names),
    test_clients=test_clients,
    notes=(*notes, *scalings),
  )
