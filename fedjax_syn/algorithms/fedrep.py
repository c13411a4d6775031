"""FedRep: a shared representation and personal heads (Collins et al., 2021, Algorithm 1)."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax

from fedjax_syn.core.contexts import ClientContext
from fedjax_syn.core.fields import field
from fedjax_syn.core.types import Array, Params
from fedjax_syn.layer import Layer

IsHead = Callable[[tuple], bool]


class FedRep(Layer):
  """Clients train their own head on the representation, then the representation with that head.

  In a round a client trains its head for `head` epochs, then the representation for client.epochs;
  both are steps if client.steps is given. Only the representation is sent and averaged. A head is
  the client's state, at first the initial model's.

  A client's own model is the averaged representation with its head after `head` epochs on it, as in
  the authors' evaluation. The global model keeps the initial head, which nothing trains. So its
  test accuracy says little, and methods that use the global model's predictions on the server do
  not fit. On a client, other layers see the global model with the client's own head: FedProx's term
  refers to that head, and SCAFFOLD does not fit, since it would correct the head by its own last
  gradient. VHL aligns features in its first epochs, in which the representation is frozen unless
  `vhl.align_epochs` is larger than `head`. A frozen part has no gradient, but its optimizer state
  is
  updated: momentum by the weight decay, Adam by the count of steps.
  """

  head: int = field(10, 'local epochs (or steps) on the head, first (paper 10)', low=0, high=10_000)

  def conflicts(self):
    why = (
      "'fednova' counts all steps of a client alike, and those on the head leave what is sent where"
      ' it is'
    )
    return {
      'fednova+momentum': f'{why}: use client.momentum=0',
      'fednova+fedprox': f'{why}; without fedprox that is only a common factor',
    }

  def inside_of(self):
    return dict.fromkeys(('ditto', 'dp', 'fedexp'), 'which would not know of the heads that stay')

  def local(self, local):
    if local.epochs:
      return dataclasses.replace(local, epochs=local.epochs + self.head)
    return dataclasses.replace(local, steps=local.steps + self.head)

  def private(self, model, path):
    return model.is_head(path)

  def client_init(self, task, initial, shard):
    return _heads(initial.params, task.model.is_head)

  def receive(self, client, params):
    return _with_heads(params, client.state)

  def prepare(self, client):  # the first step on the representation
    local = client.task.local
    return self.head * (-(-client.shard.size // local.batch_size) if local.epochs else 1)

  def grad(self, client, grad_fn, w, step):
    value, g = grad_fn(w, step)
    mask = lambda path, g: jnp.where(_frozen(client, path, step.index), jnp.zeros_like(g), g)
    return value, jax.tree_util.tree_map_with_path(mask, g)

  def step(self, client, old, new, grads, step):  # undoes momentum and weight decay
    keep = lambda path, old, new: jnp.where(_frozen(client, path, step.index), old, new)
    return jax.tree_util.tree_map_with_path(keep, old, new)

  def finish(self, client, trained, steps):
    return None, _heads(trained.params, client.task.model.is_head)

  def postprocess_update(self, client, payload):
    """Sends zeros for the heads, also in other layers' parts with the parameters' structure."""
    is_head, structure = client.task.model.is_head, jax.tree.structure(payload['params'])
    zero = lambda path, leaf: jnp.zeros_like(leaf) if is_head(path) else leaf
    without = lambda part: jax.tree_util.tree_map_with_path(zero, part)
    is_model = lambda part: jax.tree.structure(part) == structure
    return {name: without(part) if is_model(part) else part for name, part in payload.items()}

  def client_metrics(self, client, trained):
    is_head = client.task.model.is_head
    moved = optax.tree.sub(_heads(trained.params, is_head), _heads(client.params, is_head))
    return {'head_moved': optax.tree.norm(moved)}

  def personal(self, client, trained):
    own = _heads(trained.params, client.task.model.is_head)
    return trained._replace(params=_with_heads(client.params, own), stats=client.stats)


def _heads(params: Params, is_head: IsHead) -> dict[str, Array]:
  """Returns the head's leaves by path."""
  leaves = jax.tree_util.tree_leaves_with_path(params)
  return {jax.tree_util.keystr(path): leaf for path, leaf in leaves if is_head(path)}


def _with_heads(params: Params, own: dict[str, Array]) -> Params:
  put = lambda path, leaf: own.get(jax.tree_util.keystr(path), leaf)
  return jax.tree_util.tree_map_with_path(put, params)


def _frozen(client: ClientContext, path: tuple, index: Array) -> Array:
  """Returns whether a leaf does not change in a step, []."""
  switch = client.prepared
  return index >= switch if client.task.model.is_head(path) else index < switch
