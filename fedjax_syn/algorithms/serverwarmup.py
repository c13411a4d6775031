"""Server warm-up: the server takes a growing share of the aggregated update in the first rounds."""

import jax
import jax.numpy as jnp

from fedjax_syn.core.fields import field
from fedjax_syn.layer import Layer


class ServerWarmUp(Layer):
  """Moves the global model by min(1, c / rounds) of what the layers before it computed in round c.

  A rule of the server alone, without state: an example, of no paper. Clients with few classes send large updates in the
  first rounds, while their mean says little.
  """

  warm_rounds: float = field(default=10.0, help='rounds until the whole update is taken', low=1.0)

  def server_update(self, round, new):
    share = jnp.minimum(1.0, round.round / self.warm_rounds)
    return jax.tree.map(lambda w, n: w + share * (n - w), round.params, new), round.state
