"""Images of Parquet files, decoded record batch by record batch into arrays allocated once."""

import io
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from fedjax_syn.core.texts import first_line
from fedjax_syn.data.builders import bounded, pixels

BATCH = 256  # rows that are read from a file at once


class Images:
  """The images of both parts, decoded into arrays that are allocated once."""

  def __init__(self, sizes: Sequence[int], where: str, size: int):
    self.sizes, self.where, self.size = sizes, where, size
    self.arrays: list[np.ndarray] = []  # training and test rows
    self.done = [0, 0]
    self.notes: Counter[str] = Counter()

  def fill(self, files: Sequence[Path], column: str, tested: np.ndarray) -> None:
    """Decodes the images of a split; tested says which of them are test rows."""
    for row, content in enumerate(_contents(files, column)):
      part = int(tested[row])
      self._set(part, self._decode(content, row, files))
      self.done[part] += 1

  def _decode(self, content: bytes | None, row: int, files: Sequence[Path]) -> np.ndarray:
    split = files[0].name.partition('-')[0].removesuffix('.parquet')
    here = f'{self.where}: image {row} of {split}'
    if content is None:
      raise ValueError(f'{here} is not in the file: bytes is null, and other files are not read')
    try:
      with pixels.open_image(io.BytesIO(content)) as opened:
        image = pixels.decode(opened, self.size)
    except ValueError as error:
      raise ValueError(f'{here} cannot be read ({first_line(error)})') from error
    if image.array.dtype != np.uint8 or image.top:
      raise ValueError(f'{here} has more than 8 bits a channel; save them with 8')
    self.notes.update(image.notes)
    return image.array

  def _set(self, part: int, image: np.ndarray) -> None:
    if not self.arrays:
      rows = sum(self.sizes)
      what = f'{self.where}: {rows} images of {" x ".join(map(str, image.shape))}'
      bounded.check_bytes(rows * image.nbytes, what)
      self.arrays = [np.empty((n, *image.shape), np.uint8) for n in self.sizes]
    height, width, channels = self.arrays[0].shape[1:]
    if image.shape[:2] != (height, width):
      first, other = f'{width}x{height}', 'x'.join(map(str, image.shape[1::-1]))
      raise ValueError(
        f'{self.where}: images have {first} and {other} pixels; data.size=32, say, resizes all of'
        ' them'
      )
    if image.shape[2] > channels:  # a first image with colours
      self.arrays = [np.repeat(array, image.shape[2], axis=-1) for array in self.arrays]
    self.arrays[part][self.done[part]] = image  # one channel goes into all three

  def finish(self) -> tuple[list[np.ndarray], list[str]]:
    """Returns the arrays of training and test rows, and what was decided for how many images."""
    return self.arrays, [
      f'{note}: {count} image{"s"[: count > 1]}' for note, count in self.notes.items()
    ]


def _contents(files: Sequence[Path], column: str) -> Iterator[bytes | None]:
  """Yields the bytes of each image, in the order of the rows."""
  for path in files:
    with pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20) as file:
      for batch in file.iter_batches(BATCH, columns=[f'{column}.bytes'], use_threads=False):
        for value in batch.column(0).field('bytes'):
          yield value.as_py()
