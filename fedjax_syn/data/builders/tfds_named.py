"""Any image set that tensorflow-datasets has prepared, `tfds:NAME`, read without TensorFlow."""

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

from fedjax_syn.core.texts import first_line
from fedjax_syn.data.builders import pixels, records
from fedjax_syn.data.checks import check_classes
from fedjax_syn.data.dataset import Dataset, make
from fedjax_syn.data.facts import Choice
from fedjax_syn.data.normalisation import UNMEASURED
from fedjax_syn.data.scaling import resize_array
from fedjax_syn.data.split import Split, check_split, same_rows, scale_splits

PREFIX = 'tfds:'
TESTS = ('test', 'validation')  # the first that exists is tested on
_RAW = tfds.decode.DeserializeMethod.RAW_BYTES


def load(
  name: str,
  folder: Path,
  size: int = 0,
  trusted: bool = False,
  choice: Choice = Choice(),  # noqa: B008 (an immutable NamedTuple)
) -> Dataset:
  """Reads a data set that tensorflow-datasets has prepared as array_record.

  Args:
    name: 'tfds:NAME', 'tfds:NAME/CONFIG' or 'tfds:NAME:VERSION', as tensorflow-datasets writes
      them.
    folder: where it was prepared, the `data_dir` of tensorflow-datasets.
    size: side in pixels to which images are resized; 0 takes them as they are, all of one size.
    trusted: whether modules that the prepared folder names may be imported.
    choice: the splits, also slices of them, as in 'train[:80%]'.

  Returns:
    The splits of the choice, else 'train', and 'test' or else 'validation'.

  Raises:
    FileNotFoundError: if it is not there.
    ValueError: if it holds something else than images with one label each, or needs to be trusted.
  """
  word = name.removeprefix(PREFIX)
  remedy = (
    f'prepare it once: tfds build {word} --data_dir={folder} --file_format=array_record (only this '
    'needs TensorFlow)'
  )
  try:
    builder = records.open_builder(records.find(word, folder), trusted)
  except FileNotFoundError as error:
    raise FileNotFoundError(f'data.name={name!r}: {first_line(error)}; {remedy}') from error
  except Exception as error:  # tensorflow-datasets raises whatever it likes
    raise ValueError(f'data.name={name!r}: {first_line(error)}') from error
  try:
    return _read(name, word, builder, size, choice)
  except ValueError as error:
    raise ValueError(f'data.name={name!r}: {first_line(error)}') from error
  except Exception as error:
    raise ValueError(
      f'data.name={name!r}: cannot be read ({first_line(error)}); {remedy}'
    ) from error


def _read(
  name: str, title: str, builder: tfds.core.DatasetBuilder, size: int, choice: Choice
) -> Dataset:
  info, keys = builder.info, _keys(builder)
  trained = choice.train_split or 'train'
  tests = [choice.test_split] if choice.test_split else [s for s in TESTS if s in info.splits]
  tests = [split for split in tests if split != trained]
  for key in ('train_split', 'test_split'):
    _check_split(info, key, getattr(choice, key))
  if (not choice.train_split and 'train' not in info.splits) or not tests or not keys:
    raise ValueError(
      f'needs splits train and test (or validation) of images with one class each, and has'
      f' {", ".join(info.splits)} of {", ".join(info.features)}'
    )
  labelled = [split for split in tests if _labelled(builder, split, keys[1])]
  if not labelled:
    raise ValueError(f'no row of {", ".join(tests)} has a label')
  splits, scalings = _splits(builder, {'train': trained, 'test': labelled[0]}, keys, size)
  train, test = splits['train'], splits['test']
  check_classes(train.y, test.y, f'split {trained}')
  labels = info.features[keys[1]]
  numbers = [str(number) for number in range(len(labels.names))]  # what unnamed classes are called
  read = _splits_read(builder, trained, labelled[0], splits, chosen=bool(choice.test_split))
  return make(
    name,
    title,
    train,
    test,
    labels.num_classes,
    UNMEASURED,
    class_names=() if labels.names == numbers else tuple(labels.names),
    notes=(*read, *scalings, *same_rows(train, test)),
  )


def _check_split(info: tfds.core.DatasetInfo, key: str, split: str) -> None:
  """Refuses a split, or a slice, that does not exist or is empty; '' is none."""
  if not split:
    return
  try:
    rows = info.splits[split].num_examples
  except Exception as error:  # tensorflow-datasets raises whatever it likes
    raise ValueError(
      f"data.{key}={split!r}: has splits {', '.join(info.splits)}, and slices such as 'train[:80%]'"
    ) from error
  if not rows:
    raise ValueError(f'data.{key}={split!r}: has no row')


