"""A user's own images as data sets: `folder`, and `tfds:NAME` of whatever tensorflow-datasets has prepared."""

import dataclasses
from pathlib import Path

from fedjax_syn.data.builders import image_folder, layout
from fedjax_syn.data.dataset import Dataset, make
from fedjax_syn.data.normalisation import UNMEASURED

FOLDER, TFDS = 'folder', 'tfds:'


def is_own(name: str) -> bool:
  """Says whether a name is one of these, whose images can be resized."""
  return name == FOLDER or name.startswith(TFDS)


def load(name: str, data_dir: str, folder: Path, size: int, trusted: bool = False) -> Dataset:
  """Loads one.

  Args:
    name: 'folder', or 'tfds:NAME' as tensorflow-datasets writes it.
    data_dir: as in the config, '' if nobody named a folder.
    folder: where that is.
    size: side in pixels to which images are resized; 0 takes them as they are.
    trusted: whether modules that a prepared folder names may be imported.

  Returns:
    The data set, normalised by its own mean and standard deviation.

  Raises:
    FileNotFoundError: if it is not there.
    ValueError: if it holds something else.
  """
  if name != FOLDER:
    from fedjax_syn.data.builders import tfds_named  # slow to import

    found = tfds_named.read(name, folder, size, trusted)
    title, names = name.removeprefix(TFDS), found.class_names
    splits = found.train, found.test
    return make(
      name, title, *splits, found.num_classes, UNMEASURED, class_names=names, notes=found.notes
    )
  if not data_dir:
    raise ValueError(f"data.dir='': name the folder of images; {layout.WANTED}")
  images = image_folder.read(folder, size)
  dataset = make(
    name,
    '',
    images.train,
    images.test,
    len(images.class_names),
    UNMEASURED,
    images.clients,
    images.class_names,
    images.client_names,
    images.notes,
    images.validation,
    images.test_clients,
  )
  title = f'{folder.resolve().name} ({dataset.checksum[:8]})'
  return dataclasses.replace(dataset, title=title)
