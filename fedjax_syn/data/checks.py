"""What a data set must satisfy, and hints at what a user probably meant."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from fedjax_syn.core.texts import listed
from fedjax_syn.data import features
from fedjax_syn.data.dataset import Dataset
from fedjax_syn.data.split import check_split

CHANNELS = 4  # more are legal, but not together with fewer rows or columns
GREY = 'x is square and lies in 0..1: taken as sequences [rows, time, channels]'
ONE_LABEL = 'every row of y has one label: taken as several labels per image, of which each has one'


def wrong_order(x: np.ndarray, y: np.ndarray) -> str:
  """Returns which order other than ours the axes of x seem to have, and what would help.

  Args:
    x: images or sequences as a user gives them, of any shape.
    y: their labels.

  Returns:
    The end of a sentence about x, or '' if the axes seem right.
  """
  if features.channels_first(x):
    wanted = '[n, time, channels]'
    looks = f'is {list(x.shape)}, which looks like channels first'
    return f'{looks}; wanted is {wanted}: np.swapaxes(x, 1, 2)'
  if x.ndim != 4:
    return ''
  n, height, width, channels = x.shape
  if n != channels and np.shape(y)[:1] == (channels,):
    order, remedy = 'rows last', 'np.moveaxis(x, -1, 0)'
  elif channels > CHANNELS >= height:
    order, remedy = 'channels first', 'np.transpose(x, (0, 2, 3, 1))'
  elif channels > CHANNELS >= width:
    order, remedy = 'channels before columns', 'np.transpose(x, (0, 1, 3, 2))'
  else:
    return ''
  wanted = '[n, height, width, channels]'
  return f'is {list(x.shape)}, which looks like {order}; wanted is {wanted}: {remedy}'


def look_one_hot(train: np.ndarray, test: np.ndarray) -> bool:
  """Returns whether labels [n, labels] look one-hot: each row has exactly one."""
  return all(y.ndim == 2 and bool((y.sum(axis=1) == 1).all()) for y in (train, test))


def untrained_classes(train: np.ndarray, test: np.ndarray) -> np.ndarray:
  """Returns the labels, sorted, that test rows have and no training row has.

  Args:
    train: labels [n], or multi-hot [n, labels].
    test: labels of the test rows, in the same form.
  """
  occurring = lambda y: np.flatnonzero(y.any(axis=0)) if y.ndim == 2 else np.unique(y)
  return np.setdiff1d(occurring(test), occurring(train))


def check_classes(train: np.ndarray, test: np.ndarray, where: str | Path) -> None:
  """Refuses labels of another shape, and `untrained_classes`.

  Args:
    train: labels [n], or multi-hot [n, labels].
    test: labels of the test rows, in the same form.
    where: the file of the training rows, for the message.

  Raises:
    ValueError: naming the shapes, or the first class.
  """
  if train.shape[1:] != test.shape[1:]:
    shapes = list(train.shape), list(test.shape)
    raise ValueError(f'{where}: labels are {shapes[0]}, but test labels {shapes[1]}')
  if (classes := untrained_classes(train, test)).size:
    raise ValueError(f'{where}: no row has label {classes[0]}, and test rows have')


def check(dataset: Any, where: str) -> Dataset:
  """Checks that the parts of a data set fit together.

  Args:
    dataset: from a user.
    where: what the message names.

  Returns:
    The data set, its rows read-only and its labels int32.

  Raises:
    ValueError: naming what is wrong.
  """
  if not isinstance(dataset, Dataset):
    raise ValueError(
      f'{where}: got {type(dataset).__name__} instead of a fedjax_syn.data.datasets.Dataset'
    )
  classes = dataset.num_classes
  if isinstance(classes, bool) or not isinstance(classes, int | np.integer) or classes < 1:
    raise ValueError(f'{where}: num_classes={classes!r}: must be an integer, at least 1')
  splits: dict[str, Any] = {
    name: check_split(split.x, split.y, f'{where}, {name}', int(classes))
    for name in ('train', 'test', 'validation', 'unseen')
    if (split := getattr(dataset, name)) is not None
  }
  for name in ('test', 'validation', 'unseen'):
    if name in splits and splits[name].y.ndim != splits['train'].y.ndim:
      raise ValueError(
        f'{where}, {name}: labels are {splits[name].y.ndim}-d, in training '
        f'{splits["train"].y.ndim}-d'
      )
  if (proxy := dataset.proxy) is not None:  # whose labels may be -1
    y = np.asarray(proxy.y)
    own = check_split(proxy.x, np.maximum(y, 0), f'{where}, proxy')
    splits['proxy'] = own._replace(y=y.astype(np.int32))
  if (dataset.unseen is None) != (dataset.unseen_owners is None):
    raise ValueError(f'{where}: unseen and unseen_owners must both be given')
  owners = {'clients': 'train', 'test_clients': 'test', 'test_domains': 'test'}
  for name, split in {**owners, 'unseen_owners': 'unseen'}.items():
    numbers, rows = getattr(dataset, name), len(splits[split].y) if split in splits else 0
    if numbers is not None and np.shape(numbers) != (rows,):
      raise ValueError(
        f'{where}: {name} must be one number for each of the {rows} rows of {split}, got'
        f' {list(np.shape(numbers))}'
      )
  if (named := len(dataset.class_names)) not in (0, classes):
    raise ValueError(f'{where}: {named} class_names for {classes} classes')
  checked = dataclasses.replace(dataset, **splits)
  return dataclasses.replace(checked, notes=(*checked.notes, *doubts(checked)))


def doubts(dataset: Dataset) -> tuple[str, ...]:
  """Returns a line for what users probably mean otherwise: axes, one-hot labels, classes."""
  train, test = dataset.train, dataset.test
  lines = []
  if order := wrong_order(train.x, train.y):
    lines.append(f'x {order}; it is read as it is')
  if features.look_grey(train.x):
    lines.append(f'{GREY}; x[..., None] if they are grey images')
  if features.has_columns(train.x) and (constant := features.constant_columns(train.x)):
    lines.append(constant)
  if look_one_hot(train.y, test.y):
    lines.append(f'{ONE_LABEL}; y.argmax(axis=1) if they are classes')
  if train.y.ndim == 1 and (classes := untrained_classes(train.y, test.y).tolist()):
    lines.append(f'classes {listed(classes)} have test rows and no training rows')
  return tuple(lines)


def check_clients(dataset: Dataset, where: str) -> None:
  """Refuses clients that are not numbered from 0 on, or more than are named.

  Args:
    dataset: what `check` returned.
    where: what the message names.

  Raises:
    ValueError: naming the first that is wrong.
  """
  for name, low in (('clients', 0), ('test_clients', -1), ('unseen_owners', 0)):
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
    known = {'client_names': len(dataset.client_names), 'natural_clients': dataset.natural_clients}
    for key, count in () if name == 'unseen_owners' else known.items():
      if count and numbers.max(initial=-1) >= count:
        raise ValueError(f'{where}: {count} {key}, and one of {name} is {numbers.max()}')
  if dataset.client_names and dataset.natural_clients > len(dataset.client_names):
    raise ValueError(
      f'{where}: {len(dataset.client_names)} client_names for {dataset.natural_clients} '
      'natural_clients'
    )
