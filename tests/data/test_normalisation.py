"""The papers' constants, and those computed from the training rows."""

import numpy as np
import pytest

from fedjax_syn.data import datasets
from fedjax_syn.data.builders.sources import SOURCES
from fedjax_syn.data.normalisation import NORMALISATIONS, measure
from tests.data import fakes


@pytest.mark.parametrize(
  'name, mean, std',
  [
    ('mnist', (0.1307,), (0.3081,)),
    ('cifar10', (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    ('cifar100', (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    ('cinic10', (0.4789, 0.4723, 0.4305), (0.2421, 0.2383, 0.2587)),
    ('half', (0.5,), (0.5,)),
    ('unit', (0.0,), (1.0,)),
  ],
)
def test_the_papers_constants(name, mean, std):
  """The constants are those of METHODS.

  DynaFed 1.2 gives CIFAR, CINIC-10 and MNIST's for Fashion-MNIST; FedCOG 3.3 gives 0.5 for
  CIFAR-100.
  """
  assert NORMALISATIONS[name] == (name, mean, std)


def test_defaults():
  """DynaFed normalises CIFAR-100 with CIFAR-10's constants, Fashion-MNIST with MNIST's."""
  expected = {
    'mnist': 'mnist',
    'fashion_mnist': 'mnist',
    'cifar10': 'cifar10',
    'cifar100': 'cifar10',
    'cinic10': 'cinic10',
    'usps': 'auto',
  }
  assert {name: source.normalisation for name, source in SOURCES.items()} == expected
  assert datasets.load('digits').normalisation.name == 'digits'


def test_digits_constants_are_those_of_the_training_rows():
  digits = datasets.load('digits')
  values = digits.train.x.astype(np.float64) / 255
  np.testing.assert_allclose(digits.normalisation.mean, values.mean(), atol=5e-5)
  np.testing.assert_allclose(digits.normalisation.std, values.std(), atol=5e-5)


def test_auto_by_hand():
  """Channel 0 holds 0, 255: mean 1/2, std 1/2. Channel 1 holds 51, 153: 0.2, 0.6: 0.4 and 0.2."""
  x = np.array([[[[0, 51]]], [[[255, 153]]]], np.uint8)
  found = measure(x)
  np.testing.assert_allclose([found.mean, found.std], [[0.5, 0.4], [0.5, 0.2]], rtol=1e-12)


def test_auto_is_computed_from_the_rows_left_for_training(tmp_path):
  fakes.write_arrays(tmp_path, fakes.arrays(1))
  for chosen in ('', 'auto'):
    data = datasets.load('arrays', str(tmp_path), validation=0.5, normalisation=chosen)
    values = data.train.x / 255
    np.testing.assert_allclose(data.normalisation.mean, values.mean((0, 1, 2)), rtol=1e-9)
    np.testing.assert_allclose(data.normalisation.std, values.std((0, 1, 2)), rtol=1e-9)


def test_one_constant_serves_all_channels(tmp_path):
  fakes.write_arrays(tmp_path, fakes.arrays(1, (4, 4, 3)))
  data = datasets.load('arrays', str(tmp_path), normalisation='half')
  assert data.normalisation == ('half', (0.5,) * 3, (0.5,) * 3)


def test_normalisation_refused(tmp_path):
  with pytest.raises(ValueError, match="data.normalisation='zscore' is unknown; known are cifar10"):
    datasets.load('digits', normalisation='zscore')
  with pytest.raises(ValueError, match="'cifar10' is for 3 channels, but the images have 1"):
    datasets.load('digits', normalisation='cifar10')
  values = fakes.arrays(1)
  fakes.write_arrays(tmp_path, values | {'train_x': np.full_like(values['train_x'], 7)})
  with pytest.raises(ValueError, match='all training pixels of channel 0 are equal'):
    datasets.load('arrays', str(tmp_path))
