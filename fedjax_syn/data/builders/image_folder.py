"""A folder of images, `root/CLIENT/CLASS/IMAGE`, with the test split in `root/test/CLASS/IMAGE` or held out."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from fedjax_syn.data.builders.split import Split, check_split, stratified

SUFFIXES = ('.bmp', '.gif', '.jpeg', '.jpg', '.pgm', '.png', '.ppm', '.tif', '.tiff', '.webp')
TEST = 'test'
HELD_OUT = 0.2  # of every client's images of every class, without a folder `test`
LAYOUT = 'wanted: CLIENT/CLASS/IMAGE.png (or CLASS/IMAGE.png), and test/CLASS/IMAGE.png or no test'


class Found(NamedTuple):
  """What a folder holds."""

  train: Split
  test: Split
  clients: np.ndarray | None  # int32 [training rows]; None where there are no folders of clients
  client_names: tuple[str, ...]
  class_names: tuple[str, ...]
  notes: tuple[str, ...] = ()  # what was scaled, renamed or left out, and why


def read(folder: Path, size: int = 0) -> Found:
  """Reads a folder of images.

  Args:
    folder: the root. Names of folders are sorted: the first client is 0, the first class is 0.
    size: side in pixels to which images are resized; 0 takes them as they are, all of one size.

  Returns:
    The images, grey if all of them are and RGB otherwise. Without a folder `test` a fifth of every client's images of
    every class is held out, always the same ones.

  Raises:
    FileNotFoundError: if there is no such folder.
    ValueError: if it holds no images, is laid out otherwise, or an image cannot be read or has another size.
  """
  if not folder.is_dir():
    raise FileNotFoundError(f'data.dir={str(folder)!r}: no such folder; {LAYOUT}')
  paths = [
    p for p in sorted(folder.rglob('*')) if p.suffix.lower() in SUFFIXES and _visible(p, folder)
  ]
  parts = [path.relative_to(folder).parts for path in paths]
  train = [i for i, part in enumerate(parts) if part[0] != TEST]
  test = [i for i, part in enumerate(parts) if part[0] == TEST]
  if not train:
    raise ValueError(f'data.dir={str(folder)!r}: holds no images to train on; {LAYOUT}')
  depth = Counter(len(parts[i]) for i in train).most_common(1)[0][0]
  for i, wanted in [*((i, depth) for i in train), *((i, 3) for i in test)]:
    if len(parts[i]) != wanted or wanted not in (2, 3):
      raise ValueError(f'data.dir={str(folder)!r}: {"/".join(parts[i])} is out of place; {LAYOUT}')
  class_names = sorted({part[-2] for part in parts})
  client_names = sorted({parts[i][0] for i in train}) if depth == 3 else []
  y = _numbers([part[-2] for part in parts], class_names)
  x = _images(paths, folder, size)
  owners = _numbers([parts[i][0] for i in train], client_names) if depth == 3 else None
  if test:
    rows = np.array(train), np.array(test)
  else:
    group = y if owners is None else owners * len(class_names) + y
    order = np.random.default_rng(0).permutation(len(y))
    held = stratified(group, round(HELD_OUT * len(y)), order)
    if not held.any():
      raise ValueError(
        f'data.dir={str(folder)!r}: too few images to hold a test split out; put some into test/CLASS/'
      )
    rows = np.flatnonzero(~held), np.flatnonzero(held)
    owners = None if owners is None else owners[~held]
  splits = [check_split(x[own], y[own], str(folder), len(class_names)) for own in rows]
  return Found(*splits, owners, tuple(client_names), tuple(class_names))


def fit(image: Image.Image, size: int) -> Image.Image:
  """Cuts the middle square out of an image and resizes it to `size` pixels a side; 0 leaves it as it is."""
  if not size or image.size == (size, size):
    return image
  side = min(image.size)
  left, top = ((n - side) // 2 for n in image.size)
  box = left, top, left + side, top + side
  return image.resize(
    (size, size), Image.Resampling.BOX if side > size else Image.Resampling.BICUBIC, box
  )


def _visible(path: Path, folder: Path) -> bool:
  return not any(part.startswith('.') for part in path.relative_to(folder).parts)


def _numbers(words: Sequence[str], names: Sequence[str]) -> np.ndarray:
  number = {name: i for i, name in enumerate(names)}
  return np.array([number[word] for word in words], np.int32)


def _images(paths: Sequence[Path], folder: Path, size: int) -> np.ndarray:
  """Returns uint8 [n, height, width, 1 or 3]."""
  arrays = []
  for path in paths:
    try:
      with Image.open(path) as image:
        grey = image.mode in ('1', 'L')
        arrays.append(np.asarray(fit(image.convert('L' if grey else 'RGB'), size)))
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
      reason = str(error).splitlines()[0]
      raise ValueError(f'data.dir={str(folder)!r}: {path} cannot be read ({reason})') from error
    if arrays[-1].shape[:2] != arrays[0].shape[:2]:
      first, other = ('x'.join(map(str, a.shape[:2][::-1])) for a in (arrays[0], arrays[-1]))
      raise ValueError(
        f'data.dir={str(folder)!r}: {paths[0]} has {first} pixels and {path} {other}; data.size=32, say,'
        ' resizes all of them'
      )
  if all(a.ndim == 2 for a in arrays):
    return np.stack(arrays)[..., None]
  return np.stack([a if a.ndim == 3 else np.repeat(a[..., None], 3, axis=-1) for a in arrays])
