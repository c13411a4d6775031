"""Pictures of a report: montages of learned sets, and of many clients."""

import base64
import io

import numpy as np
from PIL import Image

from fedjax_syn.report import heatmaps, pictures

pytest_plugins = ['tests.run_fixtures', 'tests.report.report_runs']


def decoded(uri):
  return np.asarray(Image.open(io.BytesIO(base64.b64decode(uri.partition(',')[2]))))


def test_sets_of_large_images_are_small_files():
  """Three snapshots of noise, which has 1.6 MB as PNG files; where no image is, there is none."""
  x = np.random.default_rng(0).normal(size=(3, 60, 32, 32, 3)).astype(np.float32)
  y = np.tile(np.eye(10)[np.arange(60) % 9], (3, 1, 1))
  made = pictures.montage({'x': x, 'y': y, 'iterations': [0, 1, 2], 'mean': [0.5], 'std': [0.25]})
  assert sum(map(len, made.pictures)) <= pictures.BYTES
  opacity = decoded(made.pictures[-1])[..., 3]
  assert opacity.shape == (9 * 33, 7 * 33)
  assert (opacity[:32, :32] == 255).all() and not opacity[7 * 33 :, 6 * 33 :].any()


def test_montage():
  """Two classes of three and one image: a row each; an image keeps its place in every snapshot."""
  x = np.zeros((2, 4, 2, 2, 1), np.float32)
  x[1, 3] = 2.0  # the only image of class 1; 2 * 0.25 + 0.5 is white
  y = np.tile(np.eye(2)[[0, 0, 0, 1]], (2, 1, 1))
  learned = {'x': x, 'y': y, 'iterations': np.array([0, 6]), 'mean': [0.5], 'std': [0.25]}
  made = pictures.montage(learned)
  assert made.iterations == [0, 6] and made.classes == [0, 1] and made.columns == 3
  assert (made.width, made.height) == (9, 6)
  before, after = (decoded(uri) for uri in made.pictures)
  assert before.shape == (6, 9, 2)
  assert (before[0:2, 0:2, 0] == 128).all() and (after[3:5, 0:2, 0] == 255).all()
  assert (after[:, :, 1][3:, 3:] == 0).all()  # no image there


def test_montage_of_a_table_and_of_sequences():
  """A row is a column of its features, a sequence has a line for each channel; 0 is grey."""
  x = np.array([[[0, 2, -2], [-1, 0, 1]]], np.float32)  # one snapshot of two rows
  learned = {'y': np.eye(2)[None], 'iterations': np.array([0]), 'mean': [5, 5, 5], 'std': [9, 9, 9]}
  made = pictures.montage({'x': x, **learned})
  shown = decoded(made.pictures[0])
  assert (made.width, made.height, made.columns) == (2, 8, 1)
  most = np.quantile([0, 2, 2, 1, 0, 1], 0.99)
  grey = lambda v: (255 * np.clip(0.5 + v / (2 * most), 0, 1) + 0.5).astype(int)
  np.testing.assert_array_equal(shown[:3, 0, 0], grey(np.array([0, 2, -2])))
  np.testing.assert_array_equal(shown[4:7, 0, 0], grey(np.array([-1, 0, 1])))
  sequences = np.zeros((1, 2, 5, 3), np.float32)
  sequences[0, 1, 4, 2] = 1  # the last step of the last channel
  made = pictures.montage({'x': sequences, **learned})
  shown = decoded(made.pictures[0])
  assert (made.width, made.height) == (6, 8) and shown[6, 4, 0] == shown[:, :, 0].max() > 128


def test_of_many_clients_a_picture_shows_all_and_a_table_the_first(opened):
  counts = np.arange(100)[:, None] * np.array([1, 0])
  run = opened[1]._replace(counts=counts, stored={'dataset': {'num_classes': 2}})
  (held,) = heatmaps.partitions([run])
  assert len(held['heat'].rows) == 60 and held['drawn'] == 100
  assert held['heat'].rows[50] == ('50', [('50', '0.51'), ('', ''), ('50', '')])
  opacity = decoded(held['picture'])[..., 3]
  assert opacity.shape == (2, 100) and opacity[0, 99] == 255 and not opacity[1].any()
  assert opacity[0, 33] == 85  # a third of the most
