"""Median: the median of every coordinate of the updates instead of the mean (Yin et al., 2018)."""

import jax
import jax.numpy as jnp

from fedjax_syn.layer import Layer
from fedjax_syn.server import robust


class Median(Layer):
  """Moves every parameter by the median of the clients' differences (Definition 1).

  Of an even number of clients it is the mean of the two values in the middle. Each client with
  samples counts once, whatever server.weighting says. Running statistics are averaged.
  """

  def requires(self):
    return frozenset({'individual updates'})

  def aggregate(self, round):
    present = round.messages.weight > 0
    cut = jnp.maximum(present.sum() - 1, 0) // 2
    update = robust.trimmed_mean(round.messages.payload['params'], present, cut)
    return jax.tree.map(jnp.add, round.params, update), {}
