"""FedProx: a proximal term keeps local models near the global one (Li et al., 2020, Eq. 2)."""

import dataclasses

import jax
import jax.numpy as jnp
import optax

from fedjax_syn.algorithms.fedavg import fedavg
from fedjax_syn.fields import field
from fedjax_syn.method import ClientTransform, Method


@dataclasses.dataclass(frozen=True)
class Config:
  mu: float = field(0.01, 'weight of the proximal term mu/2 ||w - w^t||^2', low=0.0)


def fedprox(base: Method | None = None, *, mu: float = 0.01) -> Method:
  """Adds mu/2 ||w - w^t||^2, w^t the global model, to the local loss.

  Args:
    base: a method that trains locally; FedAvg by default.
    mu: weight of the term; 0 is the base itself.

  Returns:
    The method. The authors of DynaFed leave the 1/2 out: their mu is half of this one.
  """
  base = base or fedavg()

  def client(task):
    def loss(w_global, loss_fn):
      def proximal(w, step):
        value, out = loss_fn(w, step)
        drift = jax.tree.map(jnp.subtract, w, w_global)
        return value + task.hyper['fedprox']['mu'] / 2 * optax.tree.vdot(drift, drift), out

      return proximal

    def metrics(w_global, visit, trained):
      return {'drift': optax.tree.norm(optax.tree.sub(trained.params, w_global))}

    return ClientTransform(
      'fedprox', prepare=lambda visit: visit.params, loss=loss, metrics=metrics
    )

  pull = lambda hyper: hyper['fedprox']['mu']
  return base.extend('fedprox', client=client, pull=pull, hyper={'mu': mu})
