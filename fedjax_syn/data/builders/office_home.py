"""Office-Home (Venkateswara et al., 2017): 15,588 images of 65 things in four domains.

The published archive OfficeHomeDataset_10072016.zip holds
OfficeHomeDataset_10072016/DOMAIN/CLASS/*.jpg, with the domains Art (2,427), Clipart (4,365),
Product (4,439) and Real World (4,357). There is no official split, and FedDualMatch does not state
one: a fifth of every class of every domain is tested on, those with the smallest SHA-256 of the
file, so that the split is the same everywhere.
"""

import contextlib
import hashlib
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from fedjax_syn.core.texts import first_line
from fedjax_syn.data.builders import bounded
from fedjax_syn.data.builders.pixels import read_rgb
from fedjax_syn.data.domains import Domain
from fedjax_syn.data.split import Split, smallest_digests

FOLDER = 'OfficeHomeDataset_10072016'
DOMAINS = {  # name in metrics: folder
  'art': 'Art',
  'clipart': 'Clipart',
  'product': 'Product',
  'real_world': 'Real World',
}
SIDE = 64  # pixels; not stated
TEST_SHARE = 0.2
LARGEST = 1 << 26  # bytes of an image; published ones are far smaller


def locate(data_dir: Path) -> Path | None:
  """Returns the unpacked folder or the archive, or None."""
  folders = (data_dir, data_dir / 'office_home')
  paths = [folder / name for folder in folders for name in (FOLDER, f'{FOLDER}.zip')]
  return next((path for path in paths if path.exists()), None)


def parse(path: Path) -> list[Domain]:
  """Decodes the archive or the unpacked folder, scaling every image at once.

  Args:
    path: from `locate`.

  Returns:
    The domains in the order of DOMAINS, images of 64 x 64 pixels whatever their shape was, rows in
    the order of the files' names.

  Raises:
    ValueError: if a domain or a class is missing, or a file is no image.
  """
  with _opened(path) as (names, read):
    files = [['', '', *name.split('/')][-3:] + [name] for name in names]
    # Some packers write metadata files, whose names begin with a dot.
    images = sorted(
      (folder, label, name)
      for folder, label, file, name in files
      if folder in DOMAINS.values() and file.lower().endswith('.jpg') and file[0] != '.'
    )
    classes = sorted({label for _, label, _ in images})
    domains = []
    for domain, folder in DOMAINS.items():
      own = [(classes.index(label), name) for f, label, name in images if f == folder]
      missing = sorted(set(range(len(classes))) - {c for c, _ in own})
      if missing or not own:
        what = f'{folder}/{classes[missing[0]]}' if missing and own else folder
        raise ValueError(
          f'{path} has no images in {what}; the published layout is {FOLDER}/DOMAIN/CLASS/*.jpg '
          f'with the domains {", ".join(DOMAINS.values())} and the same classes in each'
        )
      x = np.empty((len(own), SIDE, SIDE, 3), np.uint8)
      y, digests = np.array([c for c, _ in own], np.int32), []
      for row, (_, name) in enumerate(own):
        content = read(name)
        digests.append(hashlib.sha256(content).digest())
        x[row] = _pixels(name, content)
      rows, test = Split(x, y), smallest_digests(y, TEST_SHARE, digests)
      domains.append(Domain(domain, rows.take(~test), rows.take(test)))
  return domains


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[tuple[list[str], Callable[[str], bytes]]]:
  """Yields the names of the files in a folder or an archive, and what reads one."""
  if path.is_dir():
    names = [file.relative_to(path).as_posix() for file in path.glob('*/*/*')]
    yield names, lambda name: bounded.read_bytes(path / name, LARGEST)
    return
  if not path.is_file():  # a pipe may never begin
    raise ValueError(f'{path} is not a regular file')

  def read(name: str) -> bytes:
    try:
      if archive.getinfo(name).file_size > LARGEST:
        raise ValueError(f'more than {LARGEST} bytes')
      return archive.read(name)
    except Exception as error:  # encrypted, damaged, packed in an unknown way
      raise ValueError(f'{path}: {name} cannot be read: {first_line(error)}') from error

  try:
    archive = zipfile.ZipFile(path)
  except zipfile.BadZipFile as error:
    raise ValueError(f'{path} is no zip file, or a truncated one') from error
  with archive:
    yield archive.namelist(), read


def _pixels(name: str, content: bytes) -> np.ndarray:
  try:
    return read_rgb(content, SIDE)
  except ValueError as error:
    raise ValueError(f'{name} is no image that can be read') from error
