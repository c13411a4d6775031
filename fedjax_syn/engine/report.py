"""What a round says of itself: losses, numbers of the transforms, and whether and where it diverged."""

import jax
import jax.numpy as jnp

from fedjax_syn.typing import Array, Params


def round_report(
  number: Array,
  new: Params,
  metrics: dict[str, Array],
  size: Array,
  sampled: Array,
  efficiency: Array,
) -> dict[str, Array]:
  """Sums up a round inside its program.

  Args:
    number: the round, [].
    new: the aggregated model.
    metrics: by name, [slots]: 'loss', 'finite' and whatever client transforms measured.
    size: [slots], samples of each sampled client.
    sampled: [slots], client numbers.
    efficiency: padding efficiency, [].

  Returns:
    Scalars by name: 'train/loss', weighted by size; means over the clients with a sample of the
    transforms' numbers; 'diverged_round', 0 if all is finite, and 'diverged_client', -1 if it is none of
    the clients.
  """
  finite = jnp.ones((), bool)
  for leaf in jax.tree.leaves(new):
    finite &= jnp.isfinite(leaf.sum())
  culprit = jnp.where(metrics['finite'].all(), -1, sampled[jnp.argmin(metrics['finite'])])
  finite &= metrics['finite'].all()
  present = size > 0

  def mean(values, weights):
    weights = jnp.where(present, weights, 0).astype(values.dtype)
    return jnp.sum(jnp.where(present, values, 0) * weights) / jnp.maximum(weights.sum(), 1)

  own = {k: mean(v, jnp.ones_like(size)) for k, v in metrics.items() if '/' in k}
  return {
    'train/loss': mean(metrics['loss'], size),
    **own,
    'padding_efficiency': efficiency,
    'diverged_round': jnp.where(finite, 0, number),
    'diverged_client': culprit,
  }
