"""Images packed as JPEG files become a folder of arrays that the library reads."""

import io

import numpy as np
from PIL import Image

from fedjax_syn.data import datasets
from tools import jpeg_copy


def packed(colours, rng):
  """JPEG files of images of one colour each, end to end."""
  files = []
  for colour in colours:
    x = np.clip(np.full((8, 8, 3), colour) + rng.integers(-1, 2, (8, 8, 1)), 0, 255)
    out = io.BytesIO()
    Image.fromarray(x.astype(np.uint8)).save(out, 'JPEG', quality=95)
    files.append(out.getvalue())
  blob = np.frombuffer(b''.join(files), np.uint8)
  return blob, np.cumsum([0, *map(len, files)])


def test_a_folder_of_arrays(tmp_path):
  rng, colours = np.random.default_rng(0), [(250, 0, 0), (0, 200, 0), (0, 0, 150), (90, 90, 90)]
  arrays = {}
  for split in ('train', 'test'):
    arrays[f'{split}_blob'], arrays[f'{split}_off'] = packed(colours, rng)
    arrays[f'{split}_y'] = np.arange(4, dtype=np.uint8)
  np.savez(tmp_path / 'packed.npz', **arrays)
  jpeg_copy.write(tmp_path / 'packed.npz', tmp_path / 'out', 'Four colours', 'cifar10')
  data = datasets.load('arrays', str(tmp_path / 'out'))
  assert data.title == 'Four colours' and data.train.x.shape == (4, 8, 8, 3)
  np.testing.assert_array_equal(data.train.y, np.arange(4))
  assert np.abs(data.train.x.astype(int) - np.array(colours)[:, None, None]).max() < 12
