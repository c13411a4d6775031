"""Symmetric label noise in training rows."""

import dataclasses

import numpy as np

from fedjax_syn.data.dataset import Dataset

_PURPOSE = 0x6E6F69  # of the draws of `data.seed`


def add(dataset: Dataset, share: float, seed: int) -> Dataset:
  """Replaces the labels of training rows, each by one of the other classes with equal probability.

  Exactly round(share * rows) labels change. Held-out rows, the server's and test rows keep theirs.

  Args:
    dataset: the data set.
    share: of the training rows, 0 <= f <= 1.
    seed: `data.seed`.

  Returns:
    The data set with other training labels, and a note.

  Raises:
    ValueError: if rows have several labels, or there is one class.
  """
  y, classes = dataset.train.y, dataset.num_classes
  if y.ndim > 1 or classes < 2:
    what = 'several labels per row' if y.ndim > 1 else 'one class'
    raise ValueError(f'data.label_noise={share}: {dataset.name} has {what}; 0 would work')
  count = round(share * len(y))
  generator = np.random.default_rng([seed, _PURPOSE])
  rows = generator.choice(len(y), count, replace=False)
  noisy = y.copy()
  noisy[rows] = (y[rows] + generator.integers(1, classes, count)) % classes
  noisy.flags.writeable = False
  note = (
    f'data.label_noise={share:g}: {count} of {len(y)} training rows have the label of another class'
  )
  train = dataset.train._replace(y=noisy)
  return dataclasses.replace(dataset, train=train, notes=(*dataset.notes, note))
