"""FedRep: a shared representation and a head of each client's own (Collins et al., 2021, Algorithm 1)."""

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
  """Clients fit their own head to the representation that they get, then the representation to that head.

  A round of a client is `head` epochs that change the head only, then client.epochs that change the representation
  only; both count in steps if client.steps is given. Only the representation is sent and averaged. Every head begins
  as the initial model's, and is the client's state.

  A client's own model is the averaged representation with its own head after `head` epochs on it (as the authors do
  before they report). The global model has no head: it keeps the initial one, which nothing was trained for. So the
  global test accuracy says little, and so do methods that look at the global model's predictions on the server. To
  other layers the global model on a client has the client's own head: FedProx pulls towards it; SCAFFOLD does not fit,
  since it would hold the head back by its own last gradient. VHL aligns during its first epochs, in which the
  representation rests, unless `vhl.align_epochs` is larger than `head`. A part that rests has no gradient, but its
  optimizer's state runs on: in momentum only the weight decay shows, in Adam the count of steps.
  """

  head: int = field(
    default=10,
    help='local epochs (steps, if client.steps is given) on the head, before client.epochs on the rest (paper 10)',
    low=0,
    high=10_000,
  )

  def conflicts(self):
    why = "'fednova' counts all steps of a client alike, and those on the head leave what is sent where it is"
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

  def prepare(self, client):  # the step at which the representation takes over
    local = client.task.local
    return self.head * (-(-client.shard.size // local.batch_size) if local.epochs else 1)

  def grad(self, client, grad_fn, w, step):
    value, g = grad_fn(w, step)
    mask = lambda path, g: jnp.where(_rests(client, path, step.index), jnp.zeros_like(g), g)
    return value, jax.tree_util.tree_map_with_path(mask, g)

  def step(self, client, old, new, grads, step):  # momentum and decay move what has no gradient
    keep = lambda path, old, new: jnp.where(_rests(client, path, step.index), old, new)
    return jax.tree_util.tree_map_with_path(keep, old, new)

  def finish(self, client, trained, steps):
    return None, _heads(trained.params, client.task.model.is_head)

  def postprocess_update(self, client, payload):
    """Blanks the heads, also in what other layers send of the parameters' shape."""
    is_head, shape = client.task.model.is_head, jax.tree.structure(payload['params'])
    blank = lambda path, leaf: jnp.zeros_like(leaf) if is_head(path) else leaf
    blanked = lambda part: jax.tree_util.tree_map_with_path(blank, part)
    is_model = lambda part: jax.tree.structure(part) == shape
    return {name: blanked(part) if is_model(part) else part for name, part in payload.items()}

  def client_metrics(self, client, trained):
    is_head = client.task.model.is_head
    moved = optax.tree.sub(_heads(trained.params, is_head), _heads(client.params, is_head))
    return {'head_moved': optax.tree.norm(moved)}

  def personal(self, client, trained):
    own = _heads(trained.params, client.task.model.is_head)
    return trained._replace(params=_with_heads(client.params, own), stats=client.stats)


def _heads(params: Params, is_head: IsHead) -> dict[str, Array]:
  """Returns the head's leaves by path: flat, so that the representation's leaves leave no trace."""
  leaves = jax.tree_util.tree_leaves_with_path(params)
  return {jax.tree_util.keystr(path): leaf for path, leaf in leaves if is_head(path)}


def _with_heads(params: Params, own: dict[str, Array]) -> Params:
  put = lambda path, leaf: own.get(jax.tree_util.keystr(path), leaf)
  return jax.tree_util.tree_map_with_path(put, params)


def _rests(client: ClientContext, path: tuple, index: Array) -> Array:
  """Says whether a leaf stays as it is in a step, []."""
  switch = client.prepared
  return index >= switch if client.task.model.is_head(path) else index < switch
