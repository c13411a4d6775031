"""Clients that never train: a share of a data set's own, and those that have test rows alone."""

import dataclasses
from typing import Any

import numpy as np

from fedjax_syn.core.texts import listed
from fedjax_syn.data.dataset import Dataset
from fedjax_syn.data.split import Split, check_split

_PURPOSE = 0x756E73  # of the draw of `data.seed`


def hold_out(dataset: Dataset, share: float, seed: int) -> Dataset:
  """Takes a share of the data set's clients out of training, all their rows with them.

  What measures an unseen client are its own test rows, which leave the test split; where the data
  do not say whose test rows are, its training rows.

  Args:
    dataset: the data set.
    share: of its clients, 0 < f < 1; at least one is held out.
    seed: `data.seed`.

  Returns:
    The data set of the other clients, numbered anew in their order, with the rows of the unseen.

  Raises:
    ValueError: if it has no clients or too few, or several labels per row, or a part would be
      empty.
  """
  where, clients = f'data.unseen_clients={share}', dataset.num_clients()
  if dataset.clients is None:
    raise ValueError(f'{where}: {dataset.name} does not say whose its rows are')
  if dataset.train.y.ndim > 1:
    raise ValueError(f'{where}: needs one class per row, and {dataset.name} has several labels')
  count = max(1, round(share * clients))
  if count >= clients:
    raise ValueError(f'{where}: is all of the {clients} clients of {dataset.name}')
  drawn = np.random.default_rng([seed, _PURPOSE]).choice(clients, count, replace=False)
  unseen = np.zeros(clients, bool)
  unseen[drawn] = True
  numbers = np.append(np.where(unseen, np.cumsum(unseen), np.cumsum(~unseen)) - 1, -1)
  held = np.append(unseen, False)  # its last entry is that of nobody, -1
  of_train = np.asarray(dataset.clients)
  if held[of_train].all():
    raise ValueError(f'{where}: no training row is left')
  rows, owners, kind, changed = _measured(dataset, held, numbers, where)
  inside, out = (
    [name for name, is_out in zip(_names(dataset), unseen, strict=True) if is_out == wanted]
    for wanted in (False, True)
  )
  note = (
    f'{where}: {count} of {clients} clients never train ({listed(out)}); {int(held[owners].sum())}'
    f' {kind} rows of theirs are measured as unseen/test/accuracy'
  )
  changed |= joined(dataset, rows.take(held[owners]), numbers[owners[held[owners]]])
  return dataclasses.replace(
    dataset,
    train=check_split(*dataset.train.take(~held[of_train]), dataset.name),
    clients=numbers[of_train[~held[of_train]]].astype(np.int32),
    natural_clients=clients - count,
    client_names=tuple(inside) if dataset.client_names else (),
    notes=(*dataset.notes, note),
    **changed,
  )


def _names(dataset: Dataset) -> tuple[str, ...]:
  return dataset.client_names or tuple(map(str, range(dataset.num_clients())))


def _measured(
  dataset: Dataset, held: np.ndarray, numbers: np.ndarray, where: str
) -> tuple[Split, np.ndarray, str, dict[str, Any]]:
  """Returns the split that measures unseen clients, its rows' clients, its name, changed fields."""
  owners = dataset.test_clients
  owners = dataset.test_domains if owners is None else owners  # client k has the rows of domain k
  if owners is None:
    return dataset.train, np.asarray(dataset.clients), 'training', {}
  owners = np.asarray(owners)
  if not held[owners].any() or held[owners].all():
    what = 'no' if held[owners].all() else 'all'
    raise ValueError(f'{where}: {what} test rows are those of clients that train')
  rest = ~held[owners]
  changed: dict[str, Any] = {'test': check_split(*dataset.test.take(rest), dataset.name)}
  if dataset.test_clients is not None:
    changed['test_clients'] = numbers[owners[rest]].astype(np.int32)
  if dataset.test_domains is not None:
    changed['test_domains'] = np.asarray(dataset.test_domains)[rest]
  return dataset.test, owners, 'test', changed


def joined(dataset: Dataset, rows: Split, owners: np.ndarray) -> dict[str, Any]:
  """Returns the fields of a data set with more rows of unseen clients.

  Args:
    dataset: may have some.
    rows: of clients that never train.
    owners: their numbers among themselves, int [rows].
  """
  if dataset.unseen is None or dataset.unseen_owners is None:
    return {'unseen': rows, 'unseen_owners': owners.astype(np.int32)}
  before, first = dataset.unseen, int(dataset.unseen_owners.max()) + 1
  both = Split(np.concatenate([before.x, rows.x]), np.concatenate([before.y, rows.y]))
  numbers = np.concatenate([dataset.unseen_owners, first + owners])
  return {'unseen': both, 'unseen_owners': numbers.astype(np.int32)}


def with_unseen_clients(dataset: Dataset, test_ids: np.ndarray | None) -> Dataset:
  """Notes the test rows of clients that have no training rows: these clients are unseen.

  The rows stay in the test split too.

  Args:
    dataset: its `test_clients` are -1 there.
    test_ids: the name of each test row's client, as the files give it; None if they do not.
  """
  if test_ids is None or dataset.test_clients is None or dataset.test.y.ndim > 1:
    return dataset
  unseen = np.asarray(dataset.test_clients) < 0
  if not unseen.any():
    return dataset
  owners = np.unique(np.asarray(test_ids)[unseen], return_inverse=True)[1]
  return dataclasses.replace(dataset, **joined(dataset, dataset.test.take(unseen), owners))
