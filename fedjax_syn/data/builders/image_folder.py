"""A folder of images, `root/CLIENT/CLASS/IMAGE`.

The test split is in `root/test/CLASS/IMAGE` or held out. `folder_layout` says what paths mean.
"""

import dataclasses
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedjax_syn.core.texts import listed
from fedjax_syn.data.builders import folder_layout, pixels
from fedjax_syn.data.builders.folder_layout import TEST, TRAIN, VALIDATION, WANTED
from fedjax_syn.data.dataset import Dataset, make
from fedjax_syn.data.naming import one_spelling, respelled
from fedjax_syn.data.normalisation import UNMEASURED
from fedjax_syn.data.split import check_split, fifth, same_rows

SUFFIXES = ('.bmp', '.gif', '.jpeg', '.jpg', '.pgm', '.png', '.ppm', '.tif', '.tiff', '.webp')
SYSTEM = ('__macosx', 'thumbs.db', 'desktop.ini', '@eadir', 'lost+found', '$recycle.bin')
DEEPEST = 8  # folders; an image lies at most four deep
HIDDEN, NO_FILE = 'hidden or of the system', 'no regular file'
NO_IMAGE = 'no image of a format that is read'
CYCLE = 'a link to a folder that holds it'
_FOLDER = 'folder'
_SPLITS = (TRAIN, TEST, VALIDATION)


class Files(NamedTuple):
  """What lies below a folder."""

  paths: list[Path]
  """Of images, in the order of their names."""
  parts: list[tuple[str, ...]]
  """Of each: the names of its folders below the root, and its own, in Unicode's composed form."""
  spelled: list[tuple[str, ...]]
  """The same as the file system spells them."""
  left_out: dict[str, list[str]]
  """By reason, paths below the root."""
  empty: list[tuple[str, ...]]
  """Folders without an image below them, whose parents have some."""


def load(name: str, folder: Path, size: int = 0) -> Dataset:
  """Reads a folder of images.

  Args:
    name: of the data set, as in the config.
    folder: the root. Names of folders are sorted: the first client is 0, the first class is 0.
    size: side in pixels to which images are resized; 0 takes them as they are, all of one size.

  Returns:
    The images, grey if all of them are and RGB otherwise. Without a folder `test` a fifth of every
    client's images of every class is held out, always the same ones.

  Raises:
    FileNotFoundError: if there is no such folder.
    ValueError: if it holds no images, is laid out otherwise, or an image cannot be read or has
      another size.
    OSError: if a folder cannot be read.
  """
  where = f'data.dir={str(folder)!r}'
  if not folder.is_dir():
    raise FileNotFoundError(f'{where}: no such folder; {WANTED}')
  try:
    files = scan(folder)
    rows, notes = folder_layout.arrange(files.parts)
  except ValueError as error:
    raise ValueError(f'{where}: {error}') from error
  classes = sorted({row.label for row in rows})
  clients = sorted({row.client for row in rows if row.split == TRAIN} - {''})
  y = _numbers([row.label for row in rows], classes)
  owners = _numbers([row.client for row in rows], clients)
  x, scaled = pixels.read(files.paths, where, size)
  of = {split: np.array([row.split == split for row in rows]) for split in _SPLITS}
  if not of[TEST].any():
    of[TEST] = held = of[TRAIN] & _held_out(owners, y, of[TRAIN])
    of[TRAIN] = of[TRAIN] & ~held
    if not held.any():
      raise ValueError(
        f'{where}: too few images to hold a test split out; put some into test/CLASS/'
      )
  split = lambda own: check_split(x[own], y[own], str(folder), len(classes))
  train, test = split(of[TRAIN]), split(of[TEST])
  unknown = sorted({row.client for row in rows if row.split == TEST} - {'', *clients})
  if unknown:
    notes.append(f'clients {listed(unknown)} have test images and none to train on')
  test_owners = owners[of[TEST]]
  dataset = make(
    name,
    '',
    train,
    test,
    len(classes),
    UNMEASURED,
    validation=split(of[VALIDATION]) if of[VALIDATION].any() else None,
    clients=owners[of[TRAIN]] if clients else None,
    client_names=tuple(clients),
    class_names=tuple(classes),
    test_clients=test_owners if (test_owners >= 0).any() else None,
    notes=(_summary(files, rows), *notes, *scaled, *_file_notes(files), *same_rows(train, test)),
  )
  title = f'{folder.resolve().name} ({dataset.checksum[:8]})'
  return dataclasses.replace(dataset, title=title)


