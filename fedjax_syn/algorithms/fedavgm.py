"""FedAvgM: momentum on the server (Hsu et al., 2019)."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedjax_syn.algorithms.fedavg import fedavg
from fedjax_syn.fields import field
from fedjax_syn.method import Method, ServerTransform
from fedjax_syn.typing import Array, Params

# form: (momentum m, rounds with a velocity before this one) -> factors (on v, on the mean difference d, on v in w)
FORMS = {
  'heavy_ball': lambda m, moved: (m, 1.0, 1.0),
  'average': lambda m, moved: (m, 1.0 - m, 1.0),
  'damped': lambda m, moved: (m, 1.0, jnp.where(moved > 0, 1 / (1 + m), 1.0)),
}


@dataclasses.dataclass(frozen=True)
class Config:
  momentum: float = field(0.1, "m (FedCOG's paper 0.1, its script 0.9)", low=0.0, high=1.0)
  form: str = field(
    'heavy_ball',
    "v = m v + d; 'average': v = m v + (1 - m) d; 'damped': FedCOG's code",
    choices=tuple(FORMS),
  )


class Velocity(NamedTuple):
  """The server's state."""

  v: Params
  moved: Array  # [], rounds that moved it


def fedavgm(
  base: Method | None = None, *, momentum: float = 0.1, form: str = 'heavy_ball'
) -> Method:
  """Adds momentum to the mean difference d of the clients: w = w + v.

  Args:
    base: the method whose aggregate is accelerated; FedAvg by default.
    momentum: m; 0 is the base itself in every form.
    form: 'heavy_ball': v = m v + d, as in the paper; 'average': v = m v + (1 - m) d, as in MOON's code;
      'damped': v = m v + d and, from the second round on, w + v / (1 + m), as in FedCOG's code.

  Returns:
    The method. A round without a sample changes nothing, except under `dp`, where nobody may see that it was one.

  Raises:
    ValueError: if the form is unknown.
  """
  if form not in FORMS:
    raise ValueError(f'fedavgm.form={form!r} is unknown; known: {", ".join(FORMS)}')
  base = base or fedavg()

  def server(task):
    def update(key, round, state, before, new, messages):
      on_v, on_d, out = FORMS[form](task.hyper['fedavgm']['momentum'], state.moved)
      v = jax.tree.map(lambda v, n, w: on_v * v + on_d * (n - w), state.v, new, before.params)
      anyone = (messages.weight.sum() > 0) | task.noised
      keep = lambda new, old: jax.tree.map(lambda n, o: jnp.where(anyone, n, o), new, old)
      moved = jax.tree.map(lambda w, v: w + out * v, before.params, v)
      return keep(moved, before.params), keep(Velocity(v, state.moved + 1), state)

    return ServerTransform(
      'fedavgm',
      init=lambda key, params, enrolled: Velocity(
        jax.tree.map(jnp.zeros_like, params), jnp.zeros((), jnp.int32)
      ),
      update=update,
      metrics=lambda state: {'rounds': state.moved},
    )

  return base.extend('fedavgm', server=server, hyper={'momentum': momentum})
