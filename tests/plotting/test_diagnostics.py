"""Figures of the diagnostics: what is drawn where, and pictures with something in them."""

import numpy as np
import pytest

from fedjax_syn.algorithms.dynafed.client_losses import RoundLosses
from fedjax_syn.algorithms.dynafed.gradient_error import GradientErrors, Line
from fedjax_syn.algorithms.dynafed.scratch import Scratch
from fedjax_syn.plotting import diagnostics
from tests.plotting.test_figures import assert_picture


def curve(axes, label):
  (line,) = [line for line in axes.lines if line.get_label() == label]
  return np.array(line.get_data())


def test_gradient_error_draws_the_line_above_its_points(tmp_path):
  errors = GradientErrors(np.array([1.0, 2.0]), np.array([1.0, 1.5]), np.array([0.2, np.nan]))
  lines = {'synthetic': Line(1.0, 1.5, 0.5, 0.5)}
  path = tmp_path / 'g.png'
  figure = diagnostics.gradient_error({'synthetic': errors}, lines, [0, 5], path, 'digits')
  assert_picture(path)
  left, right = figure.axes
  np.testing.assert_array_equal(curve(left, 'synthetic: 0.50 r + 0.5'), [[0, 2], [0.5, 1.5]])
  np.testing.assert_array_equal(curve(right, 'synthetic'), [[0, 5], [0.2, np.nan]])


def test_privacy_draws_shares(tmp_path):
  """Each kind's bars add up to 100 %, for any number of images; distances of 0 work too."""
  distances = {'synthetic': np.zeros(3), 'held out': np.linspace(1, 2, 50)}
  figure = diagnostics.privacy(distances, 1.05, tmp_path / 'p.png', 'digits')
  assert_picture(tmp_path / 'p.png')
  assert sum(bar.get_height() for bar in figure.axes[0].patches) == pytest.approx(200)
  diagnostics.privacy({'synthetic': np.zeros(3)}, 0.0, tmp_path / 'q.png')
  assert_picture(tmp_path / 'q.png')


def test_client_losses_end_local_training_at_one_and_fine_tuning_at_two(tmp_path):
  """Clients 7 and 2 took part; 2, in the second row, is done after two of four steps."""
  losses = RoundLosses(
    at=np.array([0, 2, 4]),
    steps=np.array([4, 2]),
    local=np.array([[3.0, 2.0, 1.0], [5.0, 4.0, 4.0]]),
    tuned=np.arange(1.0, 25).reshape(3, 8),
    mean=np.array([9.0, 8.0, 7.0]),
    params={},
  )
  path = tmp_path / 'c.png'
  figure = diagnostics.client_losses(losses, [7, 2], [2], path, 'digits')
  assert_picture(path)
  axes = figure.axes[0]
  np.testing.assert_array_equal(curve(axes, 'client 2'), [[0, 1, 1], [5, 4, 4]])
  np.testing.assert_array_equal(curve(axes, 'mean over all data'), [[1, 1.5, 2], [9, 8, 7]])
  others = [list(line.get_ydata()) for line in axes.lines]
  assert [4, 3] in others and [3, 11, 19] in others  # the jump at the mean, then the global model
  assert axes.get_yscale() == 'log'


def test_from_scratch(tmp_path):
  run = Scratch(np.array([0, 10]), np.array([0.1, 0.6]), None)
  figure = diagnostics.from_scratch({'synthetic': run}, tmp_path / 's.png', 'digits', 0.8)
  assert_picture(tmp_path / 's.png')
  np.testing.assert_array_equal(curve(figure.axes[0], 'synthetic'), [[0, 10], [10, 60]])
  assert curve(figure.axes[0], 'the federated model')[1].tolist() == [80, 80]
