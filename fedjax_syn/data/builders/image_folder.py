"""A folder of images, `root/CLIENT/CLASS/IMAGE`, with the test split in `root/test/CLASS/IMAGE` or held out."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedjax_syn.data.builders import image_files, layout, pixels
from fedjax_syn.data.builders.layout import WANTED
from fedjax_syn.data.builders.spelling import respelled, some
from fedjax_syn.data.builders.split import Split, check_split, same_rows, stratified

HELD_OUT = 0.2  # of every client's images of every class, without a folder `test`


class Found(NamedTuple):
  """What a folder holds."""

  train: Split
  test: Split
  clients: np.ndarray | None  # int32 [training rows]; None where there are no folders of clients
  client_names: tuple[str, ...]
  class_names: tuple[str, ...]
  notes: tuple[str, ...] = ()  # what was scaled, renamed or left out, and why
  validation: Split | None = None  # of a folder `valid`
  test_clients: np.ndarray | None = None  # int32 [test rows], -1 for nobody's; None: nobody says


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
    OSError: if a folder cannot be read.
  """
  if not folder.is_dir():
    raise FileNotFoundError(f'data.dir={str(folder)!r}: no such folder; {WANTED}')
  try:
    files = image_files.scan(folder, pixels.is_image)
    if not files.paths:
      raise ValueError(f'holds no images to train on; {WANTED}')
    rows, notes = layout.arrange(files.parts)
  except ValueError as error:
    raise ValueError(f'data.dir={str(folder)!r}: {error}') from error
  classes = sorted({row.label for row in rows})
  clients = sorted({row.client for row in rows if row.split == layout.TRAIN} - {''})
  y = _numbers([row.label for row in rows], classes)
  owners = _numbers([row.client for row in rows], clients)
  x, scaled = pixels.read(files.paths, f'data.dir={str(folder)!r}', size)
  of = {name: np.array([row.split == name for row in rows]) for name in _SPLITS}
  if not of[layout.TEST].any():
    of[layout.TEST] = held = of[layout.TRAIN] & _held_out(owners, y, of[layout.TRAIN])
    of[layout.TRAIN] = of[layout.TRAIN] & ~held
    if not held.any():
      raise ValueError(
        f'data.dir={str(folder)!r}: too few images to hold a test split out; put some into test/CLASS/'
      )
  train, test, validation = (
    check_split(x[own], y[own], str(folder), len(classes)) if own.any() else None
    for own in of.values()
  )
  strangers = sorted({row.client for row in rows if row.split == layout.TEST} - {'', *clients})
  if strangers:
    notes.append(f'clients {some(strangers)} have test images and none to train on')
  said = owners[of[layout.TEST]]
  return Found(
    train,
    test,
    owners[of[layout.TRAIN]] if clients else None,
    tuple(clients),
    tuple(classes),
    (
      _what_was_read(files, rows),
      *(*notes, *scaled, *_spellings(files), *_linked(files), *same_rows(train, test)),
    ),
    validation,
    said if (said >= 0).any() else None,
  )


_SPLITS = (layout.TRAIN, layout.TEST, layout.VALIDATION)


def _held_out(owners: np.ndarray, y: np.ndarray, train: np.ndarray) -> np.ndarray:
  """Chooses a fifth of every client's training rows of every class; bool [rows]."""
  group = np.maximum(owners, 0) * (y.max() + 1) + y
  count = round(HELD_OUT * train.sum())
  chosen = np.zeros(len(y), bool)
  order = np.random.default_rng(0).permutation(train.sum())
  chosen[train] = stratified(group[train], count, order)
  return chosen


def _what_was_read(files: image_files.Files, rows: Sequence[layout.Row]) -> str:
  """Says how many files were read, and how many were left out and why."""
  clients = len({row.client for row in rows if row.split == layout.TRAIN} - {''})
  of = Counter(row.split for row in rows)
  line = f'read {len(rows)} images' + (f' of {clients} clients' if clients else '')
  if len(of) > 1:
    line += f' ({", ".join(f"{name} {of[name]}" for name in _SPLITS if name in of)})'
  if layout.TEST not in of:
    line += ', a fifth of each class held out to test'
  for reason, names in files.left_out.items():
    line += f'; left out {len(names)} ({reason}: {some(names)})'
  if files.empty:
    line += f'; folders without an image: {some(["/".join(names) for names in files.empty])}'
  return line


def _linked(files: image_files.Files) -> list[str]:
  """Says how many images are one file at several paths."""
  numbers = [(info.st_dev, info.st_ino) for info in (path.stat() for path in files.paths)]
  again = len(numbers) - len(set(numbers))
  return [f'{again} of the images are links to others of them'] if again else []


def _spellings(files: image_files.Files) -> list[str]:
  """Says which folders' names come in several Unicode spellings and are taken as one."""
  names = respelled(name for path in files.spelled for name in path[:-1])
  return [f'{some(names)}: two Unicode spellings, taken as one name'] if names else []


def _numbers(words: Sequence[str], names: Sequence[str]) -> np.ndarray:
  """Returns the number of every word among the names, -1 where it is none of them; int32."""
  number = {name: i for i, name in enumerate(names)}
  return np.array([number.get(word, -1) for word in words], np.int32)
