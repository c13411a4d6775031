"""A mean over images taken piece by piece: what a piece leaves behind stays in cache, and devices share the pieces."""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedjax_syn.core import processes
from fedjax_syn.core.types import Array, Model, Params

SMALLEST = 5  # images of a piece: with fewer, loops cost more than caches give (docs/speed.md)

Loss = Callable[
  [Params, Array, Array], Array
]  # (w, images, label logits) -> mean over the images, []


def in_pieces(loss: Loss, pieces: int, mesh: jax.sharding.Mesh | None = None) -> Loss:
  """Evaluates a loss, and its gradients, on pieces of the images in turn.

  Gradients are summed as the pieces come, so that no more than one piece's activations exist at a time.
  Values and derivatives (also those of the gradients) are the loss's own but for rounding, if no image sees
  another: a network with batch statistics does not fit.

  Args:
    loss: a mean over images.
    pieces: how many, on every device; together with the mesh they divide the number of images.
    mesh: its devices share the images; what is differentiated has to lie on all of them.

  Returns:
    The loss, to be called like the one given.
  """
  shards = mesh.devices.size if mesh else 1
  if pieces == shards == 1:
    return loss
  axis = mesh.axis_names[0] if mesh else None

  def split(x, y):
    return tuple(v.reshape(pieces, v.shape[0] // pieces, *v.shape[1:]) for v in (x, y))

  def mean(tree):
    total = jax.lax.psum(tree, axis) if axis else tree
    return jax.tree.map(lambda v: v / (pieces * shards), total)

  def value(w, x, y):
    add = lambda total, part: (total + loss(w, *part), None)
    return mean(jax.lax.scan(add, jnp.zeros((), x.dtype), split(x, y))[0])

  def of_weights(w, x, y):  # value, gradient
    def add(total, part):
      return jax.tree.map(jnp.add, total, jax.value_and_grad(loss)(w, *part)), None

    return mean(
      jax.lax.scan(add, (jnp.zeros((), x.dtype), jax.tree.map(jnp.zeros_like, w)), split(x, y))[0]
    )

  def of_all(w, x, y):
    def add(total, part):
      one, (of_w, *of_images) = jax.value_and_grad(loss, argnums=(0, 1, 2))(w, *part)
      return jax.tree.map(jnp.add, total, (one, of_w)), of_images

    start = jnp.zeros((), x.dtype), jax.tree.map(jnp.zeros_like, w)
    total, of_images = jax.lax.scan(add, start, split(x, y))
    share = lambda g, v: g.reshape(v.shape) / (pieces * shards)
    return *mean(total), *map(share, of_images, (x, y))

  if mesh:
    everywhere, own = jax.sharding.PartitionSpec(), jax.sharding.PartitionSpec(axis)

    def spread(f, *out):
      specs = {'in_specs': (everywhere, own, own), 'out_specs': out[0] if len(out) == 1 else out}
      return jax.shard_map(f, mesh=mesh, check_vma=False, **specs)

    value = spread(value, everywhere)
    of_weights = spread(of_weights, everywhere, everywhere)
    of_all = spread(of_all, everywhere, everywhere, own, own)

  @jax.custom_vjp
  def whole(w, x, y):
    return value(w, x, y)

  def forward(w, x, y):
    still = not any(leaf.perturbed for leaf in (x, y))  # a step of training: half the work
    plain = jax.tree.map(lambda leaf: leaf.value, (w, x, y), is_leaf=lambda v: hasattr(v, 'value'))
    total, *gradients = (of_weights if still else of_all)(*plain)
    return total, gradients

  def backward(gradients, v):
    own = [jax.tree.map(lambda g: v * g, gradient) for gradient in gradients]
    return tuple(own) + (None,) * (3 - len(own))

  whole.defvjp(forward, backward, symbolic_zeros=True)
  return whole


class Split(NamedTuple):
  """How images are taken in pieces."""

  pieces: int = 1  # on every device
  mesh: jax.sharding.Mesh | None = None  # of the devices that share the images; None: one


def split_of(
  pieces: int, images: int, model: Model, mesh: jax.sharding.Mesh | None, key: str
) -> Split:
  """Says how a step's images are taken.

  With `pieces` = 0 a CPU's devices share them, in pieces of `SMALLEST` images or a few more, if the network
  has convolutions and no batch statistics; elsewhere they are taken at once.

  Args:
    pieces: in all; 0 is the choice above.
    images: of a step.
    model: the network.
    mesh: the run's devices; None: one.
    key: of the setting, for the refusal.

  Raises:
    ValueError: if the images do not divide, or see each other.
  """
  variables = jax.eval_shape(model.init, jax.random.key(0))
  convolutions = any(leaf.ndim == 4 for leaf in jax.tree.leaves(variables.params))
  devices = mesh.devices.size if mesh is not None and not processes.is_distributed() else 1
  if pieces > 1 and variables.stats:
    raise ValueError(
      f'{key}={pieces}: the network has batch statistics, so that images see each other; use 1'
    )
  if pieces and images % pieces:
    raise ValueError(f'{key}={pieces}: {images} images do not divide into as many pieces')
  if not pieces and (jax.default_backend() != 'cpu' or not convolutions or variables.stats):
    return Split()
  shards = math.gcd(devices, pieces or images)
  own = images // shards
  fit = (p for p in range(1, own + 1) if own % p == 0 and own // p >= SMALLEST)
  own_pieces = pieces // shards if pieces else max(fit, default=1)
  if shards == 1:
    return Split(own_pieces)
  some = jax.sharding.Mesh(mesh.devices.flat[:shards], mesh.axis_names)
  return Split(own_pieces, some)
