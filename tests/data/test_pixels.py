"""Image files: every mode is read by its own range, upright, and no format starts a program."""

import io
import struct

import numpy as np
import pytest
from PIL import Image

from fedjax_syn.data import datasets
from fedjax_syn.data.builders import pixels
from tests.data.image_bytes import (
  COLOUR,
  GREY,
  POSTSCRIPT,
  pfm,
  pgm,
  png,
  qoi,
  saved,
  tiff,
  turned,
  with_xmp,
)

WIDE = GREY.astype(np.uint16) * 257  # 255 is 65535
CLEAR = np.arange(24).reshape(4, 6) % 2 == 0
ALPHA = np.where(CLEAR, 0, 255).astype(np.uint8)
GREY_ALPHA = np.stack([GREY, ALPHA], -1)
COLOUR_ALPHA = np.concatenate([COLOUR, ALPHA[..., None]], -1)
ON_WHITE = np.where(CLEAR, 255, GREY)
HALF = np.array([[[100, 0, 255, 51]]], np.uint8)  # a fifth of the colour, four fifths of white
PALETTE = Image.fromarray(COLOUR).quantize(8)
FIRST = int(np.asarray(PALETTE)[0, 0])


def read(*contents):
  with_bits = []
  for content in contents:
    assert pixels._SIGNATURE.match(content)
    with pixels.open_image(io.BytesIO(content)) as image:
      with_bits.append(pixels.decode(image))
  x, notes = pixels.join(with_bits)
  return x, ' '.join(notes)


@pytest.mark.parametrize(
  'content, wanted',
  [
    (saved(GREY, 'PNG'), GREY),
    (saved(GREY > 127, 'PNG'), 255 * (GREY > 127)),
    (saved(GREY > 127, 'TIFF'), 255 * (GREY > 127)),
    (saved(WIDE, 'PNG'), GREY),
    (saved(WIDE, 'TIFF', compression='tiff_lzw'), GREY),
    (pgm(WIDE), GREY),
    (saved(WIDE, 'JPEG2000'), GREY),
    (tiff(WIDE, big=True), GREY),
    (tiff(65535 - WIDE, photometric=0), GREY),  # white is zero
    (tiff(255 - GREY, photometric=0), GREY),
    (saved(np.float32(GREY / 255), 'TIFF'), GREY),
    (tiff(np.float32(1 - GREY / 255), photometric=0, sample_format=3), GREY),
    (pfm(GREY / 255), GREY),
    (saved(WIDE.astype(np.int32), 'TIFF'), GREY),  # 32 bits, of which 16 are used
    (b'P2 3 1 15\n0 8 15\n', [[0, 136, 255]]),
    (b'P2 3 1 4095\n0 2048 4095\n', [[0, 128, 255]]),
    (b'P6 1 1 4095\n\0\0\x08\0\x0f\xff', [[[0, 128, 255]]]),
    (saved(GREY_ALPHA, 'PNG'), ON_WHITE),
    (saved(GREY_ALPHA, 'TIFF'), ON_WHITE),
    (png(GREY_ALPHA.astype(np.uint16) * 257, 4), ON_WHITE),
    (saved(GREY, 'PNG', transparency=int(GREY[0, 0])), np.where(GREY[0, 0] == GREY, 255, GREY)),
    (saved(GREY > 300, 'PNG', transparency=0), np.full(GREY.shape, 255)),
    (saved(COLOUR, 'PNG'), COLOUR),
    (qoi(COLOUR), COLOUR),
    (saved(COLOUR_ALPHA, 'PNG'), np.where(CLEAR[..., None], 255, COLOUR)),
    (saved(COLOUR_ALPHA, 'WEBP', lossless=True), np.where(CLEAR[..., None], 255, COLOUR)),
    (saved(HALF, 'PNG'), [[[224, 204, 255]]]),
    (saved(Image.fromarray(GREY).convert('P'), 'PNG'), GREY),  # a palette of greys is grey
    (saved(Image.fromarray(GREY).convert('P'), 'GIF'), GREY),
    (saved(PALETTE, 'PNG'), np.asarray(PALETTE.convert('RGB'))),
    (
      saved(PALETTE, 'PNG', transparency=FIRST),
      np.where(np.asarray(PALETTE)[..., None] == FIRST, 255, np.asarray(PALETTE.convert('RGB'))),
    ),
    (png(COLOUR.astype(np.uint16) * 257, 2), COLOUR),
    (tiff(COLOUR.astype(np.uint16) * 257, photometric=2), COLOUR),
    (saved(Image.fromarray(COLOUR).convert('CMYK'), 'TIFF'), COLOUR),  # no black: 255 - ink
  ],
  ids=lambda value: type(value).__name__,
)
def test_values_by_the_range_of_their_type(content, wanted):
  wanted = np.asarray(wanted)
  x, _ = read(content)
  assert (
    x.dtype == np.uint8 and x.shape == (1, *wanted.shape, 1)[: wanted.ndim + 1 + (wanted.ndim == 2)]
  )
  np.testing.assert_array_equal(x.reshape(wanted.shape), wanted)


