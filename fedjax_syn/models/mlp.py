"""The multi-layer perceptron of DynaFed's Table 5 (784-128-128-10 on Fashion-MNIST)."""

from typing import Any

import flax.linen as nn

from fedjax_syn.core.types import Array
from fedjax_syn.models.init import Init
from fedjax_syn.models.network_layers import Dense, dropout


class MLP(nn.Module):
  """Hidden layers with ReLU on the flattened row."""

  width: int
  depth: int
  weights: Init
  dropout: float = 0.0

  @nn.compact
  def __call__(self, x: Array, train: bool, mask: Array | None) -> Array:
    z = x.reshape(x.shape[0], -1)
    for i in range(self.depth):
      z = nn.relu(Dense(self.width, self.weights, name=f'dense_{i}')(z))
      self.sow('stages', 'outputs', z)
      z = dropout(self, self.dropout, z)
    return z


def mlp(*, width: int, depth: int, weights: Init, dropout: float = 0.0, **unused: Any) -> MLP:
  """Returns the body of an MLP. Defaults: 128 wide, 2 hidden layers."""
  return MLP(width or 128, depth or 2, weights, dropout)
