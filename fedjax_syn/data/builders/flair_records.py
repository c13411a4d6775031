"""FLAIR's published folder as records of tensorflow-datasets, images in their published bytes.

A record is {'image': JPEG of 256 x 256 pixels, 'labels': the coarse ones, 'user_id', 'image_id'};
the splits are 'train', 'val' and 'test', in the order of the label file. Records are written shard
by shard, so that only one shard's files are held in memory: `GeneratorBasedBuilder` would sort a
whole split, and needs TensorFlow for more than 1 GB of it.
"""

import contextlib
import functools
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from PIL import Image

from fedjax_syn.data.builders import bounded, records

_CLASSES = (
  'animal art celebration equipment fire food games interior_room light liquid material music '
  'outdoor plant recreation religion structure'
)
CLASSES = tuple(_CLASSES.split())
SPLITS = ('train', 'val', 'test')
NAME = 'flair'  # of the builder, whatever the side
METADATA, IMAGES = 'labels_and_metadata.json', 'small_images'
SIDE = 256  # of the published images, in pixels
BATCH = 1024  # images decoded in parallel
KEYS = ('image_id', 'user_id', 'partition', 'labels')
Record = dict[str, Any]


def prepare(layout: Path, data_dir: Path) -> Path:
  """Writes the records of a published folder, unless they are there already.

  Args:
    layout: the folder of the label file and of the images.
    data_dir: they are written to `data_dir/flair/VERSION`.

  Returns:
    The folder that was written.

  Raises:
    ValueError: if the label file or an image is not as published.
    OSError: if the folder cannot be written.
  """
  tfds = records.import_tfds(f'data.name={NAME!r}')
  labels = read_labels(layout / METADATA)  # errors come before a folder is made
  rows = {split: [row for row in labels if row['partition'] == split] for split in SPLITS}
  shards = {split: _shards(layout / IMAGES, part) for split, part in rows.items() if part}
  features = {
    'image': tfds.features.Image(shape=(SIDE, SIDE, 3), encoding_format='jpeg'),
    'labels': tfds.features.Sequence(tfds.features.ClassLabel(names=CLASSES)),
    'user_id': tfds.features.Text(),
    'image_id': tfds.features.Text(),
  }
  description = 'FLAIR, coarse labels, rows in the order of the label file.'
  try:
    return records.write(NAME, data_dir, features, shards, description)
  except BaseException:
    with contextlib.suppress(OSError):
      (data_dir / NAME).rmdir()  # if nothing else is in it
    raise


def read(folder: Path, split: str) -> tuple[int, Iterator[list[Record]]]:
  """Opens a split of what `prepare` wrote.

  Args:
    folder: `data_dir/flair/VERSION`.
    split: one of `SPLITS`.

  Returns:
    The number of rows (0 if the split is not there), and the records, in order, batch after batch.

  Raises:
    ValueError: if the records cannot be read.
  """
  tfds = records.import_tfds(f'data.name={NAME!r}')
  with records.reading(folder):
    builder = records.open_builder(folder)
    if split not in builder.info.splits:
      return 0, iter(())
    # Bytes: decoding at the wanted side later takes a fraction of the time.
    rows = builder.as_data_source(split, decoders={'image': tfds.decode.SkipDecoding()})

  def batches() -> Iterator[list[Record]]:
    with records.reading(folder):
      yield from records.batches(rows, BATCH)

  return len(rows), batches()


def read_labels(path: Path) -> list[Record]:
  """Reads the label file.

  Args:
    path: the file.

  Returns:
    A record for every image, in its order, with `KEYS`.

  Raises:
    ValueError: naming the first record that is not as published.
  """
  labels = bounded.read_json(path)
  if not isinstance(labels, list):
    raise ValueError(f'{path} must hold a list of records, one for each image')
  for i, record in enumerate(labels):
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
  times = Counter(str(record['image_id']) for record in labels)
  twice = next((image for image, count in times.items() if count > 1), None)
  if twice is not None:
    raise ValueError(f'{path} has {times[twice]} records of image_id {twice!r}: expected one')
  partitions = {record['partition'] for record in labels}
  for split in ('train', 'test'):
    if split not in partitions:
      raise ValueError(f'{path} has no record of partition {split!r}')
  return labels


def _shards(images: Path, rows: Sequence[Record]) -> list[records.Shard]:
  """Returns what yields the examples of each shard, `BATCH` of them."""

  def generate(start: int) -> Iterator[tuple[int, dict[str, Any]]]:
    part = rows[start : start + BATCH]
    with ThreadPoolExecutor() as pool:  # Pillow decodes without the interpreter's lock
      contents = pool.map(lambda r: _content(images / f'{r["image_id"]}.jpg'), part)
      for i, (record, content) in enumerate(zip(part, contents, strict=True)):
        example = {'image': content, 'labels': list(record['labels'])}
        yield start + i, example | {k: str(record[k]) for k in ('user_id', 'image_id')}

  return [functools.partial(generate, start) for start in range(0, len(rows), BATCH)]


def _content(path: Path) -> bytes:
  """Returns a file's bytes, after a check that they can be decoded."""
  try:
    content = bounded.read_bytes(path)
    with Image.open(io.BytesIO(content), formats=['JPEG']) as image:
      size = image.size
      image.draft('RGB', (SIDE // 8, SIDE // 8))  # an eighth: reads all bytes, makes few pixels
      image.load()
  except FileNotFoundError as error:
    raise ValueError(f'{path} is missing, and {METADATA} names it') from error
  except (OSError, SyntaxError, ValueError) as error:  # Pillow's errors share no base class
    raise ValueError(f'{path} is no JPEG file that can be read') from error
  if size != (SIDE, SIDE):
    raise ValueError(f'{path} has {size[0]} x {size[1]} pixels, expected {SIDE} x {SIDE}')
  return content
