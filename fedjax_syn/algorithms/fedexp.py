"""FedExP: the server extrapolates by how much the clients disagree (Jhunjhunwala et al., 2023, Eq. 8)."""

import dataclasses

import jax
import jax.numpy as jnp
import optax

from fedjax_syn.algorithms.fedavg import fedavg
from fedjax_syn.fields import field
from fedjax_syn.method import ClientTransform, Method


@dataclasses.dataclass(frozen=True)
class Config:
  epsilon: float = field(
    1e-3, 'beside the squared norm of the mean difference (1e-3 for CIFAR-10)', low=0.0
  )


def fedexp(base: Method | None = None, *, epsilon: float = 1e-3) -> Method:
  """Moves by eta_g d, d the clients' mean difference, with eta_g = max(1, mean ||d_i||^2 / (2 (||d||^2 + epsilon))).

  Args:
    base: the method whose aggregate is extrapolated; FedAvg by default.
    epsilon: keeps eta_g bounded; for large values eta_g is 1 and the method is the base itself.

  Returns:
    The method. Means are by the clients' weights. Clients send ||d_i||^2, one number, so that the server
    still needs sums only. Deviation: the last iterate is what is evaluated; the authors average the last two.
  """
  base = base or fedavg()

  def client(task):
    def finish(ctx, visit, trained, steps):
      difference = optax.tree.sub(trained.params, visit.params)
      stays = lambda path: base.is_private(task.model, path)  # a head of the client's own, say
      sent = jax.tree_util.tree_map_with_path(
        lambda path, d: jnp.zeros_like(d) if stays(path) else d, difference
      )
      return optax.tree.vdot(sent, sent), None

    return ClientTransform('fedexp', finish=finish)

  def aggregate(task):
    def step(key, old, messages):
      d = messages.mean('params')
      bound = 2 * (optax.tree.vdot(d, d) + task.hyper['fedexp']['epsilon'])
      ratio = messages.mean('fedexp') / jnp.maximum(bound, jnp.finfo(bound.dtype).tiny)
      eta = jnp.maximum(1.0, ratio)
      return jax.tree.map(lambda w, d: w + eta * d, old, d), {'fedexp/server_step': eta}

    return step

  return base.extend('fedexp', client=client, aggregate=aggregate, hyper={'epsilon': epsilon})
