"""Ditto: beside the global model a personal one, kept near it (Li et al., 2021, Algorithm 1)."""

import dataclasses

import jax
import jax.numpy as jnp
import optax

from fedjax_syn.algorithms.fedavg import fedavg
from fedjax_syn.client.local import close
from fedjax_syn.fields import field
from fedjax_syn.keys import fold
from fedjax_syn.method import ClientTransform, Method, Visit
from fedjax_syn.typing import Variables

PERSONAL = 4  # use of a visit's key; local training has 0 to 3


@dataclasses.dataclass(frozen=True)
class Config:
  lambda_personal: float = field(
    1.0,
    'lambda of lambda/2 ||v - w||^2, w the global model (paper 1, or chosen from 0.1, 1, 2)',
    low=0.0,
  )
  epochs: int = field(
    1, 'passes of the personal model over the data in a visit', low=1, high=10_000
  )
  steps: int = field(
    0, 'steps instead of passes (paper 2 on Fashion-MNIST); 0: passes', low=0, high=10**9
  )


def ditto(
  base: Method | None = None, *, lambda_personal: float = 1.0, epochs: int = 1, steps: int = 0
) -> Method:
  """Every client keeps a model v of its own, trained on F_k(v) + lambda/2 ||v - w||^2, w the global model.

  What is sent, and so the global model, is the base's to the last bit. v takes the client's plain loss, its
  batch size, augmentation, optimizer (with a state that starts anew in every visit) and rate, but draws of
  its own.

  Args:
    base: a method that trains locally; FedAvg by default.
    lambda_personal: lambda; 0 trains v alone, a large one holds it at w (the rate times lambda must stay
      below 2 for SGD).
    epochs: passes of v in a visit, or
    steps: steps of v, if not 0.

  Returns:
    The method. A client's model is v as its last visit left it; before the first it is the initial model.
    Per-client state: a model each.

  Raises:
    ValueError: if the base does not train locally.
  """
  base = base or fedavg()

  def client(task):
    def towards(w_global):
      def loss(ctx, loss_fn):
        def proximal(v, step):
          value, out = loss_fn(v, step)
          apart = jax.tree.map(jnp.subtract, v, w_global)
          return value + task.hyper['ditto']['lambda'] / 2 * optax.tree.vdot(apart, apart), out

        return proximal

      return lambda task: ClientTransform('ditto', loss=loss)

    def finish(ctx, visit: Visit, trained, _):
      v = visit.state['ditto']
      passes = {'epochs': 0, 'steps': steps} if steps else {'epochs': epochs, 'steps': 0}
      inner = Method(
        'ditto',
        base.client._replace(persistent=False, **passes),
        client_transforms=(towards(visit.params),),
      )
      local = close(inner, task)
      own = visit._replace(
        key=fold(visit.key, 0, PERSONAL), params=v.params, stats=v.stats, state={}
      )
      count = local.steps(visit.shard.size)
      carry = jax.lax.fori_loop(0, count, lambda _, carry: local.step(carry), local.begin(own))
      return None, Variables(carry.params, carry.stats)

    def metrics(ctx, visit, trained):  # of the personal model as the last visit left it
      apart = optax.tree.sub(visit.state['ditto'].params, visit.params)
      return {'distance': optax.tree.norm(apart)}

    return ClientTransform(
      'ditto',
      metrics=metrics,
      init=lambda initial, shard: initial,
      finish=finish,
      personal=lambda ctx, visit, trained: visit.state['ditto'],
    )

  return base.extend('ditto', client=client, hyper={'lambda': lambda_personal})
