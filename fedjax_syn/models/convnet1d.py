"""A ConvNet for sequences: blocks of a convolution over time, norm, ReLU, pooling."""

import functools
import math
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax.numpy as jnp

from fedjax_syn.core.types import Array
from fedjax_syn.models.init import Init
from fedjax_syn.models.network_layers import FORMS, NORMS, Dense, GroupNorm, dropout

WINDOW = 5  # steps of a convolution
GROUPS = 8  # of channels, in the norm 'group'
FORM = FORMS['xla']


class ConvNet1D(nn.Module):
  """Equal blocks on [batch, time, channels]; the features are the mean over time, [batch, width].

  A convolution is one matrix product of windows, which is fast for vmapped and scanned clients on
  every backend. The last step of an odd number is dropped by the pooling.
  """

  width: int
  depth: int
  norm: str
  pooling: str
  weights: Init
  dropout: float = 0.0

  @nn.compact
  def __call__(self, x: Array, train: bool, mask: Array | None) -> Array:
    z = x
    for i in range(self.depth):
      z = Dense(self.width, self.weights, name=f'conv_{i}')(_windows(z))
      norm = _norm(self.norm, self.width)(FORM, name=f'norm_{i}')
      z = nn.relu(norm(z[:, :, None], train, mask)[:, :, 0])  # norms are for images
      z = POOLINGS[self.pooling](z)
      self.sow('stages', 'outputs', z)
    return dropout(self, self.dropout, z.mean(axis=1))


def _norm(name: str, width: int) -> Callable[..., Callable[..., Array]]:
  # A group of one channel would lose the strength of the signal in each channel.
  if name == 'group':
    return functools.partial(GroupNorm, groups=math.gcd(GROUPS, width))
  return NORMS[name]


def _windows(z: Array) -> Array:
  """Stacks what a window around each step sees, zeros beyond the ends: [..., WINDOW * channels]."""
  padded = jnp.pad(z, ((0, 0), (WINDOW // 2, WINDOW // 2), (0, 0)))
  return jnp.concatenate([padded[:, j : j + z.shape[1]] for j in range(WINDOW)], axis=-1)


def _pool(z: Array, combine: Callable[[Array, Array], Array]) -> Array:
  last = z.shape[1] // 2 * 2
  return combine(z[:, 0:last:2], z[:, 1:last:2])


POOLINGS: dict[str, Callable[[Array], Array]] = {
  'avg': functools.partial(_pool, combine=lambda a, b: (a + b) / 2),
  'max': functools.partial(_pool, combine=jnp.maximum),
  'none': lambda z: z,
}


def convnet1d(
  *,
  shape: tuple[int, int],
  width: int,
  depth: int,
  norm: str,
  pooling: str,
  weights: Init,
  dropout: float = 0.0,
  **unused: Any,
) -> ConvNet1D:
  """Returns the body of a ConvNet for sequences. Defaults: 64 wide, 3 blocks.

  Raises:
    ValueError: if pooling leaves no step.
  """
  depth = depth or 3
  if pooling != 'none' and shape[0] < 2**depth:
    raise ValueError(
      f"model.name = 'convnet1d' does not fit sequences of {shape[0]} steps: {depth} poolings by 2"
      ' leave nothing; use a smaller depth, or pooling "none"'
    )
  return ConvNet1D(width or 64, depth, norm, pooling, weights, dropout)
