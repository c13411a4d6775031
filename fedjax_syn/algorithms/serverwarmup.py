"""Server warm-up: in the first rounds the server applies a growing share of the update."""

import jax
import jax.numpy as jnp

from fedjax_syn.core.fields import field
from fedjax_syn.layer import Layer


class ServerWarmUp(Layer):
  """Moves the global model by min(1, c / rounds) of what the layers before it computed in round c.

  An example of a server rule without state; it is from no paper. In the first rounds, clients with
  few classes send large updates whose mean is unreliable.
  """

  warm_rounds: float = field(10.0, 'rounds until the whole update is applied', low=1.0)

  def server_update(self, round, new):
    share = jnp.minimum(1.0, round.round / self.warm_rounds)
    return jax.tree.map(lambda w, n: w + share * (n - w), round.params, new), round.state
