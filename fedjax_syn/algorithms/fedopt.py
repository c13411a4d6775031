"""FedOpt: an optax optimizer on the server, e.g. FedAdam, FedYogi (Reddi et al., 2021, Algorithm 2)."""

import dataclasses

import jax
import jax.numpy as jnp
import optax

from fedjax_syn.algorithms.fedavg import fedavg
from fedjax_syn.client.optimizers import OPTIMIZERS
from fedjax_syn.fields import field
from fedjax_syn.method import Method, ServerTransform


@dataclasses.dataclass(frozen=True)
class Config:
  optimizer: str = field('adam', 'server optimizer by its optax name', choices=OPTIMIZERS)
  lr: float = field(0.01, 'server learning rate', above=0.0)


def fedopt(base: Method | None = None, *, optimizer: str = 'adam', lr: float = 0.01) -> Method:
  """Gives the clients' mean difference to a server optimizer as if it were a negative gradient.

  Args:
    base: the method whose aggregate is the pseudo-gradient; FedAvg by default.
    optimizer: an optax optimizer; 'adam' is FedAdam, 'yogi' FedYogi, 'sgd' with lr 1 the base itself.
    lr: server learning rate.

  Returns:
    The method. Deviation: optax's optimizers correct the bias of their moments, which Algorithm 2 does not,
    and where it has tau = 1e-3, 'adam' has 1e-8.

  Raises:
    ValueError: if the optimizer is unknown.
  """
  if optimizer not in OPTIMIZERS:
    raise ValueError(f'fedopt.optimizer={optimizer!r} is unknown; known: {", ".join(OPTIMIZERS)}')
  base = base or fedavg()

  def server(task):
    opt = getattr(optax, optimizer)(task.hyper['fedopt']['lr'])

    def update(key, round, opt_state, state, new, messages):
      pseudo_gradient = jax.tree.map(jnp.subtract, state.params, new)
      updates, moved = opt.update(pseudo_gradient, opt_state, state.params)
      # A round without a sample moves nothing, not even the moments, except where nobody may see that it was one.
      anyone = (messages.weight.sum() > 0) | task.noised
      keep = lambda new, old: jax.tree.map(lambda n, o: jnp.where(anyone, n, o), new, old)
      return keep(optax.apply_updates(state.params, updates), state.params), keep(moved, opt_state)

    return ServerTransform(
      name='fedopt', init=lambda key, params, enrolled: opt.init(params), update=update
    )

  return base.extend('fedopt', server=server, hyper={'lr': lr})
