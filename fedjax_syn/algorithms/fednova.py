"""FedNova: differences are normalised by the local steps that they stand for (Wang et al., 2020, Eq. 9)."""

import jax
import jax.numpy as jnp

from fedjax_syn.algorithms.fedavg import fedavg
from fedjax_syn.method import ClientTransform, LocalTraining, Method
from fedjax_syn.typing import Array


def effective_steps(steps: Array, momentum: float) -> Array:
  """||a||_1 of SGD with momentum rho: (tau - rho (1 - rho^tau) / (1 - rho)) / (1 - rho); tau for rho = 0.

  Args:
    steps: tau, local steps.
    momentum: rho, below 1.

  Returns:
    The sum of the weights with which the gradients of the steps enter the difference.
  """
  tau = jnp.asarray(steps, jnp.result_type(float))
  rho = momentum
  return (tau - rho * (1 - rho**tau) / (1 - rho)) / (1 - rho)


def pulled_steps(steps: Array, momentum: float, decay: Array) -> Array:
  """||a||_1 of SGD whose gradients have mu (y - x) in them: what a step has moved decays by eta mu in every later one.

  Args:
    steps: tau, local steps.
    momentum: rho, below 1.
    decay: eta mu.

  Returns:
    The sum of the sizes of the weights of the steps; without momentum (1 - (1 - eta mu)^tau) / (eta mu).
  """

  def earlier(_, carry):  # the weight of the gradient of one step earlier
    weight, velocity, total = carry
    velocity = momentum * velocity - decay * weight
    weight += velocity
    return weight, velocity, total + jnp.abs(weight)

  one = jnp.ones((), jnp.result_type(float))
  total = jax.lax.fori_loop(1, jnp.maximum(steps, 1), earlier, (one, one, one))[2]
  return jnp.where(steps > 0, total, 0)


def fednova(base: Method | None = None) -> Method:
  """Averages (y_i - x) / a_i and takes a step of the mean a: x + (sum_i p_i a_i) sum_i p_i (y_i - x) / a_i.

  Args:
    base: a method that trains locally by SGD; SGD of rate 0.01 by default.

  Returns:
    The method; with equal steps everywhere it is the base itself. Clients send the normalised difference
    instead of the difference, and a_i, one number. The a_i know of momentum and of FedProx's pull, wherever it stands in the
    chain. Whatever else a layer adds to a gradient, or weight decay, counts as part of it: it belongs to the local objective.

  Raises:
    ValueError: if the clients' optimizer is not SGD, its momentum is 1 or kept between visits; if the base's server looks at each client's
      model (FedDF, FedBE, FedGen), of which a message says only the direction.
  """
  base = base or fedavg(0.01, optimizer='sgd')
  momentum = base.client.momentum if isinstance(base.client, LocalTraining) else 0.0
  if momentum is None or momentum >= 1:
    raise ValueError(
      'fednova counts the steps of SGD with momentum below 1: use client.optimizer=sgd and such a client.momentum'
    )
  if momentum and base.client.persistent:
    raise ValueError(
      'fednova counts steps whose momentum begins at zero: use client.persistent=False, or client.momentum=0'
    )

  def client(task):
    def finish(ctx, visit, trained, steps):
      if not task.pull:
        return jnp.maximum(effective_steps(steps, momentum), 1.0), None
      eta = task.hyper['client']['lr'] * (task.local or base.client).schedule(visit.round)
      mu = sum(pull(task.hyper) for pull in task.pull)
      return jnp.maximum(pulled_steps(steps, momentum, eta * mu), 1.0), None

    def seal(key, body):
      a = body['fednova']
      return body | {'params': jax.tree.map(lambda d: d / a, body['params'])}

    return ClientTransform('fednova', finish=finish, seal=seal)

  def aggregate(task):
    def step(key, old, messages):
      a = messages.mean('fednova')
      new = jax.tree.map(lambda w, d: w + a * d, old, messages.mean('params'))
      return new, {'fednova/effective_steps': a}

    return step

  return base.extend('fednova', client=client, aggregate=aggregate, sums_only=True)
