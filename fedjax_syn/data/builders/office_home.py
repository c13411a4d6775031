"""Office-Home (Venkateswara et al., 2017): 15,588 images of 65 things in four domains.

The published archive OfficeHomeDataset_10072016.zip holds
OfficeHomeDataset_10072016/DOMAIN/CLASS/*.jpg, with the domains Art (2,427), Clipart (4,365),
Product (4,439) and Real World (4,357). There is no official split, and FedDualMatch does not state
one: a fifth of every class of every domain is tested on, those with the smallest SHA-256 of the
file, so that the split is the same everywhere.
"""

import hashlib
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from fedjax_syn.core.texts import first_line
from fedjax_syn.data.builders import bounded, pixels
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
LARGEST = 1 << 26  # bytes of a published image, far below


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
  files = sorted(_files(path))
  classes = sorted({label for _, label, _ in files})
  domains = []
  for name, folder in DOMAINS.items():
    own = [(label, file) for domain, label, file in files if domain == folder]
    missing = sorted(set(classes) - {label for label, _ in own})
    if missing or not own:
      what = f'{folder}/{missing[0]}' if missing and own else folder
      raise ValueError(
        f'{path} has no images in {what}; the published layout is {FOLDER}/DOMAIN/CLASS/*.jpg with '
        f'the domains {", ".join(DOMAINS.values())} and the same classes in each'
      )
    x = np.empty((len(own), SIDE, SIDE, 3), np.uint8)
    y = np.array([classes.index(label) for label, _ in own], np.int32)
    digests = []
    for row, content in enumerate(_contents(path, [file for _, file in own])):
      digests.append(hashlib.sha256(content).digest())
      x[row] = _pixels(own[row][1], content)
    test = smallest_digests(y, TEST_SHARE, digests)
    domains.append(Domain(name, Split(x[~test], y[~test]), Split(x[test], y[test])))
  return domains


def _files(path: Path) -> Iterator[tuple[str, str, str]]:
  """Yields domain folder, class and path of every image."""
  if path.is_dir():
    names = [file.relative_to(path).as_posix() for file in path.glob('*/*/*')]
  else:
    with _opened(path) as archive:
      names = archive.namelist()
  for name in names:
    folder, label, file = ['', '', *name.split('/')][-3:]
    # Files that begin with a dot are what some packers write about a file beside it.
    if folder in DOMAINS.values() and file.lower().endswith('.jpg') and not file.startswith('.'):
      yield folder, label, name


def _contents(path: Path, names: list[str]) -> Iterator[bytes]:
  if path.is_dir():
    for name in names:
      yield bounded.read_bytes(path / name, LARGEST)
    return
  with _opened(path) as archive:
    for name in names:
      try:
        if archive.getinfo(name).file_size > LARGEST:
          raise ValueError(f'more than {LARGEST} bytes')
        yield archive.read(name)
      except Exception as error:  # encrypted, damaged, packed in an unknown way
        raise ValueError(f'{path}: {name} cannot be read: {first_line(error)}') from error


def _opened(path: Path) -> zipfile.ZipFile:
  if not path.is_file():  # a pipe would be waited for
    raise ValueError(f'{path} is no regular file')
  try:
    return zipfile.ZipFile(path)
  except zipfile.BadZipFile as error:
    raise ValueError(f'{path} is no zip file, or a truncated one') from error


def _pixels(name: str, content: bytes) -> np.ndarray:
  try:
    with pixels.open_image(io.BytesIO(content)) as image:
      return np.asarray(pixels.to_rgb(image).resize((SIDE, SIDE), Image.Resampling.BILINEAR))
  except ValueError as error:
    raise ValueError(f'{name} is no image that can be read') from error
