"""Arrays that are probably meant otherwise than they would be read: the order of axes, one-hot labels, lone classes."""

from pathlib import Path
from typing import Any

import numpy as np

from fedjax_syn.data.builders.spelling import some

CHANNELS = 4  # of images as people see them; more are legal, but not behind fewer rows or columns
ONE_EACH = 'every row of y has one label: taken as several labels per image, of which each has one'


def check_order(x: np.ndarray, rows: int, where: Path) -> None:
  """Refuses images whose channels come first or whose rows come last, naming the transpose that would help.

  Args:
    x: images as they were read, of any type and shape.
    rows: how many labels there are.
    where: the file, for the message.

  Raises:
    ValueError: if the axes are in another order.
  """
  if x.ndim == 3 and len(x) == rows and x.dtype == np.uint8:
    raise ValueError(
      f'{where}: x must be uint8 [n, height, width, channels], got uint8 {list(x.shape)}; grey images: x[..., None]'
    )
  if looks := order_of(x, rows):
    raise ValueError(f'{where}: x {looks}, or {{"layout": "NHWC"}} in meta.json if it is right')


def order_of(x: np.ndarray, rows: int) -> str:
  """Says which other order the axes of images seem to have, and what would help; nothing if they seem right."""
  if x.ndim != 4:
    return ''
  n, height, width, channels = x.shape
  if n != rows == channels:
    order, help_ = 'rows last', 'np.moveaxis(x, -1, 0)'
  elif channels > CHANNELS >= height:
    order, help_ = 'channels first', 'np.transpose(x, (0, 2, 3, 1))'
  elif channels > CHANNELS >= width:
    order, help_ = 'channels before columns', 'np.transpose(x, (0, 1, 3, 2))'
  else:
    return ''
  return (
    f'is {list(x.shape)}, which looks like {order}; wanted is [n, height, width, channels]: {help_}'
  )


def classes_of(y: Any, where: Path) -> np.ndarray:
  """Turns one-hot labels into classes.

  Args:
    y: 0 and 1 of any type [n, classes], one 1 in each row; labels [n] are left as they are.
    where: the file, for the message.

  Returns:
    int64 [n].

  Raises:
    ValueError: if a row has none or several.
  """
  y = np.asarray(y)
  if y.ndim != 2:
    return y
  wrong = np.flatnonzero(~(np.isin(y, (0, 1)).all(axis=1) & (y.astype(float).sum(axis=1) == 1)))
  if wrong.size:
    raise ValueError(
      f'{where}: labels are said to be classes, but row {wrong[0]} of y is no row of zeros with a single 1'
    )
  return y.argmax(axis=1)


def label_notes(train: np.ndarray, test: np.ndarray, said: str) -> list[str]:
  """Says that labels [n, labels] look one-hot, unless somebody said what they are, and that a label has no row."""
  if train.ndim != 2:
    return []
  never = [str(label) for label in np.flatnonzero(~train.any(axis=0))]
  notes = [f'no training row has the labels {some(never)}'] if never else []
  if said or not one_each(train, test):
    return notes
  say = 'say {"labels": "classes"} in meta.json (otherwise "several")'
  return [*notes, f'{ONE_EACH}; if they are classes, {say}']


def one_each(train: np.ndarray, test: np.ndarray) -> bool:
  """Says whether labels [n, labels] look one-hot: each row has exactly one."""
  return all(y.ndim == 2 and bool((y.sum(axis=1) == 1).all()) for y in (train, test))


def lone_classes(train: np.ndarray, test: np.ndarray) -> np.ndarray:
  """Returns the labels that test rows have and no training row has, sorted; labels [n], or multi-hot [n, labels]."""
  present = lambda y: np.flatnonzero(y.any(axis=0)) if y.ndim == 2 else np.unique(y)
  return np.setdiff1d(present(test), present(train))


def check_classes(train: np.ndarray, test: np.ndarray, where: str | Path) -> None:
  """Refuses labels that test rows have and no training row has.

  Args:
    train: labels [n], or multi-hot [n, labels].
    test: labels of the test rows, in the same form.
    where: the file of the training rows, for the message.

  Raises:
    ValueError: naming the first.
  """
  if (lone := lone_classes(train, test)).size:
    raise ValueError(f'{where}: no row has label {lone[0]}, and test rows have')