@pytest.mark.parametrize(
  'content, words',
  [
    (saved(np.float32(GREY), 'TIFF'), 'float32 10..248; floats must lie in 0..1'),
    (saved(np.full((2, 2), np.nan, np.float32), 'TIFF'), 'nan'),
    (saved(np.int32(GREY) - 20, 'TIFF'), '-10..228 have no range'),
    (saved(np.int32(GREY) * 1000, 'TIFF'), '10000..248000 have no range'),
    (tiff(np.int16(GREY) - 20, sample_format=2), '-10..228 have no range'),
    (tiff(GREY, sample_format=2), 'signed 8-bit'),
    (tiff(np.float64(GREY / 255), sample_format=3), 'not a whole image'),
    (png(WIDE, 0, clear=int(WIDE[0, 0])), 'a transparent value among 16 bits'),
    (png(COLOUR.astype(np.uint16) * 16, 2), '16-bit colours use 12 bits at most'),
    (saved((WIDE > 0).astype(np.uint16), 'PNG'), '0 and 1 alone'),
    (saved(Image.frombytes('LAB', (6, 4), COLOUR.tobytes()), 'TIFF'), 'LAB'),
  ],
  ids=lambda value: type(value).__name__,
)
def test_values_without_a_range_are_refused(content, words):
  with pytest.raises(ValueError, match=words):
    read(content)


def test_wide_values_of_a_set_are_scaled_by_one_range():
  """Twelve bits in all of them: 4080 of 4095 is 254, 16 is 1; the dark picture stays dark."""
  dark = np.full((4, 6), 16, np.uint16)
  x, notes = read(saved(GREY.astype(np.uint16) * 16, 'PNG'), saved(dark, 'PNG'), saved(GREY, 'PNG'))
  np.testing.assert_array_equal(x[0, ..., 0], np.rint(GREY * 16.0 * 255 / 4095))
  assert (x[1] == 1).all()
  np.testing.assert_array_equal(x[2, ..., 0], GREY)
  assert notes == f'scaled from 12 bits, as the largest value is {16 * int(GREY.max())}: 2 images'
  x, notes = read(saved(GREY.astype(np.uint16), 'PNG'), saved(WIDE, 'PNG'))
  np.testing.assert_array_equal(x[0, ..., 0], np.rint(GREY / 257))
  assert notes == 'scaled from 16 bits: 2 images'


def test_a_dark_image_of_floats_is_dark_among_others():
  """0.003 of 1 is 1 of 255; a whole set as dark would have been divided by 255 twice."""
  dark = saved(np.full((2, 2), 0.003, np.float32), 'TIFF')
  x, _ = read(dark, saved(np.ones((2, 2), np.float32), 'TIFF'))
  assert (x[0] == 1).all() and (x[1] == 255).all()


