"""FedSAM: sharpness-aware minimisation on the clients (Qu et al., 2022)."""

import dataclasses

import jax
import jax.numpy as jnp
import optax

from fedjax_syn.algorithms.fedavg import fedavg
from fedjax_syn.data import federated
from fedjax_syn.fields import field
from fedjax_syn.method import ClientTransform, Method
from fedjax_syn.typing import Params, Variables


@dataclasses.dataclass(frozen=True)
class Config:
  rho: float = field(
    0.05, "radius of the perturbation (FedCOG's paper 0.5, its code 0.05)", low=0.0
  )


def fedsam(base: Method | None = None, *, rho: float = 0.05) -> Method:
  """Takes the gradient at w + rho g / ||g||, g the gradient at w, on the same batch.

  Args:
    base: a method that trains locally; FedAvg by default.
    rho: radius; 0 is the base itself, at twice its cost.

  Returns:
    The method. The loss that is logged is that at w.
  """
  base = base or fedavg()

  def client(task):
    def ascend(params: Params, g: Params) -> Params:
      norm = optax.tree.norm(g)
      scale = task.hyper['fedsam']['rho'] / jnp.where(norm > 0, norm, 1.0)
      return jax.tree.map(lambda w, g: w + scale * g, params, g)

    def grad(ctx, grad_fn):
      def sharp(params, step):
        value, g = grad_fn(params, step)
        return value, grad_fn(ascend(params, g), step)[1]

      return sharp

    def metrics(ctx, visit, trained):
      x, y, mask = federated.first(task.data, visit.shard)

      def loss(params):
        return task.loss(task.model.apply(Variables(params, trained.stats), x).logits, y, mask)

      value, g = jax.value_and_grad(loss)(trained.params)
      return {'sharpness': loss(ascend(trained.params, g)) - value}

    return ClientTransform('fedsam', grad=grad, metrics=metrics)

  return base.extend('fedsam', client=client, hyper={'rho': rho})
