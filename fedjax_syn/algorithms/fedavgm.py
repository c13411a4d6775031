"""FedAvgM: momentum on the server (Hsu et al., 2019)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_syn.core.fields import field
from fedjax_syn.core.types import Array, Params
from fedjax_syn.layer import Layer

# form: (momentum m, rounds with a velocity before this one) -> factors (on v, on the mean
# difference d, on v in w)
FORMS = {
  'heavy_ball': lambda m, moved: (m, 1.0, 1.0),
  'average': lambda m, moved: (m, 1.0 - m, 1.0),
  'damped': lambda m, moved: (m, 1.0, jnp.where(moved > 0, 1 / (1 + m), 1.0)),
}


class Velocity(NamedTuple):
  """The server's state."""

  v: Params
  moved: Array  # [], rounds that had a sample


class FedAvgM(Layer):
  """Adds momentum to the mean difference d of the clients: w = w + v.

  The form 'heavy_ball' is v = m v + d, as in the paper; 'average' is v = m v + (1 - m) d, as in
  MOON's code; 'damped' is v = m v + d and, from the second round on, w = w + v / (1 + m), as in
  FedCOG's code. In every form momentum 0 changes nothing. A round without a sample changes nothing,
  except under `dp`, where nobody may see that it was empty.
  """

  momentum: float = field(0.1, "m (FedCOG's paper 0.1, its script 0.9)", low=0.0, high=1.0)
  form: str = field(
    'heavy_ball', "v = m v + d; 'average': v = m v + (1 - m) d; 'damped'", choices=tuple(FORMS)
  )

  def server_init(self, task, key, params, messages):
    return Velocity(optax.tree.zeros_like(params), jnp.zeros((), jnp.int32))

  def server_update(self, round, new):
    w, state = round.params, round.state
    on_v, on_d, out = FORMS[self.form](self.momentum, state.moved)
    v = jax.tree.map(lambda v, n, w: on_v * v + on_d * (n - w), state.v, new, w)
    moved = jax.tree.map(lambda w, v: w + out * v, w, v)
    anyone = (round.messages.weight.sum() > 0) | round.task.noised
    keep = lambda new, old: jax.tree.map(lambda n, o: jnp.where(anyone, n, o), new, old)
    return keep(moved, w), keep(Velocity(v, state.moved + 1), state)

  def server_metrics(self, state):
    return {'rounds': state.moved}
