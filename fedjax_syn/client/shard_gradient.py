"""The gradient of the loss over all samples of a shard."""

from collections.abc import Callable

import jax

from fedjax_syn.core.types import Array, Model, Params, Shard, Variables
from fedjax_syn.data import federated

Loss = Callable[[Array, Array, Array], Array]  # (logits, y, mask) -> mean over the mask, []


def gradient_sum(
  model: Model,
  loss: Loss,
  data: federated.FederatedData,
  shard: Shard,
  variables: Variables,
  batch_size: int,
  train: bool = False,
) -> Params:
  """Returns the sum over samples of the gradients of a model's loss.

  Args:
    model: the network.
    loss: (logits, y, mask) -> mean loss.
    data: the clients' data, normalised batch by batch.
    shard: whose samples.
    variables: parameters and running statistics.
    batch_size: samples at once.
    train: whether a network with BatchNorm normalises by the batch's statistics; else by the
      running ones.

  Returns:
    The sum, structure of the parameters; zeros for an empty shard.
  """

  def batch_loss(w, x, y, mask):
    out = model.apply(Variables(w, variables.stats), x, train=train, mask=mask)
    return loss(out.logits, y, mask) * mask.sum()

  gradient = lambda *batch: jax.grad(batch_loss)(variables.params, *batch)
  return federated.sum_batches(data, shard, batch_size, gradient)