def _held_out(owners: np.ndarray, y: np.ndarray, train: np.ndarray) -> np.ndarray:
  """Chooses a fifth of every client's training rows of every class; bool [rows]."""
  group = np.maximum(owners, 0) * (y.max() + 1) + y
  chosen = np.zeros(len(y), bool)
  chosen[train] = fifth(group[train])
  return chosen


def _summary(files: Files, rows: Sequence[folder_layout.Row]) -> str:
  """States how many files were read, and how many were left out and why."""
  clients = len({row.client for row in rows if row.split == TRAIN} - {''})
  of = Counter(row.split for row in rows)
  line = f'read {len(rows)} images' + (f' of {clients} clients' if clients else '')
  if len(of) > 1:
    line += f' ({", ".join(f"{name} {of[name]}" for name in _SPLITS if name in of)})'
  if TEST not in of:
    line += ', a fifth of each class held out to test'
  for reason, names in files.left_out.items():
    line += f'; left out {len(names)} ({reason}: {listed(names)})'
  if files.empty:
    line += f'; folders without an image: {listed(["/".join(names) for names in files.empty])}'
  return line


def _file_notes(files: Files) -> list[str]:
  """States which folders have several Unicode spellings, and how many images are one file twice."""
  names = respelled(name for path in files.spelled for name in path[:-1])
  notes = [f'{listed(names)}: two Unicode spellings, taken as one name'] if names else []
  inodes = [(info.st_dev, info.st_ino) for info in (path.stat() for path in files.paths)]
  again = len(inodes) - len(set(inodes))
  return notes + ([f'{again} of the images are links to others of them'] if again else [])


def _numbers(words: Sequence[str], names: Sequence[str]) -> np.ndarray:
  """Returns the number of every word among the names, -1 where it is none of them; int32."""
  number = {name: i for i, name in enumerate(names)}
  return np.array([number.get(word, -1) for word in words], np.int32)


def scan(root: Path) -> Files:
  """Looks at all files below a folder, through links to folders too.

  Args:
    root: the folder.

  Returns:
    The images, by their content, and what was left out. A file that is no image, but is called like
    one, counts as an image: `pixels.read` says what is wrong with it.

  Raises:
    ValueError: if a link leads nowhere, or folders are nested too deeply.
    OSError: if a folder cannot be read.
  """
  paths: list[Path] = []
  left_out: dict[str, list[str]] = {}
  folders: Counter[Path] = Counter()

  def leave(path: Path, reason: str) -> None:
    left_out.setdefault(reason, []).append(path.relative_to(root).as_posix())

  for path, reason in _walk(root, ()):
    if reason == _FOLDER:
      folders[path] += 0
    elif reason:
      leave(path, reason)
    elif path.suffix.lower() in SUFFIXES or pixels.is_image(path):
      paths.append(path)
      folders.update(parent for parent in path.parents if parent != root and root in parent.parents)
    else:
      leave(path, NO_IMAGE)
  empty = [
    p for p, count in folders.items() if not count and (p.parent == root or folders[p.parent])
  ]
  spelled = [path.relative_to(root).parts for path in paths]
  parts = [tuple(map(one_spelling, names)) for names in spelled]
  order = sorted(range(len(paths)), key=lambda i: (parts[i], spelled[i]))
  sort = lambda values: [values[i] for i in order]
  names = sorted(path.relative_to(root).parts for path in empty)
  return Files(sort(paths), sort(parts), sort(spelled), left_out, names)


def _walk(folder: Path, above: tuple[tuple[int, int], ...]) -> Iterator[tuple[Path, str]]:
  """Yields files with '' or the reason why they are left out, and folders with `_FOLDER`."""
  info = folder.stat()
  above = (*above, (info.st_dev, info.st_ino))
  for path in sorted(folder.iterdir()):
    if path.name.startswith('.') or path.name.lower() in SYSTEM:
      yield path, HIDDEN
      continue
    try:
      info = path.stat()
    except OSError as error:  # FileNotFoundError, or that of a link to itself
      if not path.is_symlink():
        raise
      raise ValueError(f'{path} is a link that leads nowhere ({error.strerror})') from error
    if not stat.S_ISDIR(info.st_mode):
      yield path, '' if stat.S_ISREG(info.st_mode) else NO_FILE
    elif (info.st_dev, info.st_ino) in above:
      yield path, CYCLE
    elif len(above) == DEEPEST:
      raise ValueError(f'{path} is more than {DEEPEST - 1} folders deep')
    else:
      yield path, _FOLDER
      yield from _walk(path, above)
