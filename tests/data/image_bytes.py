"""Image files written by hand, with tags that Pillow does not write."""

import io
import struct
import zlib

import numpy as np
from PIL import Image


def saved(image, kind, **options) -> bytes:
  """An image as Pillow writes it."""
  if not isinstance(image, Image.Image):
    image = Image.fromarray(image)
  buffer = io.BytesIO()
  image.save(buffer, kind, **options)
  return buffer.getvalue()


def turned(image, kind, orientation, **options) -> bytes:
  """An image with an orientation in its EXIF."""
  exif = Image.Exif()
  exif[274] = orientation
  return saved(image, kind, exif=exif if kind == 'TIFF' else exif.tobytes(), **options)


def tiff(values, photometric=1, sample_format=1, big=False) -> bytes:
  """A TIFF of one uncompressed strip, samples as the array has them."""
  order = '>' if big else '<'
  height, width, samples = (*values.shape, 1)[:3]
  data = values.astype(values.dtype.newbyteorder(order)).tobytes()
  many = lambda value: [value] * samples
  tags = {
    256: (4, [width]),
    257: (4, [height]),
    258: (3, many(8 * values.dtype.itemsize)),
    259: (3, [1]),
    262: (3, [photometric]),
    273: (4, [0]),
    277: (3, [samples]),
    278: (4, [height]),
    279: (4, [len(data)]),
    339: (3, many(sample_format)),
  }
  start, more = 8 + 2 + 12 * len(tags) + 4, b''
  packed = {}
  for tag, (kind, numbers) in tags.items():
    raw = b''.join(struct.pack(order + ('H' if kind == 3 else 'I'), n) for n in numbers)
    if len(raw) > 4:
      raw, more = struct.pack(order + 'I', start + len(more)), more + raw
    packed[tag] = kind, len(numbers), raw.ljust(4, b'\0')
  packed[273] = 4, 1, struct.pack(order + 'I', start + len(more))
  entries = b''.join(struct.pack(order + 'HHI', t, k, n) + raw for t, (k, n, raw) in packed.items())
  head = (b'MM\0*' if big else b'II*\0') + struct.pack(order + 'IH', 8, len(tags))
  return head + entries + bytes(4) + more + data


def png(values, color, clear=None) -> bytes:
  """Returns a PNG of 16 bits per channel; `clear` may name a grey value that is transparent.

  `color` 0 is grey, 2 is RGB, 4 is grey with alpha.
  """

  def chunk(kind, data):
    return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))

  height, width = values.shape[:2]
  rows = b''.join(b'\0' + row.astype('>u2').tobytes() for row in values)
  header = struct.pack('>IIBBBBB', width, height, 16, color, 0, 0, 0)
  extra = [] if clear is None else [(b'tRNS', struct.pack('>H', clear))]
  parts = (b'IHDR', header), *extra, (b'IDAT', zlib.compress(rows)), (b'IEND', b'')
  return b'\x89PNG\r\n\x1a\n' + b''.join(chunk(*part) for part in parts)


def qoi(values) -> bytes:
  """A QOI file in which every pixel is written out."""
  height, width, channels = values.shape
  pixels = b''.join(b'\xfe' + pixel.tobytes() for pixel in values.reshape(-1, channels))
  return b'qoif' + struct.pack('>IIBB', width, height, channels, 0) + pixels + bytes(7) + b'\1'


def pgm(values) -> bytes:
  """A PGM of 16 bits."""
  return b'P5\n%d %d\n65535\n' % values.shape[::-1] + values.astype('>u2').tobytes()


def pfm(values) -> bytes:
  """A PFM: floats, the last row first."""
  return b'Pf\n%d %d\n-1.0\n' % values.shape[::-1] + values[::-1].astype('<f4').tobytes()


def with_xmp(jpeg, xmp) -> bytes:
  """A JPEG with a segment of XMP."""
  body = b'http://ns.adobe.com/xap/1.0/\0' + xmp
  return jpeg[:2] + b'\xff\xe1' + struct.pack('>H', len(body) + 2) + body + jpeg[2:]


RNG = np.random.default_rng(0)
GREY = RNG.integers(0, 256, (4, 6), np.uint8)
COLOUR = RNG.integers(0, 256, (4, 6, 3), np.uint8)
# What Pillow hands to Ghostscript, whatever the file is called.
POSTSCRIPT = b'%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 6 4\n%%EndComments\nshowpage\n'
