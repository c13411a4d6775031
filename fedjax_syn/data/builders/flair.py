"""FLAIR (Song et al., 2022): Flickr users' photographs with any of 17 coarse labels each.

The published layout is a folder with `labels_and_metadata.json`, a list of {"image_id", "user_id",
"partition" ("train", "val" or "test"), "labels" (coarse), "fine_grained_labels" (not used)}, and
`small_images/`, a JPEG file of 256 x 256 pixels for each image id. The whole set has 345,879 +
39,239 + 43,960 images of 51,414 users.

`flair_records` writes it as records of tensorflow-datasets (`flair/1.0.0`), once. From these the
images are decoded, scaled to the side that is asked for and streamed into memory-mapped arrays
(`<name>-1.0.0/`), so that only one batch of them is held in memory: 4.2 GB of training pixels for a
side of 64, 17 for 128, 68 for 256. From there only the rows of the clients that take part go to the
device (`natural_sample`: those of a few hundred users).
"""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from fedjax_syn.core.texts import listed
from fedjax_syn.data.builders import flair_records, records
from fedjax_syn.data.builders.flair_records import (
  CLASSES,
  IMAGES,
  METADATA,
  NAME,
  SPLITS,
  Record,
)
from fedjax_syn.data.builders.pixels import read_rgb
from fedjax_syn.data.builders.records import VERSION
from fedjax_syn.data.checks import untrained_classes
from fedjax_syn.data.dataset import Dataset
from fedjax_syn.data.facts import FLAIR
from fedjax_syn.data.normalisation import constants_for
from fedjax_syn.data.split import check_split, checksum

INFO = 'info.json'


def load(name: str, data_dir: Path) -> Dataset:
  """Reads the arrays that were prepared before; else prepares them from records or the layout.

  Args:
    name: one of `FLAIR`, which says the side in pixels.
    data_dir: the layout lies there or in its folder `flair`; records and arrays go beside it.

  Returns:
    The data set, in the order of the label file; images are memory-mapped.

  Raises:
    FileNotFoundError: if it is not there.
    ValueError: if the label file or an image is not as published, or tensorflow-datasets is absent
      and needed.
    OSError: if the folder cannot be written.
  """
  side = FLAIR[name]
  arrays, digest = _open(_prepared(name, data_dir, side))
  notes: tuple[str, ...] = ()
  if (classes := untrained_classes(arrays['train'].y, arrays['test'].y)).size:
    labels = [CLASSES[c] for c in classes]
    notes = (f'no training row has the labels {listed(labels)}, and test rows have',)
  return Dataset(
    name,
    f'FLAIR {side}x{side}',
    arrays['train'],
    arrays['test'],
    arrays['val'],
    len(CLASSES),
    constants_for('half', arrays['train'].x),
    digest,  # stored: the arrays have 4 GB and more
    arrays['clients'],
    class_names=CLASSES,
    notes=notes,
  )


def _prepared(name: str, data_dir: Path, side: int) -> Path:
  """Returns the folder of prepared arrays, which it writes if need be."""
  folders = [data_dir / NAME, data_dir]
  for folder in folders:
    ready = folder / f'{name}-{VERSION}'
    if (ready / INFO).exists():
      return ready
  layout = next((folder for folder in folders if (folder / METADATA).exists()), None)
  written = data_dir / NAME / VERSION
  if layout is None and not (written / 'dataset_info.json').exists():
    raise FileNotFoundError(
      f'data.name={name!r} is not in data.dir={str(data_dir)!r}: put {METADATA} and {IMAGES}/ '
      'there, as downloaded and unpacked by the scripts of https://github.com/apple/ml-flair'
    )
  instead = 'arrays that were prepared elsewhere need none of them'
  records.import_tfds(f'to prepare data.name={name!r}', instead)
  if layout is not None:
    written = flair_records.prepare(layout, data_dir)
  ready = (layout or data_dir / NAME) / f'{name}-{VERSION}'
  splits = {split: flair_records.read(written, split) for split in SPLITS}
  return _write(splits, ready, side)


def _write(splits: dict[str, tuple[int, Iterator[list[Record]]]], ready: Path, side: int) -> Path:
  """Writes the arrays of all splits to a folder, whole or not at all."""
  partial = Path(tempfile.mkdtemp(dir=ready.parent, prefix=f'.{ready.name}-'))
  try:
    users: list[str] = []
    for split, (rows, batches) in splits.items():
      x = np.lib.format.open_memmap(
        partial / f'{split}_x.npy', 'w+', np.uint8, (rows, side, side, 3)
      )
      y = np.zeros((rows, len(CLASSES)), np.int32)
      with ThreadPoolExecutor() as pool:  # Pillow decodes without the interpreter's lock
        start = 0
        for batch in batches:
          images = pool.map(lambda row: read_rgb(row['image'], side, ('JPEG',), draft=True), batch)
          for i, (row, image) in enumerate(zip(batch, images, strict=True), start):
            x[i] = image
            y[i, row['labels']] = 1
          start += len(batch)
          users += [row['user_id'].decode() for row in batch] if split == 'train' else []
      x.flush()
      np.save(partial / f'{split}_y.npy', y)
    _, clients = np.unique(users, return_inverse=True)
    np.save(partial / 'clients.npy', clients.astype(np.int32))
    arrays = _load(partial)
    digest = checksum(arrays['train'], arrays['test'], arrays['clients'])
    (partial / INFO).write_text(json.dumps({'checksum': digest}))
    partial.chmod(0o755)  # mkdtemp lets only the owner read
    if not (ready / INFO).exists():  # else another process was faster
      shutil.rmtree(ready, ignore_errors=True)  # without `INFO`: what an old version left
      os.replace(partial, ready)
  finally:
    shutil.rmtree(partial, ignore_errors=True)
  return ready


def _open(ready: Path) -> tuple[dict[str, Any], str]:
  """Returns the arrays of a prepared folder and their checksum."""
  try:
    return _load(ready), json.loads((ready / INFO).read_text())['checksum']
  except (ValueError, KeyError, EOFError, OSError) as error:
    raise ValueError(f'{ready} cannot be read: delete it, it is prepared anew') from error


def _load(folder: Path) -> dict[str, Any]:
  arrays: dict[str, Any] = {'clients': np.load(folder / 'clients.npy', allow_pickle=False)}
  for split in SPLITS:
    y = np.load(folder / f'{split}_y.npy', allow_pickle=False)
    if not len(y):  # a user's subset may have no validation rows
      arrays[split] = None
      continue
    x = np.load(folder / f'{split}_x.npy', mmap_mode='r', allow_pickle=False)
    arrays[split] = check_split(x, y, str(folder), len(CLASSES))
  return arrays
