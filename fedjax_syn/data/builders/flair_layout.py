"""FLAIR as it is published: names of files, sides, classes, and what a record holds."""

from typing import NamedTuple

import numpy as np

CLASSES = (
  'animal',
  'art',
  'celebration',
  'equipment',
  'fire',
  'food',
  'games',
  'interior_room',
  'light',
  'liquid',
  'material',
  'music',
  'outdoor',
  'plant',
  'recreation',
  'religion',
  'structure',
)
SPLITS = ('train', 'val', 'test')
NAME = 'flair'  # of the builder, whatever the side
METADATA, IMAGES, INFO = 'labels_and_metadata.json', 'small_images', 'info.json'
VERSION = '1.0.0'  # of what is written here
SIDE = 256  # of the published images, in pixels
BATCH = 1024  # images decoded side by side


class Row(NamedTuple):
  """One record."""

  image: bytes  # JPEG
  labels: np.ndarray  # int32 [labels of this image]
  image_id: str
  user_id: str
