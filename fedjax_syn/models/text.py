"""A classifier of short texts: embedding, convolution over words, maximum (Kim, 2014)."""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp

from fedjax_syn.core.types import Array, Params
from fedjax_syn.data.facts import VOCABULARY
from fedjax_syn.models.init import Init
from fedjax_syn.models.network_layers import Dense

WINDOW = 3  # words


def _look_up(table: Array, x: Array) -> Array:
  return jnp.where(x[..., None] > 0, table[x], 0)  # padding has no meaning of its own


class TextCNN(nn.Module):
  """Tokens [batch, length], or their embeddings [..., width], -> features [batch, width]."""

  width: int
  depth: int
  weights: Init

  @nn.compact
  def __call__(self, x: Array, train: bool, mask: Array | None) -> Array:
    shape = VOCABULARY, self.width
    table = self.param('embedding', nn.initializers.normal(1.0), shape)  # PyTorch's nn.Embedding
    z = _look_up(table, x) if jnp.issubdtype(x.dtype, jnp.integer) else x
    for i in range(self.depth):
      padded = jnp.pad(z, ((0, 0), (WINDOW // 2, WINDOW // 2), (0, 0)))
      windows = [padded[:, j : j + z.shape[1]] for j in range(WINDOW)]
      dense = Dense(self.width, self.weights, name=f'conv_{i}')
      z = nn.relu(dense(jnp.concatenate(windows, axis=-1)))
      self.sow('stages', 'outputs', z)
    return z.max(axis=1)


def embed(params: Params, x: Array) -> Array:
  """Embeds tokens: int32 [..., length] -> [..., length, width]; 0 becomes the zero vector."""
  return _look_up(params['body']['embedding'], x)


def text(*, width: int, depth: int, weights: Init, **unused: Any) -> TextCNN:
  """Returns the body of a text classifier. Defaults: 64 wide, one convolution."""
  return TextCNN(width or 64, depth or 1, weights)
