"""FedOpt: an optimizer on the server, as FedAdam and FedYogi (Reddi et al., 2021, Algorithm 2)."""

import jax
import jax.numpy as jnp
import optax

from fedjax_syn.core.fields import field
from fedjax_syn.core.optimizers import OPTIMIZERS
from fedjax_syn.layer import Layer


class FedOpt(Layer):
  """Gives the negative mean difference of the clients to a server optimizer as its gradient.

  'adam' is FedAdam, 'yogi' FedYogi; 'sgd' with lr 1 changes nothing. A round without a sample
  changes nothing, not even the moments, except under `dp`, where nobody may see that it was empty.
  Deviations: optax's optimizers correct the bias of their moments, which Algorithm 2 does not; its
  tau is 1e-3, and 1e-8 in 'adam'.
  """

  optimizer: str = field('adam', 'server optimizer by its optax name', choices=OPTIMIZERS)
  lr: float = field(0.01, 'server learning rate', above=0.0)

  def server_init(self, task, key, params, messages):
    return self._optimizer().init(params)

  def server_update(self, round, new):
    w = round.params
    pseudo_gradient = jax.tree.map(jnp.subtract, w, new)  # -Delta_t, line 10
    updates, moments = self._optimizer().update(pseudo_gradient, round.state, w)
    anyone = (round.messages.weight.sum() > 0) | round.task.noised
    keep = lambda new, old: jax.tree.map(lambda n, o: jnp.where(anyone, n, o), new, old)
    return keep(optax.apply_updates(w, updates), w), keep(moments, round.state)

  def _optimizer(self) -> optax.GradientTransformation:
    return getattr(optax, self.optimizer)(self.lr)
