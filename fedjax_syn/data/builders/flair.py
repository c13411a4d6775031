"""FLAIR (Song et al., 2022): Flickr users' photographs with any of 17 coarse labels each.

The published layout is a folder with `labels_and_metadata.json`, a list of {"image_id", "user_id", "partition"
("train", "val" or "test"), "labels" (coarse), "fine_grained_labels" (not used)}, and `small_images/`, a JPEG
file of 256 x 256 pixels for each image id. The whole set has 345,879 + 39,239 + 43,960 images of 51,414 users.

The builder of `flair_records.py` writes it as records of tensorflow-datasets (`flair/1.0.0`), once. From these the
images are decoded, scaled to the side that is asked for and streamed into memory-mapped arrays
(`<name>-1.0.0/`), so that no more than a batch of them is ever held in memory: 4.2 GB of training
pixels for a side of 64, 17 for 128, 68 for 256. From there only the rows of the clients that take part go to
the device (`natural_sample`: those of a few hundred users); all of them if all users do.
"""

import io
import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from fedjax_syn.data.builders import pixels
from fedjax_syn.data.builders.arrays import first_line
from fedjax_syn.data.builders.flair_layout import (
  CLASSES,
  IMAGES,
  INFO,
  METADATA,
  NAME,
  SPLITS,
  VERSION,
  Row,
)
from fedjax_syn.data.builders.split import Split, check_split, checksum


class Flair(NamedTuple):
  """The prepared data set; images are memory-mapped."""

  train: Split  # y multi-hot int32 [n, 17]
  validation: Split | None
  test: Split
  clients: np.ndarray  # int32 [training rows], training users numbered in the order of their ids
  checksum: str


def read(name: str, data_dir: Path, side: int) -> Flair:
  """Reads the arrays that were prepared before, else prepares them from the records, and these from the layout.

  Args:
    name: what the prepared folder is called after.
    data_dir: the layout lies there or in its folder `flair`; records and arrays go beside it.
    side: height and width to scale to, in pixels.

  Returns:
    The data set, in the order of the label file.

  Raises:
    FileNotFoundError: if it is not there.
    ValueError: if the label file or an image is not as published, or tensorflow-datasets is absent and needed.
    OSError: if the folder cannot be written.
  """
  homes = [data_dir / NAME, data_dir]
  for home in homes:
    ready = home / f'{name}-{VERSION}'
    if (ready / INFO).exists():
      return _open(ready)
  layout = next((home for home in homes if (home / METADATA).exists()), None)
  written = data_dir / NAME / VERSION
  if layout is None and not (written / 'dataset_info.json').exists():
    raise FileNotFoundError(
      f'data.name={name!r} is not in data.dir={str(data_dir)!r}: put {METADATA} and {IMAGES}/ there, as '
      'downloaded and unpacked by the scripts of https://github.com/apple/ml-flair'
    )
  records = _records()
  if layout is not None:
    written = records.prepare(layout, data_dir)
  ready = (layout or data_dir / NAME) / f'{name}-{VERSION}'
  return _open(_prepare({split: records.read(written, split) for split in SPLITS}, ready, side))


def _records() -> ModuleType:
  # Imported where it is needed: prepared arrays are read where tensorflow-datasets is absent.
  try:
    from fedjax_syn.data.builders import flair_records
  except ImportError as error:
    raise ValueError(
      f'data.name={NAME!r} is prepared through tensorflow-datasets, importlib_resources and array_record '
      f'({first_line(error)}); arrays that were prepared elsewhere need none of them'
    ) from error
  return flair_records


def _prepare(splits: dict[str, tuple], ready: Path, side: int) -> Path:
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
          _fill(x, y, start, batch, pool)
          start += len(batch)
          users += [row.user_id for row in batch] if split == 'train' else []
      x.flush()
      np.save(partial / f'{split}_y.npy', y)
    _, clients = np.unique(users, return_inverse=True)
    np.save(partial / 'clients.npy', clients.astype(np.int32))
    found = _load(partial)
    (partial / INFO).write_text(
      json.dumps({'checksum': checksum(found['train'], found['test'], found['clients'])})
    )
    partial.chmod(0o755)  # mkdtemp's are for their owner alone
    if (ready / INFO).exists():  # another process was faster
      shutil.rmtree(partial)
      return ready
    shutil.rmtree(ready, ignore_errors=True)  # without `INFO`: what an old version left
    os.replace(partial, ready)
  except BaseException:
    shutil.rmtree(partial, ignore_errors=True)
    raise
  return ready


def _open(ready: Path) -> Flair:
  try:
    found = _load(ready)
    digest = json.loads((ready / INFO).read_text())['checksum']
  except (ValueError, KeyError, EOFError, OSError) as error:
    raise ValueError(f'{ready} cannot be read: delete it, it is prepared anew') from error
  return Flair(found['train'], found['val'], found['test'], found['clients'], digest)


def _load(folder: Path) -> dict[str, Any]:
  found: dict[str, Any] = {'clients': np.load(folder / 'clients.npy', allow_pickle=False)}
  for split in SPLITS:
    y = np.load(folder / f'{split}_y.npy', allow_pickle=False)
    if not len(y):  # a set of one's own may go without validation rows
      found[split] = None
      continue
    x = np.load(folder / f'{split}_x.npy', mmap_mode='r', allow_pickle=False)
    found[split] = check_split(x, y, str(folder), len(CLASSES))
  return found


def _fill(
  x: np.ndarray, y: np.ndarray, start: int, batch: Sequence[Row], pool: ThreadPoolExecutor
) -> None:
  """Writes a batch of rows into x [rows, side, side, 3] and y, multi-hot [rows, 17], from `start` on."""
  pixels = pool.map(lambda row: _pixels(row.image, x.shape[1]), batch)
  for i, (row, image) in enumerate(zip(batch, pixels, strict=True), start):
    x[i] = image
    y[i, row.labels] = 1


def _pixels(content: bytes, side: int) -> np.ndarray:
  with pixels.open_image(io.BytesIO(content), ['JPEG']) as image:
    image.draft('RGB', (side, side))  # decodes at a half, a quarter ... of the size: no aliases
    return np.asarray(pixels.to_rgb(image).resize((side, side), Image.Resampling.BILINEAR))
