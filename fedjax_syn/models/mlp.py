"""The multi-layer perceptron of DynaFed's Table 5 (784-128-128-10 on Fashion-MNIST)."""

import flax.linen as nn

from fedjax_syn.core.types import Array, Model
from fedjax_syn.models.classifier import as_model
from fedjax_syn.models.init import INITS, Init
from fedjax_syn.models.layers import Dense


class MLP(nn.Module):
  """Hidden layers with ReLU on the flattened image."""

  width: int
  depth: int
  weights: Init

  @nn.compact
  def __call__(self, x: Array, train: bool, mask: Array | None) -> Array:
    del train, mask
    z = x.reshape(x.shape[0], -1)
    for i in range(self.depth):
      z = nn.relu(Dense(self.width, self.weights, name=f'dense_{i}')(z))
      self.sow('stages', 'outputs', z)
    return z


def mlp(
  *, shape: tuple[int, int, int], num_classes: int, width: int, depth: int, init: str, **unused
) -> Model:
  """Builds an MLP; see `fedjax_syn.models.create`. Defaults: 128 wide, 2 hidden layers."""
  del unused
  return as_model(
    'mlp', MLP(width or 128, depth or 2, INITS[init]), shape, num_classes, INITS[init]
  )
