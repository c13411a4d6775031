"""Microbatches: a batch is processed in parts, and values and gradients are added up.

The activations of a microbatch stay in a core's cache, and devices can share the microbatches. All
functions here need a network in which no sample sees another, so one without batch statistics.
Microbatches are consecutive rows and sums go from the first to the last: `optax.microbatching`
takes every n-th row, so its sums differ in the last bits.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedjax_syn.core import processes
from fedjax_syn.core.mesh import backend_of
from fedjax_syn.core.types import Array, GradFn, LossFn, Model, Output, Params, PyTree, Step

# The fewest images of a microbatch, of a local batch and of a synthetic set: with fewer, loops cost
# more time than caches save (docs/speed.md).
LEAST_LOCAL, LEAST_SYNTHETIC = 16, 5
CACHE = 2**20  # bytes of the largest array of a step that a core keeps beside the others, about

# (w, images, label logits) -> mean over the images, []
ImageLoss = Callable[[Params, Array, Array], Array]


class Microbatches(NamedTuple):
  """How the images of a step are divided."""

  number: int = 1  # on every device
  mesh: jax.sharding.Mesh | None = None  # of the devices that share the images; None: one


def _helps(model: Model, backend: str) -> bool:
  """Says whether microbatches save time: on a CPU, for convolutions without batch statistics."""
  variables = jax.eval_shape(model.init, jax.random.key(0))
  convolutions = any(leaf.ndim == 4 for leaf in jax.tree.leaves(variables.params))
  return (backend or jax.default_backend()) == 'cpu' and convolutions and not variables.stats


def num_microbatches(
  model: Model, shape: tuple[int, ...], dtype: jnp.dtype, batch_size: int, backend: str = ''
) -> int:
  """Returns into how many microbatches a local step divides its batch: 1 where they save no time.

  Args:
    model: the network.
    shape: of an image.
    dtype: of a normalised image.
    batch_size: images of a step.
    backend: 'cpu', 'gpu' or 'tpu'; '' is JAX's default.

  Returns:
    A divisor of the batch size; microbatches have at least `LEAST_LOCAL` images.
  """
  if not _helps(model, backend):
    return 1
  variables = jax.eval_shape(model.init, jax.random.key(0))
  batch = jax.ShapeDtypeStruct((batch_size, *shape), dtype)
  program = jax.make_jaxpr(lambda v, x: model.apply(v, x, train=True))(variables, batch).jaxpr
  if max(v.aval.size * v.aval.dtype.itemsize for e in program.eqns for v in e.outvars) <= CACHE:
    return 1
  fit = range(1, batch_size // LEAST_LOCAL + 1)
  return max((n for n in fit if batch_size % n == 0), default=1)


def synthetic_microbatches(
  images: int, model: Model, mesh: jax.sharding.Mesh | None
) -> Microbatches:
  """Returns how a step on a synthetic set divides its images.

  On a CPU, for a network with convolutions and without batch statistics, all devices share the
  images in microbatches of about `LEAST_SYNTHETIC`; elsewhere there is one.

  Args:
    images: of a step.
    model: the network.
    mesh: the run's devices; None: one.
  """
  if not _helps(model, '' if mesh is None else backend_of(mesh)):
    return Microbatches()
  devices = mesh.devices.size if mesh is not None and not processes.is_distributed() else 1
  shards = math.gcd(devices, images)
  own = images // shards
  fit = (n for n in range(1, own + 1) if own % n == 0 and own // n >= LEAST_SYNTHETIC)
  number = max(fit, default=1)
  if mesh is None or shards == 1:
    return Microbatches(number)
  return Microbatches(number, jax.sharding.Mesh(mesh.devices.flat[:shards], mesh.axis_names))


def _sum_over(
  f: Callable[..., tuple[PyTree, PyTree]], zeros: PyTree, number: int, *arrays: Array
) -> tuple[PyTree, PyTree]:
  """Calls f on each microbatch of the arrays; adds up its first result and stacks the second."""
  split = lambda v: v.reshape(number, v.shape[0] // number, *v.shape[1:])

  def add(total, part):
    summed, stacked = f(*part)
    return jax.tree.map(jnp.add, total, summed), stacked

  return jax.lax.scan(add, zeros, tuple(map(split, arrays)))


def value_and_grad(loss_fn: LossFn, number: int) -> GradFn:
  """Differentiates a local loss on the microbatches of a batch.

  Args:
    loss_fn: a mean over the samples of the mask.
    number: of microbatches, a divisor of the batch size.

  Returns:
    `jax.value_and_grad(loss_fn, has_aux=True)` except for rounding. The network's output cannot be
    differentiated, so a layer's loss must not look at it.
  """
  if number == 1:
    return jax.value_and_grad(loss_fn, has_aux=True)

  def grad_fn(params: Params, step: Step):
    samples = jnp.maximum(step.mask.sum(), 1)

    def share(params, x, y, mask):
      loss, out = loss_fn(params, step._replace(x=x, y=y, mask=mask))
      return loss * (mask.sum() / samples), out

    def one(*part):
      (loss, out), grads = jax.value_and_grad(share, has_aux=True)(params, *part)
      return (loss, grads), (out.logits, out.features)

    zeros = jnp.zeros((), step.mask.dtype), jax.tree.map(jnp.zeros_like, params)
    (loss, grads), outputs = _sum_over(one, zeros, number, step.x, step.y, step.mask)
    logits, features = (v.reshape(-1, *v.shape[2:]) for v in outputs)
    return (loss, Output(logits, features, step.stats)), grads

  return grad_fn


def microbatched(loss: ImageLoss, number: int, mesh: jax.sharding.Mesh | None = None) -> ImageLoss:
  """Evaluates a loss on images, and its derivatives, on one microbatch after the other.

  Gradients are added up as they come, so that the activations of one microbatch exist at a time.
  Value, gradient and derivatives of the gradient are those of the loss except for rounding.

  Args:
    loss: a mean over images.
    number: of microbatches on every device; times the devices, a divisor of the number of images.
    mesh: its devices share the images; what is differentiated has to lie on all of them.

  Returns:
    The loss, called with the same arguments.
  """
  shards = mesh.devices.size if mesh else 1
  if number == shards == 1:
    return loss
  axis = mesh.axis_names[0] if mesh else None

  def mean(tree):
    total = jax.lax.psum(tree, axis) if axis else tree
    return jax.tree.map(lambda v: v / (number * shards), total)

  def value(w, x, y):
    one = lambda *part: (loss(w, *part), None)
    return mean(_sum_over(one, jnp.zeros((), x.dtype), number, x, y)[0])

  def of_weights(w, x, y):  # value, gradient
    one = lambda *part: (jax.value_and_grad(loss)(w, *part), None)
    zeros = jnp.zeros((), x.dtype), jax.tree.map(jnp.zeros_like, w)
    return mean(_sum_over(one, zeros, number, x, y)[0])

  def of_all(w, x, y):
    def one(*part):
      value, (of_w, *of_images) = jax.value_and_grad(loss, argnums=(0, 1, 2))(w, *part)
      return (value, of_w), of_images

    zeros = jnp.zeros((), x.dtype), jax.tree.map(jnp.zeros_like, w)
    total, of_images = _sum_over(one, zeros, number, x, y)
    share = lambda g, v: g.reshape(v.shape) / (number * shards)
    return *mean(total), *map(share, of_images, (x, y))

  if mesh:
    everywhere, own = jax.sharding.PartitionSpec(), jax.sharding.PartitionSpec(axis)

    def sharded(f, *out):
      specs = {'in_specs': (everywhere, own, own), 'out_specs': out[0] if len(out) == 1 else out}
      return jax.shard_map(f, mesh=mesh, check_vma=False, **specs)

    value = sharded(value, everywhere)
    of_weights = sharded(of_weights, everywhere, everywhere)
    of_all = sharded(of_all, everywhere, everywhere, own, own)

  @jax.custom_vjp
  def whole(w, x, y):
    return value(w, x, y)

  def forward(w, x, y):
    training = not any(leaf.perturbed for leaf in (x, y))  # the images are data: half the work
    plain = jax.tree.map(lambda leaf: leaf.value, (w, x, y), is_leaf=lambda v: hasattr(v, 'value'))
    total, *gradients = (of_weights if training else of_all)(*plain)
    return total, gradients

  def backward(gradients, v):
    own = [jax.tree.map(lambda g: v * g, gradient) for gradient in gradients]
    return tuple(own) + (None,) * (3 - len(own))

  whole.defvjp(forward, backward, symbolic_zeros=True)
  return whole