def test_resizing_wide_values_does_not_leave_their_range():
  """Bicubic interpolation overshoots at an edge; nothing wraps round."""
  edge = np.zeros((4, 4), np.uint16)
  edge[:, 2:] = 4095
  with pixels.open_image(io.BytesIO(saved(edge, 'PNG'))) as image:
    x, _ = pixels.join([pixels.decode(image, size=9)])
  with pixels.open_image(io.BytesIO(saved(np.uint8(edge // 16), 'PNG'))) as image:
    eight = pixels.decode(image, size=9).array
  assert abs(x[0].astype(int) - eight).max() <= 1 and set(x[0, :, 0].ravel()) == {0}


def test_grey_and_colour_share_three_channels():
  x, _ = read(saved(WIDE, 'PNG'), saved(COLOUR, 'PNG'))
  np.testing.assert_array_equal(x, np.stack([np.repeat(GREY[..., None], 3, -1), COLOUR]))


UPRIGHT = {  # orientation: what the stored rows and columns are
  2: lambda a: a[:, ::-1],
  3: lambda a: a[::-1, ::-1],
  4: lambda a: a[::-1],
  5: lambda a: a.T,
  6: lambda a: a.T[:, ::-1],
  7: lambda a: a[::-1, ::-1].T,
  8: lambda a: a.T[::-1],
}


@pytest.mark.parametrize('orientation', range(1, 10))
@pytest.mark.parametrize('kind', ['PNG', 'TIFF', 'wide PNG'])
def test_orientation(kind, orientation):
  values, kind = (WIDE, 'PNG') if kind == 'wide PNG' else (GREY, kind)
  x, notes = read(turned(values, kind, orientation))
  np.testing.assert_array_equal(x[0, ..., 0], UPRIGHT.get(orientation, lambda a: a)(GREY))
  assert ('turned upright by EXIF' in notes) == (orientation in UPRIGHT)


def test_orientation_where_it_is_said_otherwise():
  wanted = UPRIGHT[6](GREY)
  x, _ = read(turned(COLOUR, 'JPEG', 6, quality=100, subsampling=0))
  assert (
    abs(x[0].astype(int) - np.stack([UPRIGHT[6](c) for c in np.moveaxis(COLOUR, -1, 0)], -1)).max()
    <= 3
  )
  xmp = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><r tiff:Orientation="6"/></x:xmpmeta>'
  x, notes = read(with_xmp(saved(GREY, 'JPEG', quality=100), xmp))
  assert abs(x[0, ..., 0].astype(int) - wanted).max() <= 1 and 'upright' in notes
  x, notes = read(saved(GREY, 'JPEG', quality=100, exif=b'Exif\0\0no tags at all'))
  assert abs(x[0, ..., 0].astype(int) - GREY).max() <= 1 and not notes


def test_damaged_tags_are_said_or_refused():
  """A photograph with damaged tags is read, and a line says that something is missing.

  A TIFF is refused, since its tags say what its pixels are.
  """
  cut = b'Exif\0\0MM\0*\0\0\0\x08\0\2\x01\x0e\0\2\0\0\xff\0\0\0\0\x10'
  x, notes = read(saved(GREY, 'JPEG', quality=100, exif=cut))
  assert (
    abs(x[0, ..., 0].astype(int) - GREY).max() <= 1
    and notes == 'damaged EXIF, in part ignored: 1 image'
  )
  content = bytearray(tiff(COLOUR, photometric=2))
  place = content.index(
    struct.pack('<HHI', 339, 3, 3)
  )  # signed, unsigned or floats: without it, unsigned
  content[place + 4 : place + 8] = b'\xff\xff\0\0'
  with pytest.raises(ValueError, match='damaged tags: .*339'):
    read(bytes(content))


@pytest.mark.parametrize('kind', ['GIF', 'TIFF', 'PNG', 'WEBP'])
def test_the_first_frame_is_taken_and_said(kind):
  frames = [Image.fromarray(COLOUR // 64 * 64), Image.fromarray(255 - COLOUR)]
  lossless = {'lossless': True} if kind == 'WEBP' else {}
  x, notes = read(saved(frames[0], kind, save_all=True, append_images=frames[1:], **lossless))
  np.testing.assert_array_equal(x[0], COLOUR // 64 * 64)
  assert notes == 'the first of several frames taken: 1 image'


def test_postscript_starts_nothing(tmp_path, monkeypatch):
  """Pillow would start Ghostscript for it, whatever the file is called."""
  monkeypatch.setattr('subprocess.Popen', lambda *_, **__: pytest.fail('a program was started'))
  monkeypatch.setattr('PIL.EpsImagePlugin.Ghostscript', lambda *_, **__: pytest.fail('Ghostscript'))
  path = tmp_path / 'a.png'
  path.write_bytes(POSTSCRIPT)
  assert not pixels.is_image(path)
  with pytest.raises(ValueError, match='not a whole image'), pixels.open_image(path) as image:
    image.load()
  for name in ('ann/cat/1.png', 'ann/dog/1.png'):
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_bytes(POSTSCRIPT)
  path.unlink()
  with pytest.raises(ValueError, match='ann/cat/1.png cannot be read .not a whole image of PNG'):
    datasets.load('folder', str(tmp_path))
  for kind in ('EPS', 'WMF', 'PSD', 'FITS', 'TGA'):  # programs, stubs, and what has no signature
    assert kind not in pixels.FORMATS


@pytest.mark.parametrize(
  'start',
  [b'', b'Python', b'P5 is a paper size', b'P1 2023 at sea', b'BMW and BMX', b'GIF', b'\0' * 40],
)
def test_what_is_no_image(start, tmp_path):
  (tmp_path / 'a.png').write_bytes(start)
  assert not pixels.is_image(tmp_path / 'a.png')


@pytest.mark.parametrize(
  'kind', ['PNG', 'JPEG', 'TIFF', 'BMP', 'GIF', 'PPM', 'WEBP', 'JPEG2000', 'QOI']
)
def test_half_an_image_is_refused(kind):
  values = np.random.default_rng(1).integers(0, 256, (32, 32, 3), np.uint8)
  content = qoi(values) if kind == 'QOI' else saved(values, kind)
  assert read(content)[0].shape == (1, 32, 32, 3)
  with pytest.raises(ValueError):
    read(content[: len(content) * 3 // 4])


def test_a_folder_of_wide_images_is_that_of_narrow_ones(tmp_path):
  """One channel, one range for training and test rows, and the same pixels."""
  for kind, values in (('wide', WIDE), ('narrow', GREY)):
    for i in range(10):
      path = tmp_path / kind / ('test' if i < 4 else 'ann') / ('cat', 'dog')[i % 2] / f'{i}.png'
      path.parent.mkdir(parents=True, exist_ok=True)
      path.write_bytes(
        saved(values // (i + 1), 'PNG')
        if kind == 'narrow'
        else saved(GREY // (i + 1) * np.uint16(257), 'PNG')
      )
  wide, narrow = (datasets.load('folder', str(tmp_path / kind)) for kind in ('wide', 'narrow'))
  assert wide.shape == (4, 6, 1) and wide.checksum == narrow.checksum
  assert 'scaled from 16 bits: 10 images' in wide.notes and not any(
    'bits' in n for n in narrow.notes
  )


def test_damage_is_one_line_or_another_picture():
  """Random changes of bytes give an image or a ValueError of one line.

  The changes are near the beginning, where formats say what follows.
  """
  rng = np.random.default_rng(2)
  square = np.random.default_rng(1).integers(0, 256, (16, 16, 3), np.uint8)
  kinds = ['PNG', 'JPEG', 'TIFF', 'BMP', 'GIF', 'PPM', 'WEBP', 'JPEG2000']
  contents = [saved(square, kind) for kind in kinds] + [
    turned(square, 'JPEG', 6),
    tiff(WIDE),
    pfm(GREY / 255),
  ]
  refused = 0
  for content in contents:
    for _ in range(25):
      damaged = bytearray(content)
      for place in rng.integers(0, min(len(content), 200), rng.integers(1, 5)):
        damaged[place] = rng.integers(256)
      try:
        with pixels.open_image(io.BytesIO(damaged[: rng.integers(1, 4 * len(damaged))])) as image:
          x, _ = pixels.join([pixels.decode(image, 8)])
        assert x.shape[:3] == (1, 8, 8)
      except ValueError as error:
        refused += 1
        assert '\n' not in str(error) and str(error)
  assert refused > len(contents) * 10
