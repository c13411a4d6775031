"""What a data set that comes from outside of the package has to be, in one line if it is not."""

import dataclasses
from typing import Any

import numpy as np

from fedjax_syn.data.builders import array_checks
from fedjax_syn.data.builders.spelling import some
from fedjax_syn.data.builders.split import Split, check_split
from fedjax_syn.data.dataset import Dataset


def check(dataset: Any, where: str) -> Dataset:
  """Checks that the parts of a data set fit together.

  Args:
    dataset: what a user made.
    where: what the message names.

  Returns:
    The data set, its rows read-only and its labels int32.

  Raises:
    ValueError: naming what is wrong.
  """
  if not isinstance(dataset, Dataset):
    raise ValueError(
      f'{where} must be a fedjax_syn.data.datasets.Dataset, got {type(dataset).__name__}'
    )
  classes = dataset.num_classes
  if isinstance(classes, bool) or not isinstance(classes, int | np.integer) or classes < 1:
    raise ValueError(f'{where}: num_classes={classes!r}: must be an integer, at least 1')
  splits = {
    name: _split(
      getattr(dataset, name), f'{where}, {name}', None if name == 'proxy' else int(classes)
    )
    for name in ('train', 'test', 'validation', 'proxy')
    if getattr(dataset, name) is not None or name in ('train', 'test')
  }
  wanted = splits['train']
  for name, split in splits.items():
    if name != 'proxy' and split.y.ndim != wanted.y.ndim:
      raise ValueError(
        f'{where}, {name}: labels are {split.y.ndim}-d, in training {wanted.y.ndim}-d'
      )
  for name, rows in (('clients', 'train'), ('test_clients', 'test'), ('test_domains', 'test')):
    numbers = getattr(dataset, name)
    if numbers is not None and np.shape(numbers) != (len(splits[rows].y),):
      raise ValueError(
        f'{where}: {name} must be one number for each of the {len(splits[rows].y)} rows of {rows}, got'
        f' {list(np.shape(numbers))}'
      )
  if (named := len(dataset.class_names)) not in (0, classes):
    raise ValueError(f'{where}: {named} class_names for {classes} classes')
  checked = dataclasses.replace(dataset, **splits)
  return dataclasses.replace(checked, notes=(*checked.notes, *doubts(checked)))


def doubts(dataset: Dataset) -> tuple[str, ...]:
  """Returns a line for what is probably meant otherwise than it is read: channels first, one-hot labels, lone classes."""
  train, test = dataset.train, dataset.test
  lone = np.setdiff1d(test.y, train.y).tolist() if train.y.ndim == 1 else []
  order = array_checks.order_of(train.x, len(train.y))
  return (
    *([f'x {order}; it is read as it is'] if order else []),
    *(
      [f'{array_checks.ONE_EACH}; y.argmax(axis=1) if they are classes']
      if array_checks.one_each(train.y, test.y)
      else []
    ),
    *([f'classes {some(lone)} have test rows and no training rows'] if lone else []),
  )


def check_clients(dataset: Dataset, where: str) -> None:
  """Refuses clients that are not numbered from 0 on, and more of them than the data set says or has names for.

  Args:
    dataset: what `check` returned.
    where: what the message names.

  Raises:
    ValueError: naming the first that is wrong.
  """
  for name, low in (('clients', 0), ('test_clients', -1)):
    given = getattr(dataset, name)
    if given is None:
      continue
    numbers = np.asarray(given)
    if not np.issubdtype(numbers.dtype, np.integer):
      raise ValueError(
        f'{where}: {name} must be integers from 0 on, got {numbers.dtype};'
        ' np.unique(clients, return_inverse=True) numbers others'
      )
    if numbers.min(initial=low) < low:
      raise ValueError(f'{where}: {name} must be {low} or more, and one is {numbers.min()}')
    for key, count in (
      ('client_names', len(dataset.client_names)),
      ('natural_clients', dataset.natural_clients),
    ):
      if count and numbers.max(initial=-1) >= count:
        raise ValueError(f'{where}: {count} {key}, and one of {name} is {numbers.max()}')
  if dataset.client_names and dataset.natural_clients > len(dataset.client_names):
    raise ValueError(
      f'{where}: {len(dataset.client_names)} client_names for {dataset.natural_clients} natural_clients'
    )


def _split(split: Any, where: str, num_classes: int | None) -> Split:
  """One split; the labels of the server's own rows may be -1."""
  x, y = split.x, split.y
  if num_classes is not None:
    return check_split(x, y, where, num_classes)
  y = np.asarray(y)
  checked = check_split(x, np.maximum(y, 0), where)
  return checked._replace(y=y.astype(np.int32))
