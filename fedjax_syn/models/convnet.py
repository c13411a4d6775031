"""The ConvNet of DynaFed and of data-set distillation: blocks of conv 3x3, norm, ReLU, pooling."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from fedjax_syn.core.types import Array
from fedjax_syn.models import blocks
from fedjax_syn.models.classifier import check_fits
from fedjax_syn.models.init import Init
from fedjax_syn.models.network_layers import FORMS, NORMS, POOLINGS, Conv, Form


class ConvNet(nn.Module):
  """Equal blocks; the features are the flattened last activations.

  In the form 'chwn' a block is one function (`blocks.block`) where its sizes and norm allow it. It
  has no forward mode, for which see `blocks.layers_one_by_one`.
  """

  width: int
  depth: int
  norm: str
  pooling: str
  first_padding: int
  form: Form
  weights: Init

  @nn.compact
  def __call__(self, x: Array, train: bool, mask: Array | None) -> Array:
    if self.in_blocks(x.shape[1:]) and x.dtype != jnp.bfloat16 and not self.is_initializing():
      return self._by_blocks(x)
    z = self.form.swap(x)
    for i in range(self.depth):
      padding = self.first_padding if i == 0 else 1
      z = Conv(self.width, 3, self.form, self.weights, padding=padding, name=f'conv_{i}')(z)
      z = NORMS[self.norm](self.form, name=f'norm_{i}')(z, train, mask)
      z = POOLINGS[self.pooling](nn.relu(z))
      self.sow('stages', 'outputs', self.form.swap(z))
    return self.form.swap(z).reshape(x.shape[0], -1)

  def in_blocks(self, shape: tuple[int, ...]) -> bool:
    """Returns whether every block of float32 images [height, width, ...] is a `blocks.block`."""
    kind = self.form is FORMS['chwn'] and (self.norm, self.pooling) == ('group', 'avg')
    size = [n + 2 * self.first_padding - 2 for n in shape[:2]]
    return kind and all(n % 2**self.depth == 0 for n in size) and blocks.wanted()

  def _by_blocks(self, z: Array) -> Array:
    border = self.first_padding - 1  # a block pads by one pixel
    if border:  # apart: XLA's fast convolution knows no wider padding than a kernel needs
      z = jnp.pad(z, ((0, 0), (border, border), (border, border), (0, 0)))
      z = jax.lax.optimization_barrier(z)
    weights = self.variables['params']
    for i in range(self.depth):
      norm = weights[f'norm_{i}']
      z = blocks.block(z, weights[f'conv_{i}']['kernel'], norm['scale'], norm['bias'])
      self.sow('stages', 'outputs', z)
    return z.reshape(z.shape[0], -1)


def convnet(
  *,
  shape: tuple[int, int, int],
  width: int,
  depth: int,
  norm: str,
  pooling: str,
  weights: Init,
  form: Form,
) -> ConvNet:
  """Returns the body of a ConvNet. Defaults: 128 wide, 3 blocks.

  The first convolution pads images of 28x28 pixels and one channel to 32x32, as the papers' code
  does.
  """
  depth, first = depth or 3, 3 if shape == (28, 28, 1) else 1
  pools = [(2, 2, 0)] * depth if pooling != 'none' else []
  check_fits(shape, 'convnet', (3, 1, first), *pools)  # the other convolutions keep the size
  return ConvNet(width or 128, depth, norm, pooling, first, form, weights)
