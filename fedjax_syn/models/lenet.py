"""The small CNNs of FedCOG: unpadded convolutions with ReLU and max-pooling, then dense layers."""

import flax.linen as nn

from fedjax_syn.core.types import Array, Model
from fedjax_syn.models.classifier import as_model, check_fits
from fedjax_syn.models.init import INITS, Init
from fedjax_syn.models.layers import FORMS, Conv, Dense, Form, max_pool


class PlainCNN(nn.Module):
  """Convolutions of one size without padding or norm, then hidden dense layers."""

  size: int  # side of the kernels, in pixels
  channels: tuple[int, ...]
  hidden: tuple[int, ...]
  form: Form
  weights: Init

  @nn.compact
  def __call__(self, x: Array, train: bool, mask: Array | None) -> Array:
    del train, mask
    z = self.form.swap(x)
    for i, channels in enumerate(self.channels):
      z = Conv(channels, self.size, self.form, self.weights, name=f'conv_{i}')(z)
      z = max_pool(nn.relu(z))
      self.sow('stages', 'outputs', self.form.swap(z))
    z = self.form.swap(z).reshape(x.shape[0], -1)
    for i, width in enumerate(self.hidden):
      z = nn.relu(Dense(width, self.weights, name=f'dense_{i}')(z))
    return z


def _build(name, size, channels, hidden, shape, num_classes, init, conv) -> Model:
  check_fits(shape, name, *[(size, 1, 0), (2, 2, 0)] * len(channels))
  body = PlainCNN(size, channels, hidden, FORMS[conv], INITS[init])
  return as_model(name, body, shape, num_classes, INITS[init])


def lenet(
  *, shape: tuple[int, int, int], num_classes: int, init: str, conv: str, **unused
) -> Model:
  """Builds FedCOG's CNN for Fashion-MNIST and CIFAR-10 (A.3.1); see `fedjax_syn.models.create`."""
  del unused
  return _build('lenet', 5, (6, 16), (120, 84), shape, num_classes, init, conv)


def cnn3(*, shape: tuple[int, int, int], num_classes: int, init: str, conv: str, **unused) -> Model:
  """Builds FedCOG's CNN for CIFAR-100; see `fedjax_syn.models.create`.

  The text (A.3.1) leaves out the pooling after the third convolution; the 69,380 parameters that A.5.2
  quotes need it.
  """
  del unused
  return _build('cnn3', 3, (16, 32, 64), (128,), shape, num_classes, init, conv)
