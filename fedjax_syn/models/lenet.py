"""The small CNNs of FedCOG: unpadded convolutions with ReLU and max-pooling, then dense layers."""

from typing import Any

import flax.linen as nn

from fedjax_syn.core.types import Array
from fedjax_syn.models.classifier import check_fits
from fedjax_syn.models.init import Init
from fedjax_syn.models.network_layers import Conv, Dense, Form, max_pool


class PlainCNN(nn.Module):
  """Convolutions of one size without padding or norm, then hidden dense layers."""

  size: int  # side of the kernels, in pixels
  channels: tuple[int, ...]
  hidden: tuple[int, ...]
  form: Form
  weights: Init

  @nn.compact
  def __call__(self, x: Array, train: bool, mask: Array | None) -> Array:
    z = self.form.swap(x)
    for i, channels in enumerate(self.channels):
      z = Conv(channels, self.size, self.form, self.weights, name=f'conv_{i}')(z)
      z = max_pool(nn.relu(z))
      self.sow('stages', 'outputs', self.form.swap(z))
    z = self.form.swap(z).reshape(x.shape[0], -1)
    for i, width in enumerate(self.hidden):
      z = nn.relu(Dense(width, self.weights, name=f'dense_{i}')(z))
    return z


def lenet(*, shape: tuple[int, int, int], form: Form, weights: Init, **unused: Any) -> PlainCNN:
  """Returns the body of FedCOG's CNN for Fashion-MNIST and CIFAR-10 (A.3.1)."""
  check_fits(shape, 'lenet', *[(5, 1, 0), (2, 2, 0)] * 2)
  return PlainCNN(5, (6, 16), (120, 84), form, weights)


def cnn3(*, shape: tuple[int, int, int], form: Form, weights: Init, **unused: Any) -> PlainCNN:
  """Returns the body of FedCOG's CNN for CIFAR-100.

  The text (A.3.1) leaves out the pooling after the third convolution; the 69,380 parameters that
  A.5.2 quotes need it.
  """
  check_fits(shape, 'cnn3', *[(3, 1, 0), (2, 2, 0)] * 3)
  return PlainCNN(3, (16, 32, 64), (128,), form, weights)
