"""FedRep: a shared representation and a head of each client's own (Collins et al., 2021, Algorithm 1)."""

import dataclasses

import jax
import jax.numpy as jnp
import optax

from fedjax_syn.algorithms.fedavg import fedavg
from fedjax_syn.fields import field
from fedjax_syn.method import ClientTransform, Method
from fedjax_syn.typing import Params


@dataclasses.dataclass(frozen=True)
class Config:
  head: int = field(
    10,
    'local epochs (steps, if client.steps is given) on the head, before client.epochs on the rest (paper 10)',
    low=0,
    high=10_000,
  )


def fedrep(base: Method | None = None, *, head: int = 10) -> Method:
  """Clients fit their own head to the representation that they get, then the representation to that head.

  A visit is `head` epochs that change the head only, then the base's epochs that change the representation
  only; both count in steps if the base does. Only the representation is sent and averaged. Every head
  begins as the initial model's.

  Args:
    base: a method that trains locally; FedAvg by default.
    head: epochs or steps on the head.

  Returns:
    The method. A client's model is the averaged representation with its own head after `head` epochs on it
    (as the authors do before they report). The global model has no head: it keeps the initial one, which
    nothing was trained for, so that the global test accuracy says little, and so do methods that look at
    the global model's predictions on the server. To a base's transforms the global model has the client's
    own head: FedProx pulls towards it; SCAFFOLD does not fit, it would hold the head back by its own last
    gradient. VHL aligns during its first epochs, in which the representation rests, unless `vhl.align_epochs` is
    larger than `head`. A part that rests has no gradient, but its optimizer's state runs on: in momentum only the
    weight decay shows, in Adam the count of steps.

  Raises:
    ValueError: if the base does not train locally, or has a layer that must know what stays on the client (Ditto, dp,
      FedExP), which is put around FedRep instead.
  """
  base = base or fedavg()
  if inner := {*base.name.split('+')} & {'ditto', 'dp', 'fedexp'}:
    layer = min(inner)
    raise ValueError(
      f"'fedrep' cannot be put around {layer!r}, which would not know of the heads that stay: use fedrep+{layer}"
    )

  def client(task):
    local, is_head = base.client, task.model.is_head

    def heads(params: Params) -> dict:  # flat, so that leaves of the representation leave no trace
      leaves = jax.tree_util.tree_leaves_with_path(params)
      return {jax.tree_util.keystr(path): leaf for path, leaf in leaves if is_head(path)}

    def with_head(params: Params, own: dict) -> Params:
      put = lambda path, leaf: own.get(jax.tree_util.keystr(path), leaf)
      return jax.tree_util.tree_map_with_path(put, params)

    def prepare(visit):  # the step at which the representation takes over
      return head * (-(-visit.shard.size // local.batch_size) if local.epochs else 1)

    def rests(path, index, switch):
      return index >= switch if is_head(path) else index < switch

    def grad(switch, grad_fn):
      def masked(params, step):
        value, g = grad_fn(params, step)
        mask = lambda path, g: jnp.where(rests(path, step.index, switch), jnp.zeros_like(g), g)
        return value, jax.tree_util.tree_map_with_path(mask, g)

      return masked

    def step(switch, old, new, grads, now):  # momentum and decay move what has no gradient, too
      keep = lambda path, o, n: jnp.where(rests(path, now.index, switch), o, n)
      return jax.tree_util.tree_map_with_path(keep, old, new)

    def seal(key, body):
      shape = jax.tree.structure(body['params'])
      blank = lambda path, leaf: jnp.zeros_like(leaf) if is_head(path) else leaf
      return {
        name: jax.tree_util.tree_map_with_path(blank, part)
        if jax.tree.structure(part) == shape
        else part
        for name, part in body.items()
      }

    def personal(switch, visit, trained):
      return trained._replace(
        params=with_head(visit.params, heads(trained.params)), stats=visit.stats
      )

    def metrics(switch, visit, trained):
      moved = optax.tree.sub(heads(trained.params), heads(visit.params))
      return {'head_moved': optax.tree.norm(moved)}

    return ClientTransform(
      'fedrep',
      metrics=metrics,
      init=lambda initial, shard: heads(initial.params),
      start=lambda visit, params: with_head(params, visit.state['fedrep']),
      prepare=prepare,
      grad=grad,
      step=step,
      finish=lambda switch, visit, trained, steps: (None, heads(trained.params)),
      seal=seal,
      personal=personal,
    )

  why = "'fednova' counts all steps of a visit alike, and those on the head leave what is sent where it is"
  conflicts = {'fednova+fedprox': f'{why}; without fedprox that is only a common factor'}
  if getattr(base.client, 'momentum', None):
    conflicts = {'fednova': f'{why}: use client.momentum=0'}
  method = base.extend(
    'fedrep',
    client=client,
    private=lambda model, path: model.is_head(path),
    conflicts=conflicts,
  )
  local = base.client
  counted = {'epochs': local.epochs + head} if local.epochs else {'steps': local.steps + head}
  return method._replace(client=local._replace(**counted))
