"""TrimmedMean: the mean of each coordinate without its extreme values (Yin et al., 2018)."""

import jax
import jax.numpy as jnp

from fedjax_syn.core.fields import field
from fedjax_syn.layer import Layer
from fedjax_syn.server import robust


class TrimmedMean(Layer):
  """Moves every parameter by the trimmed mean of the clients' differences (Definition 2).

  Of n clients, the floor(beta n) smallest and as many of the largest values of a coordinate are
  left out. Each client with samples counts once, whatever server.weighting says. Running statistics
  are averaged.
  """

  beta: float = field(0.2, 'share of the values left out at each end', low=0.0, high=0.499)

  def requires(self):
    return frozenset({'individual updates'})

  def aggregate(self, round):
    present = round.messages.weight > 0
    # 0.29 * 100 is 29 clients in spite of binary fractions.
    cut = jnp.floor(self.beta * present.sum() + 1e-4).astype(jnp.int32)
    update = robust.trimmed_mean(round.messages.payload['params'], present, cut)
    return jax.tree.map(jnp.add, round.params, update), {'left_out': 2 * cut}
