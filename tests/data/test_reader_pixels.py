"""Every reader of a published set reads images as folders do, and starts no program."""

import zipfile

import numpy as np
import pytest
from scipy.io import savemat

from fedjax_syn.data.builders import archive_formats, digit_five, office_home, pixels
from tests.data.image_bytes import POSTSCRIPT, saved, turned

X = np.random.default_rng(0).integers(0, 256, (32, 32, 3), np.uint8)
SMOOTH = np.kron(np.arange(0, 256, 4, dtype=np.uint8).reshape(8, 8), np.ones((8, 8), np.uint8))
READERS = {
  'cinic': lambda content: np.frombuffer(
    archive_formats._cinic_pixels('a.png', content), np.uint8
  ).reshape(32, 32, 3),
  'office_home': lambda content: office_home._pixels('a.jpg', content),
  'flair': lambda content: pixels.read_rgb(content, 64, ('JPEG',), draft=True),
}


@pytest.mark.parametrize('name', READERS)
def test_images_are_turned_upright(name):
  """Stored upside down with EXIF's 3, which says so."""
  kind, values = ('PNG', X) if name == 'cinic' else ('JPEG', SMOOTH)
  upright = READERS[name](saved(values, kind))
  found = READERS[name](turned(values[::-1, ::-1], kind, 3))
  assert upright.shape[-1] == 3 and abs(found.astype(int) - upright).max() <= 2
  assert abs(found.astype(int) - upright[::-1, ::-1]).max() > 100


def test_wide_and_transparent_images_of_published_sets():
  """16 bits by their range, and what is clear is white: both were cut off or black."""
  wide = SMOOTH[:32, :32].astype(np.uint16) * 257
  np.testing.assert_array_equal(
    READERS['cinic'](saved(wide, 'PNG')), np.repeat(SMOOTH[:32, :32, None], 3, -1)
  )
  clear = np.concatenate([X, np.zeros((32, 32, 1), np.uint8)], -1)
  assert (READERS['office_home'](saved(clear, 'PNG')) == 255).all()


@pytest.mark.parametrize('name', READERS)
def test_postscript_starts_nothing(name, monkeypatch):
  monkeypatch.setattr('PIL.EpsImagePlugin.Ghostscript', lambda *_, **__: pytest.fail('Ghostscript'))
  with pytest.raises(ValueError):
    READERS[name](POSTSCRIPT)


def test_names_in_an_archive_lead_nowhere(tmp_path, monkeypatch):
  """Office-Home's archive is read in memory, so no member is written, whatever its name."""
  monkeypatch.chdir(tmp_path)
  path = tmp_path / 'a.zip'
  with zipfile.ZipFile(path, 'w') as archive:
    for folder in office_home.DOMAINS.values():
      for i in range(5):
        for place in ('../../../x/', '/x/'):
          archive.writestr(f'{place}{folder}/cup/{i}.jpg', saved(SMOOTH + i, 'JPEG'))
  domains = office_home.parse(path)
  assert [len(domain.train.y) + len(domain.test.y) for domain in domains] == [10] * 4
  assert [file.name for file in tmp_path.rglob('*')] == ['a.zip'] and not (
    tmp_path.parent / 'x'
  ).exists()


@pytest.mark.parametrize(
  'pixels, wanted',
  [
    (X / 255, X),
    (X * 1.0, X),
    (X.astype(np.int16), X),
    (X / 127.5 - 1, 'floats must lie in 0..1'),
    (X.astype(np.uint16) * 257, X),
    (X * 2.0, 'float64 0..510'),
    (np.where(X > 9, np.nan, 0.0), 'nan'),
  ],
  ids=lambda value: str(value)[:20],
)
def test_matlab_pixels_keep_their_meaning(tmp_path, pixels, wanted):
  """They were clipped to 0..255, and what is not a number was 0."""
  path = tmp_path / 'syn_number.mat'
  names = {f'{split}_{kind}' for split in ('train', 'test') for kind in ('data', 'label')}
  savemat(path, {name: pixels[None] if 'data' in name else np.zeros((1, 1)) for name in names})
  read = lambda: digit_five._read('synth_digits', 0, path, ['train_data', 'train_label'])
  if isinstance(wanted, str):
    with pytest.raises(ValueError, match=f'syn_number.mat: .*{wanted}'):
      read()
  else:
    np.testing.assert_array_equal(read().x[0], wanted)
