"""FLAIR (Song et al., 2022): Flickr users' photographs with any of 17 coarse labels each.

The published layout is a folder with `labels_and_metadata.json`, a list of {"image_id", "user_id", "partition"
("train", "val" or "test"), "labels" (coarse), "fine_grained_labels" (not used)}, and `small_images/`, a JPEG
file of 256 x 256 pixels for each image id. The whole set has 345,879 + 39,239 + 43,960 images of 51,414 users.

Images are decoded once, scaled to the side that is asked for and streamed into memory-mapped arrays beside the
layout (`<name>-1.0.0/`), so that no more than a batch of them is ever held in memory: 4.2 GB of training
pixels for a side of 64, 17 for 128, 68 for 256. From there only the rows of the clients that take part go to
the device (`natural_sample`: those of a few hundred users); all of them if all users do.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from fedjax_syn.data.builders.split import Split, check_split, checksum

CLASSES = (
  'animal',
  'art',
  'celebration',
  'equipment',
  'fire',
  'food',
  'games',
  'interior_room',
  'light',
  'liquid',
  'material',
  'music',
  'outdoor',
  'plant',
  'recreation',
  'religion',
  'structure',
)
SPLITS = ('train', 'val', 'test')
KEYS = ('image_id', 'user_id', 'partition', 'labels')
METADATA, IMAGES, INFO = 'labels_and_metadata.json', 'small_images', 'info.json'
VERSION = '1.0.0'  # of what is written here
SIDE = 256  # of the published images, in pixels
BATCH = 1024  # images decoded side by side


class Flair(NamedTuple):
  """The prepared data set; images are memory-mapped."""

  train: Split  # y multi-hot int32 [n, 17]
  validation: Split | None
  test: Split
  clients: np.ndarray  # int32 [training rows], training users numbered in the order of their ids
  checksum: str


def read(name: str, data_dir: Path, side: int) -> Flair:
  """Reads the data set from what was prepared before, else prepares it from the published layout.

  Args:
    name: what the prepared folder is called after.
    data_dir: the layout lies there or in its folder `flair`.
    side: height and width to scale to, in pixels.

  Returns:
    The data set, in the order of the label file.

  Raises:
    FileNotFoundError: if it is not there.
    ValueError: if the label file or an image is not as published.
    OSError: if the folder cannot be written.
  """
  homes = [data_dir / 'flair', data_dir]
  for home in homes:
    ready = home / f'{name}-{VERSION}'
    if (ready / INFO).exists():
      return _open(ready)
  for home in homes:
    if (home / METADATA).exists():
      return _open(_prepare(home, home / f'{name}-{VERSION}', side))
  raise FileNotFoundError(
    f'data.name={name!r} is not in data.dir={str(data_dir)!r}: put {METADATA} and {IMAGES}/ there, as '
    'downloaded and unpacked by the scripts of https://github.com/apple/ml-flair'
  )


def _prepare(home: Path, ready: Path, side: int) -> Path:
  records = _records(home / METADATA)
  users = sorted({r['user_id'] for r in records if r['partition'] == 'train'})
  number = {user: i for i, user in enumerate(users)}
  partial = Path(tempfile.mkdtemp(dir=home, prefix=f'.{ready.name}-'))
  try:
    for split in SPLITS:
      rows = [r for r in records if r['partition'] == split]
      x = np.lib.format.open_memmap(
        partial / f'{split}_x.npy', 'w+', np.uint8, (len(rows), side, side, 3)
      )
      for start, images in _images(home / IMAGES, [r['image_id'] for r in rows], side):
        x[start : start + len(images)] = images
      x.flush()
      np.save(partial / f'{split}_y.npy', _multi_hot([r['labels'] for r in rows]))
    clients = [number[r['user_id']] for r in records if r['partition'] == 'train']
    np.save(partial / 'clients.npy', np.array(clients, np.int32))
    found = _load(partial)
    (partial / INFO).write_text(
      json.dumps({'checksum': checksum(found['train'], found['test'], found['clients'])})
    )
    partial.chmod(0o755)  # mkdtemp's are for their owner alone
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
  found: dict[str, Any] = {'clients': np.load(folder / 'clients.npy')}
  for split in SPLITS:
    y = np.load(folder / f'{split}_y.npy')
    if not len(y):  # a set of one's own may go without validation rows
      found[split] = None
      continue
    x = np.load(folder / f'{split}_x.npy', mmap_mode='r')
    found[split] = check_split(x, y, str(folder), len(CLASSES))
  return found


def _records(path: Path) -> list[dict[str, Any]]:
  try:
    records = json.loads(path.read_text(encoding='utf-8'))
  except ValueError as error:
    raise ValueError(f'{path} is not JSON: {error}') from error
  if not isinstance(records, list):
    raise ValueError(f'{path} must hold a list of records, one for each image')
  for i, record in enumerate(records):
    missing = [k for k in KEYS if k not in record] if isinstance(record, dict) else KEYS
    if missing:
      raise ValueError(f'{path}: record {i} has no {", ".join(missing)}')
    if record['partition'] not in SPLITS:
      raise ValueError(
        f'{path}: record {i} is of partition {record["partition"]!r}; known: {", ".join(SPLITS)}'
      )
    unknown = [label for label in record['labels'] if label not in CLASSES]
    if unknown:
      raise ValueError(
        f'{path}: record {i} has the label {unknown[0]!r}; known: {", ".join(CLASSES)}'
      )
  present = {record['partition'] for record in records}
  for split in ('train', 'test'):
    if split not in present:
      raise ValueError(f'{path} has no record of partition {split!r}')
  return records


def _multi_hot(sets: Sequence[Sequence[str]]) -> np.ndarray:
  column = {label: i for i, label in enumerate(CLASSES)}
  y = np.zeros((len(sets), len(CLASSES)), np.int32)
  for row, labels in enumerate(sets):
    y[row, [column[label] for label in labels]] = 1
  return y


def _images(folder: Path, ids: Sequence[str], side: int) -> Iterator[tuple[int, np.ndarray]]:
  """Yields the first row and the pixels [batch, side, side, 3] of batch after batch."""
  with ThreadPoolExecutor() as pool:  # Pillow decodes without the interpreter's lock
    for start in range(0, len(ids), BATCH):
      paths = [folder / f'{image}.jpg' for image in ids[start : start + BATCH]]
      yield start, np.stack(list(pool.map(lambda path: _pixels(path, side), paths)))


def _pixels(path: Path, side: int) -> np.ndarray:
  try:
    with Image.open(path, formats=['JPEG']) as image:
      size = image.size
      image.draft('RGB', (side, side))  # decodes at a half, a quarter ... of the size: no aliases
      pixels = image.convert('RGB').resize((side, side), Image.Resampling.BILINEAR)
  except FileNotFoundError as error:
    raise ValueError(f'{path} is missing, and {METADATA} names it') from error
  except (OSError, SyntaxError, ValueError) as error:  # Pillow's errors share no base class
    raise ValueError(f'{path} is no JPEG file that can be read') from error
  if size != (SIDE, SIDE):
    raise ValueError(f'{path} has {size[0]} x {size[1]} pixels, expected {SIDE} x {SIDE}')
  return np.asarray(pixels)
