"""Any image data set that tensorflow-datasets has prepared, `tfds:NAME`, read without TensorFlow."""

from pathlib import Path
from typing import NamedTuple

import importlib_resources  # noqa: F401  tensorflow-datasets needs it and does not declare it
import numpy as np
import tensorflow_datasets as tfds
from PIL import Image

from fedjax_syn.data.builders.array_checks import check_classes
from fedjax_syn.data.builders.arrays import first_line
from fedjax_syn.data.builders.pixels import fit
from fedjax_syn.data.builders.split import Split, check_split, same_rows

PREFIX = 'tfds:'
TESTS = ('test', 'validation')  # the split that is tested on: the first that there is


class Found(NamedTuple):
  """What was prepared."""

  train: Split
  test: Split
  num_classes: int
  class_names: tuple[str, ...]  # () where they are numbers
  notes: tuple[str, ...] = ()  # what was scaled, renamed or left out, and why


def read(name: str, folder: Path, size: int = 0) -> Found:
  """Reads a data set that tensorflow-datasets has prepared as array_record.

  Args:
    name: 'tfds:NAME', 'tfds:NAME/CONFIG' or 'tfds:NAME:VERSION', as tensorflow-datasets writes them.
    folder: where it was prepared, the `data_dir` of tensorflow-datasets.
    size: side in pixels to which images are resized; 0 takes them as they are, all of one size.

  Returns:
    The splits 'train', and 'test' or else 'validation'.

  Raises:
    FileNotFoundError: if it is not there.
    ValueError: if it holds something else than images with one label each.
  """
  word = name.removeprefix(PREFIX)
  try:
    made = tfds.builder(word, data_dir=folder)
    prepared = made.is_prepared()
  except Exception as error:  # tensorflow-datasets raises whatever it likes
    raise FileNotFoundError(
      f'data.name={name!r}: {first_line(error)}; {_how(word, folder)}'
    ) from error
  if not prepared:
    raise FileNotFoundError(
      f'data.name={name!r}: is not prepared in {folder}; {_how(word, folder)}'
    )
  splits = [split for split in TESTS if split in made.info.splits]
  keys = made.info.supervised_keys
  labels = made.info.features[keys[1]] if keys else None
  if (
    'train' not in made.info.splits
    or not splits
    or not isinstance(labels, tfds.features.ClassLabel)
  ):
    raise ValueError(
      f'data.name={name!r}: needs splits train and test (or validation) of images with one class each, and has'
      f' {", ".join(made.info.splits)} of {", ".join(made.info.features)}'
    )
  try:
    train, test = (_split(made, split, keys, size) for split in ('train', splits[0]))
    check_classes(train.y, test.y, 'split train')
  except ValueError as error:
    raise ValueError(f'data.name={name!r}: {first_line(error)}') from error
  except Exception as error:
    raise ValueError(
      f'data.name={name!r}: cannot be read ({first_line(error)}); {_how(word, folder)}'
    ) from error
  names = tuple(labels.names)
  numbers = tuple(
    map(str, range(len(names)))
  )  # what tensorflow-datasets says where nobody named them
  notes = (*_splits_read(made, splits[0], train, test), *same_rows(train, test))
  return Found(train, test, labels.num_classes, () if names == numbers else names, notes)


def _splits_read(
  made: tfds.core.DatasetBuilder, tested: str, train: Split, test: Split
) -> list[str]:
  """Says which splits were read, and which were not."""
  notes = [f'read {len(train.y)} images of split train and {len(test.y)} of split {tested}']
  if tested != TESTS[0]:
    notes.append(f'the test split is {tested!r}, as there is no split test')
  others = {k: v.num_examples for k, v in made.info.splits.items() if k not in ('train', tested)}
  return notes + [f'split {name!r} ({rows} rows) not read' for name, rows in sorted(others.items())]


def _how(word: str, folder: Path) -> str:
  return f'prepare it once: tfds build {word} --data_dir={folder} --file_format=array_record (only this needs TensorFlow)'


def _split(made: tfds.core.DatasetBuilder, split: str, keys: tuple[str, str], size: int) -> Split:
  image, label = keys
  rows = made.as_data_source(split)
  x = [_image(row[image], size) for row in rows]
  shapes = {a.shape for a in x}
  if len(shapes) > 1:
    raise ValueError(
      f'images of {split} have several sizes; data.size=32, say, resizes all of them'
    )
  return check_split(np.stack(x), np.array([row[label] for row in rows], np.int32), split)


def _image(pixels: np.ndarray, size: int) -> np.ndarray:
  pixels = np.asarray(pixels, np.uint8)
  if not size or pixels.shape[:2] == (size, size):
    return pixels
  grey = pixels.shape[-1] == 1
  resized = np.asarray(fit(Image.fromarray(pixels[..., 0] if grey else pixels), size))
  return resized[..., None] if grey else resized
