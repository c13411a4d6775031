"""CINIC-10's archive (Darlow et al., 2018): PNG files in a folder per split and class.

It is the one archive that is streamed: unpacked it is larger than the arrays that come out of it.
"""

import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from fedjax_syn.data.builders.archive_formats import Arrays
from fedjax_syn.data.builders.pixels import read_rgb

CLASSES = ('airplane', 'automobile', 'bird', 'cat', 'deer', 'dog', 'frog', 'horse', 'ship', 'truck')
SPLITS = ('train', 'test')
SIDE = 32


def parse(paths: Mapping[str, Path]) -> tuple[Arrays, Arrays]:
  """Reads the official train folder for training and the test folder for testing, as DynaFed does.

  The third folder, valid, is not used: rows to tune on come out of the training rows
  (`data.validation`), as for every other data set. Greyscale files become RGB.

  Args:
    paths: the one archive.

  Returns:
    Training and test images, uint8 [n, 32, 32, 3], and labels [n], in the archive's order.

  Raises:
    ValueError: if a folder has no PNG files, or a file is no PNG of 32 x 32 pixels.
    tarfile.TarError: if the archive is damaged.
  """
  (path,) = paths.values()
  # Growing buffers: joining an array per image at the end would take twice the memory.
  pixels: dict[str, bytearray] = {split: bytearray() for split in SPLITS}
  labels: dict[str, bytearray] = {split: bytearray() for split in SPLITS}
  for split, folder, file, content in _files(path):
    pixels[split] += _pixels(f'{split}/{folder}/{file}', content)
    labels[split].append(CLASSES.index(folder))
  for split in SPLITS:
    present = set(labels[split])
    missing = [f'{split}/{c}' for i, c in enumerate(CLASSES) if i not in present]
    if missing:
      raise ValueError(
        f'{path.name} has no PNG files in {", ".join(missing if present else [split])}; the '
        f'published archive has train/, valid/ and test/, each with {", ".join(CLASSES)}'
      )

  def arrays(split: str) -> Arrays:
    x = np.frombuffer(pixels[split], np.uint8).reshape(-1, SIDE, SIDE, 3)
    return x, np.frombuffer(labels[split], np.uint8)

  return arrays('train'), arrays('test')


def _files(path: Path) -> Iterator[tuple[str, str, str, bytes]]:
  """Yields split, class, file name and content of the files that are used."""
  with tarfile.open(path, 'r|gz') as tar:
    while (member := tar.next()) is not None:
      # What is above the split ('.', say) depends on the packer.
      split, folder, file = ['', '', *member.name.split('/')][-3:]
      wanted = split in SPLITS and folder in CLASSES and file.endswith('.png')
      # Some packers write metadata files, whose names begin with a dot.
      if member.isfile() and wanted and not file.startswith('.'):
        yield split, folder, file, tar.extractfile(member).read()  # type: ignore[union-attr]
      # tarfile remembers every member: 270,000 take 100 MiB.
      tar.members.clear()  # type: ignore[attr-defined]


def _pixels(name: str, content: bytes) -> bytes:
  try:
    x = read_rgb(content, formats=('PNG',))
  except ValueError as error:
    raise ValueError(f'{name} is no PNG file that can be read') from error
  if x.shape[:2] != (SIDE, SIDE):
    raise ValueError(f'{name} has {x.shape[1]} x {x.shape[0]} pixels, expected {SIDE} x {SIDE}')
  return x.tobytes()
