"""FedDecorr: a penalty on correlated features keeps them from collapsing (Shi et al., 2023)."""

import jax.numpy as jnp

from fedjax_syn.core.fields import field
from fedjax_syn.core.types import Array, Measured
from fedjax_syn.data import federated
from fedjax_syn.layer import Layer


class FedDecorr(Layer):
  """Adds beta times the correlation loss of the penultimate features to the local loss."""

  beta: float = field(0.1, "weight of the loss (paper 0.1; FedCOG's tables 0.01)", low=0.0)

  def loss(self, client, loss_fn, w, step):  # Eq. 5
    value, out = loss_fn(w, step)
    return value + self.beta * correlation_loss(out.features, step.mask), out

  def client_metrics(self, client, trained):
    x, _, mask = federated.first_rows(client.task.data, client.shard)
    value = correlation_loss(client.task.model.apply(trained, x).features, mask)
    return {'correlation': Measured(value, mask.sum() > 1)}  # one sample has no correlation


def correlation_loss(features: Array, mask: Array) -> Array:
  """Returns the mean squared off-diagonal entry of z^T z over the batch size.

  z are the features, standardised over the batch.

  Args:
    features: [batch, features].
    mask: [batch], 1 for a sample and 0 for padding.

  Returns:
    The loss, []; with N samples an entry of z^T z is N - 1 times a correlation. The paper's formula
    has correlations; this is the form of its code, with which its beta was chosen.
  """
  total, weight = mask.sum(), mask[:, None]
  mean = jnp.sum(weight * features, 0, keepdims=True) / jnp.maximum(total, 1)
  centred = (features - mean) * weight
  variance = jnp.sum(centred**2, axis=0, keepdims=True) / jnp.maximum(total - 1, 1)
  z = centred / jnp.sqrt(variance + 1e-8)
  products = (z.T @ z) ** 2
  size = features.shape[1]
  off_diagonal = (products.sum() - jnp.trace(products)) / max(size * (size - 1), 1)
  return off_diagonal / jnp.maximum(total, 1)