def _splits_read(
  builder: tfds.core.DatasetBuilder,
  trained: str,
  tested: str,
  splits: dict[str, Split],
  chosen: bool,
) -> list[str]:
  """States which splits were read, and which were not."""
  rows = {name: len(split.y) for name, split in splits.items()}
  notes = [f'read {rows["train"]} images of split {trained} and {rows["test"]} of split {tested}']
  if tested != TESTS[0] and not chosen:
    exists = TESTS[0] in builder.info.splits
    why = 'split test has no labels' if exists else 'there is no split test'
    notes.append(f'the test split is {tested!r}, as {why}')
  read = set(re.split(r'\[.*?\]|\+', f'{trained}+{tested}'))  # of 'train[:50%]+extra', say
  others = {k: v.num_examples for k, v in builder.info.splits.items() if not read & {k, 'all'}}
  return notes + [f'split {name!r} ({rows} rows) not read' for name, rows in sorted(others.items())]


def _keys(builder: tfds.core.DatasetBuilder) -> tuple[str, str] | None:
  """Returns the features of images and of their one class, if that is what the set holds."""
  keys, features = builder.info.supervised_keys, builder.info.features
  if not isinstance(keys, tuple) or len(keys) != 2 or not all(key in features for key in keys):
    return None
  image, label = (features[key] for key in keys)
  whole = type(image) in (tfds.features.Image, tfds.features.Tensor)  # a Video is a Sequence
  return keys if whole and type(label) is tfds.features.ClassLabel else None


def _labelled(builder: tfds.core.DatasetBuilder, split: str, key: str) -> bool:
  """Returns whether any row has a label; publishers write -1 for those that they keep."""
  label = tfds.features.FeaturesDict({key: builder.info.features[key]})
  rows = builder.as_data_source(split, deserialize_method=_RAW)
  return any(label.deserialize_example_np(row)[key] >= 0 for row in rows)


def _splits(
  builder: tfds.core.DatasetBuilder, names: dict[str, str], keys: tuple[str, str], size: int
) -> tuple[dict[str, Split], tuple[str, ...]]:
  """Reads the splits and scales their images by one range."""
  image, label = keys
  feature = builder.info.features[image]
  encoded = type(feature) is tfds.features.Image and feature.np_dtype != np.float32
  decoded = {name: list(_rows(builder, split, keys, size)) for name, split in names.items()}
  for name, rows in decoded.items():
    if len({(x.array if encoded else x).shape[:2] for x, _ in rows}) > 1:
      raise ValueError(
        f'images of {names[name]} have several sizes; data.size=32, say, resizes all of them'
      )
  labels = {name: np.array([y for _, y in rows], np.int32) for name, rows in decoded.items()}
  if encoded:
    images = [x for rows in decoded.values() for x, _ in rows]
    x, notes = pixels.join(images, feature.shape[-1] or 1)
    parts = np.split(x, [len(decoded['train'])])
    splits = {n: Split(a, labels[n]) for n, a in zip(decoded, parts, strict=True)}
  else:
    stacked = {n: Split(np.stack([x for x, _ in rows]), labels[n]) for n, rows in decoded.items()}
    splits, notes = scale_splits(stacked)
  return {name: check_split(*split, names[name]) for name, split in splits.items()}, notes


def _rows(
  builder: tfds.core.DatasetBuilder, split: str, keys: tuple[str, str], size: int
) -> Iterator[tuple[Any, int]]:
  """Yields images and labels; other features are not decoded.

  `pixels` decodes the images, as it does those of folders.
  """
  image, label = keys
  features = tfds.features.FeaturesDict({key: builder.info.features[key] for key in keys})
  feature = features[image]
  is_image = type(feature) is tfds.features.Image
  skip = {image: tfds.decode.SkipDecoding()} if is_image else None
  for i, record in enumerate(builder.as_data_source(split, deserialize_method=_RAW)):
    row = features.deserialize_example_np(record, decoders=skip)
    x = row[image]
    try:
      yield (_decoded(x, feature, size) if is_image else _array(x, size)), row[label]
    except ValueError as error:
      raise ValueError(f'image {i} of {split} cannot be read ({error})') from error


def _decoded(content: bytes, feature: tfds.features.Image, size: int) -> pixels.Pixels | np.ndarray:
  """Decodes a stored image; floats are stored as the four bytes of a PNG's channels."""
  if feature.np_dtype != np.float32:
    with pixels.open_image(io.BytesIO(content)) as opened:
      return pixels.decode(opened, size)
  with pixels.open_image(io.BytesIO(content), ('PNG',)) as opened:
    return _array(np.ascontiguousarray(opened).view(np.float32), size)


def _array(array: np.ndarray, size: int) -> np.ndarray:
  array = np.asarray(array)
  return resize_array(array[..., None] if array.ndim == 2 else array, size)
