"""Writes a folder of arrays (docs/data.md) from images that one npz file holds as JPEG.

python -m tools.jpeg_copy FILE FOLDER [--title=TEXT] [--constants=NAME]

FILE         with train_blob, train_off and train_y, and the same of test: image i is the JPEG file
             blob[off[i]:off[i + 1]]
FOLDER       gets train.npz, test.npz and meta.json
--title      of the data; CIFAR-10 (JPEG copy)
--constants  the name of known constants of the pixels; cifar10
"""

import io
import json
import pathlib
import sys
from collections.abc import Mapping, Sequence

import numpy as np
from absl import app, flags
from PIL import Image

TITLE = flags.DEFINE_string('title', 'CIFAR-10 (JPEG copy)', 'of the data')
CONSTANTS = flags.DEFINE_string('constants', 'cifar10', 'the name of known constants')


def images(packed: Mapping[str, np.ndarray], split: str) -> np.ndarray:
  """Returns the images of a split, uint8 [n, height, width, 3]."""
  blob, offsets = packed[f'{split}_blob'].tobytes(), packed[f'{split}_off']
  files = (blob[a:b] for a, b in zip(offsets[:-1], offsets[1:], strict=True))
  return np.stack([np.asarray(Image.open(io.BytesIO(file)).convert('RGB')) for file in files])


def write(file: pathlib.Path, folder: pathlib.Path, title: str, constants: str) -> None:
  """Writes train.npz, test.npz and meta.json."""
  folder.mkdir(parents=True, exist_ok=True)
  with np.load(file, allow_pickle=False) as packed:
    arrays = {name: packed[name] for name in packed.files}
  for split in ('train', 'test'):
    y = arrays[f'{split}_y'].astype(np.int32)
    np.savez(folder / f'{split}.npz', x=images(arrays, split), y=y)
  meta = {'name': title, 'normalisation': constants}
  (folder / 'meta.json').write_text(json.dumps(meta))


def main(argv: Sequence[str]) -> int:
  """Writes one folder."""
  file, folder = map(pathlib.Path, argv[1:])
  write(file, folder, TITLE.value, CONSTANTS.value)
  return 0


if __name__ == '__main__':
  sys.exit(app.run(main))
