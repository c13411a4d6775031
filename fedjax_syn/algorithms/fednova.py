"""FedNova: updates are normalised by the number of local steps (Wang et al., 2020, Eq. 9)."""

import jax
import jax.numpy as jnp

from fedjax_syn.core.contexts import ClientContext
from fedjax_syn.core.programs import loop
from fedjax_syn.core.types import Array
from fedjax_syn.layer import Layer, overrides


class FedNova(Layer):
  """Moves the model to x + (sum_i p_i a_i) sum_i p_i (y_i - x) / a_i.

  a_i is the sum of the weights with which client i's gradients enter y_i - x. If all a_i are equal,
  nothing changes. Clients train by SGD; they send the normalised difference instead of the
  difference, and a_i, one number. a_i counts momentum, and FedProx's term wherever it is in the
  chain. Other terms of layers and weight decay are part of the local objective.
  """

  def provides(self):
    return frozenset({'aggregate only'})

  def requires(self):
    return frozenset({'sgd'})

  def conflicts(self):
    return {
      'persistent momentum': "'fednova' counts steps whose momentum begins at zero: use"
      ' client.persistent=False, or client.momentum=0'
    }

  def finish(self, client, trained, steps):
    return jnp.maximum(_accumulated(client, steps), 1.0), None

  def postprocess_update(self, client, payload):
    a = payload['fednova']
    return payload | {'params': jax.tree.map(lambda d: d / a, payload['params'])}

  def aggregate(self, round):
    a = round.messages.mean('fednova')
    d = round.messages.mean('params')
    new = jax.tree.map(lambda w, d: w + a * d, round.params, d)
    return new, {'effective_steps': a}


def _accumulated(client: ClientContext, steps: Array) -> Array:
  """Returns a_i = ||a_i||_1 of a client's steps, []."""
  task = client.task
  momentum = task.local.momentum
  mus = [layer.proximal() for layer in task.chain if overrides(layer, 'proximal')]
  if not mus:
    return effective_steps(steps, momentum)
  return proximal_steps(steps, momentum, task.learning_rate(client.round) * sum(mus))


def effective_steps(steps: Array, momentum: float) -> Array:
  """Returns ||a||_1 of SGD: (tau - rho (1 - rho^tau) / (1 - rho)) / (1 - rho).

  Args:
    steps: tau, local steps.
    momentum: rho, below 1.

  Returns:
    The sum of the weights with which the gradients of the steps enter the difference, [].
  """
  tau = jnp.asarray(steps, jnp.result_type(float))
  rho = momentum
  return (tau - rho * (1 - rho**tau) / (1 - rho)) / (1 - rho)


def proximal_steps(steps: Array, momentum: float, decay: Array) -> Array:
  """Returns ||a||_1 of SGD with a proximal term, by which changes decay in later steps.

  Args:
    steps: tau, local steps.
    momentum: rho, below 1.
    decay: eta mu.

  Returns:
    The sum of the absolute weights of the steps, []; without momentum (1 - (1 - eta mu)^tau) / (eta
    mu).
  """

  def earlier(_, carry):  # the weight of the gradient of one step earlier
    weight, velocity, total = carry
    velocity = momentum * velocity - decay * weight
    weight += velocity
    return weight, velocity, total + jnp.abs(weight)

  one = jnp.ones((), jnp.result_type(float))
  with loop('local_steps'):
    total = jax.lax.fori_loop(1, jnp.maximum(steps, 1), earlier, (one, one, one))[2]
  return jnp.where(steps > 0, total, 0)
