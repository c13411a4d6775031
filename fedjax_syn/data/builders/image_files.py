"""The files below a folder of images: which of them are images, which are left out, and why."""

import os
import stat
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from fedjax_syn.data.builders.spelling import one_spelling

SUFFIXES = ('.bmp', '.gif', '.jpeg', '.jpg', '.pgm', '.png', '.ppm', '.tif', '.tiff', '.webp')
SYSTEM = ('__macosx', 'thumbs.db', 'desktop.ini', '@eadir', 'lost+found', '$recycle.bin')
DEEPEST = 8  # folders; an image lies at most four deep
HIDDEN, NO_FILE = 'hidden or of the system', 'no regular file'
NO_IMAGE = 'no image of a format that is read'
CYCLE = 'a link to a folder that holds it'


class Files(NamedTuple):
  """What lies below a folder."""

  paths: list[Path]  # of images, in the order of their names
  parts: list[tuple[str, ...]]  # of each: the names of its folders below the root, and its own
  spelled: list[tuple[str, ...]]  # the same as the file system spells them; `parts` are composed
  left_out: dict[str, list[str]]  # by reason, paths below the root
  empty: list[tuple[str, ...]]  # folders without an image below them, whose parents have some


def scan(root: Path, is_image: Callable[[Path], bool]) -> Files:
  """Looks at all files below a folder, through links to folders too.

  Args:
    root: the folder.
    is_image: says by its content whether a file is an image. A file that is none, but is called like one, counts
      as an image: whoever reads it says what is wrong with it.

  Returns:
    The images and what was left out.

  Raises:
    ValueError: if a link leads nowhere, or folders are nested too deeply.
    OSError: if a folder cannot be read.
  """
  paths, left_out, folders = [], {}, Counter()

  def leave(path: Path, reason: str) -> None:
    left_out.setdefault(reason, []).append(path.relative_to(root).as_posix())

  for path, reason in _walk(root, ()):
    if reason == _FOLDER:
      folders[path] += 0
    elif reason:
      leave(path, reason)
    elif path.suffix.lower() in SUFFIXES or is_image(path):
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


_FOLDER = 'folder'


def _walk(folder: Path, above: tuple[tuple[int, int], ...]) -> Iterator[tuple[Path, str]]:
  """Yields files with '' or the reason why they are left out, and folders with `_FOLDER`."""
  info = folder.stat()
  above = (*above, (info.st_dev, info.st_ino))
  for path in sorted(folder.iterdir()):
    if path.name.startswith('.') or path.name.lower() in SYSTEM:
      yield path, HIDDEN
      continue
    info = _stat(path)
    if not stat.S_ISDIR(info.st_mode):
      yield path, '' if stat.S_ISREG(info.st_mode) else NO_FILE
    elif (info.st_dev, info.st_ino) in above:
      yield path, CYCLE
    elif len(above) == DEEPEST:
      raise ValueError(f'{path} is more than {DEEPEST - 1} folders deep')
    else:
      yield path, _FOLDER
      yield from _walk(path, above)


def _stat(path: Path) -> os.stat_result:
  try:
    return path.stat()
  except FileNotFoundError as error:
    raise ValueError(f'{path} is a link that leads nowhere') from error
  except OSError as error:  # a link to itself
    if not path.is_symlink():
      raise
    raise ValueError(f'{path} is a link that leads nowhere ({error.strerror})') from error
