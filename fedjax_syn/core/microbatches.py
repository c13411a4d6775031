"""Microbatches: a batch is processed in parts, and values and gradients are added up.

The activations of a microbatch stay in a core's cache, and devices can share the microbatches. All
functions here need a network in which no sample sees another, so one without batch statistics.
Microbatches are consecutive rows and sums go from the first to the last: `optax.microbatching`
takes every n-th row, so its sums differ in the last bits.

Which steps on synthetic images the devices share, those of several processes too:

| network                           | shared | why                                              |
|-----------------------------------|--------|--------------------------------------------------|
| convolutions, no batch statistics | yes    | a parameter is used at many positions of an image |
| no convolutions                   | no     | the sum of the gradients takes as long as a step |
| batch statistics                  | no     | images see each other                            |

What is not shared, one device does between rounds, and every device in a round's program.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedjax_syn.core import processes
from fedjax_syn.core.mesh import backend_of
from fedjax_syn.core.types import (
  Array,
  GradFn,
  LossFn,
  Model,
  Output,
  Params,
  PyTree,
  Step,
  Variables,
)

# The fewest images of a microbatch, of a local batch and of a synthetic set: with fewer, loops cost
# more time than caches save (docs/speed.md).
LEAST_LOCAL, LEAST_SYNTHETIC = 16, 5
LEAST_OF_BLOCKS = 8  # of a local batch, where images are not the fastest axis (`models.blocks`)
BLOCK = 'custom_vjp_call'  # what a block is in a program
CACHE = 2**20  # bytes of the largest array of a step that a core keeps beside the others, about

ImageLosses = Callable[[Params, Array, Array], Array]  # (w, images, labels) -> [images]
ImageLoss = Callable[[Params, Array, Array], Array]  # (w, images, labels) -> their mean, []


class Microbatches(NamedTuple):
  """How the images of a step are divided."""

  number: int = 1  # on every device
  mesh: jax.sharding.Mesh | None = None  # of the devices that share the images; None: one


def _shapes(model: Model) -> Variables:
  return jax.eval_shape(model.init, jax.random.key(0))


def _is_shared(variables: Variables) -> bool:
  """Returns whether parts of a batch can and should be processed apart: see the table above."""
  convolutions = any(leaf.ndim == 4 for leaf in jax.tree.leaves(variables.params))
  return convolutions and not variables.stats


def num_microbatches(
  model: Model,
  shape: tuple[int, ...],
  dtype: jnp.dtype,
  batch_size: int,
  backend: str = '',
  variables: Variables | None = None,
) -> int:
  """Returns into how many microbatches a local step divides its batch: 1 where they save no time.

  Args:
    model: the network.
    shape: of an image.
    dtype: of a normalised image.
    batch_size: images of a step.
    backend: 'cpu', 'gpu' or 'tpu'; '' is JAX's default.
    variables: of the network, or their shapes; None: those of its first ones, which takes a trace.

  Returns:
    A divisor of the batch size; microbatches have at least `LEAST_LOCAL` images, or
    `LEAST_OF_BLOCKS`.
  """
  if (backend or jax.default_backend()) != 'cpu':
    return 1
  variables = _shapes(model) if variables is None else variables
  if not _is_shared(variables):
    return 1
  variables = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), variables)
  batch = jax.ShapeDtypeStruct((batch_size, *shape), dtype)
  program = jax.make_jaxpr(lambda v, x: model.apply(v, x, train=True))(variables, batch).jaxpr
  equations = list(_equations(program))
  if max(v.aval.size * v.aval.dtype.itemsize for e in equations for v in e.outvars) <= CACHE:
    return 1
  blocks = any(e.primitive.name == BLOCK for e in equations)
  fit = range(1, batch_size // (LEAST_OF_BLOCKS if blocks else LEAST_LOCAL) + 1)
  return max((n for n in fit if batch_size % n == 0), default=1)


def _equations(program: Any) -> Iterator[Any]:
  """Yields the equations of a program and of its blocks (`models.blocks`)."""
  for equation in program.eqns:
    yield equation
    if equation.primitive.name == BLOCK:
      yield from equation.params['call_jaxpr'].eqns


def synthetic_microbatches(
  images: int, model: Model, mesh: jax.sharding.Mesh | None
) -> Microbatches:
  """Returns how a step of work between rounds divides the images of a synthetic set.

  The table above says what is shared. On a CPU a device has at least `LEAST_SYNTHETIC` images, and
  takes about so many at once; elsewhere a device takes its images at once.

  Args:
    images: of a step.
    model: the network.
    mesh: the run's devices; None: one.
  """
  if not _is_shared(_shapes(model)):
    return Microbatches()
  devices = mesh.devices.size if mesh is not None else 1
  on_cpu = (jax.default_backend() if mesh is None else backend_of(mesh)) == 'cpu'
  if on_cpu and not processes.is_distributed():
    devices = min(devices, max(images // LEAST_SYNTHETIC, 1))
  number, own = 1, -(-images // devices)
  if on_cpu and images % devices:
    number = -(-own // LEAST_SYNTHETIC)
  elif on_cpu:
    fit = (n for n in range(1, own + 1) if own % n == 0 and own // n >= LEAST_SYNTHETIC)
    number = max(fit, default=1)
  if mesh is None or devices == 1:
    return Microbatches(number)
  return Microbatches(number, jax.sharding.Mesh(mesh.devices.flat[:devices], mesh.axis_names))


def round_microbatches(
  images: int, model: Model, image: jax.Array, mesh: jax.sharding.Mesh | None
) -> Microbatches:
  """Returns how a step inside a round's program divides its images, by the table above.

  Args:
    images: of a step.
    model: the network.
    image: one, normalised, or its shape and type.
    mesh: the round's devices; None: one, which takes all images at once.
  """
  if mesh is None or mesh.devices.size == 1 or not _is_shared(variables := _shapes(model)):
    return Microbatches()
  sizes = image.shape, image.dtype, -(-images // mesh.devices.size)
  return Microbatches(num_microbatches(model, *sizes, backend_of(mesh), variables), mesh)


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


def microbatched(
  losses: ImageLosses, number: int = 1, mesh: jax.sharding.Mesh | None = None
) -> ImageLoss:
  """Returns the mean of the images' losses, computed on one microbatch after the other.

  Gradients are added up as they come, so that the activations of one microbatch exist at a time.
  Value, gradient and derivatives of the gradient are those of the mean except for rounding. Where
  the microbatches do not divide the images, copies of the last image with weight 0 fill them.

  Args:
    losses: of each image; no image sees another.
    number: of microbatches on every device.
    mesh: its devices share the images; what is differentiated has to lie on all of them.

  Returns:
    A function of the arguments of `losses`.
  """
  if number == 1 and (mesh is None or mesh.devices.size == 1):
    return lambda w, x, y: losses(w, x, y).mean()
  value, of_weights, of_all = _value_and_gradients(losses, number, mesh)

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


def _value_and_gradients(
  losses: ImageLosses, number: int, mesh: jax.sharding.Mesh | None
) -> tuple[Callable[..., Any], ...]:
  """Returns functions of (w, images, labels), as for `microbatched`.

  Returns:
    The mean loss; it and its gradient in w; it and its gradients in w, images and labels.
  """
  axis = mesh.axis_names[0] if mesh else None
  parts = number * (mesh.devices.size if mesh else 1)

  def loss(w, x, y, weights=None):  # of a microbatch; their mean is that of all images
    each = losses(w, x, y)
    return each.mean() if weights is None else jnp.dot(weights.astype(each.dtype), each)

  def mean(tree):
    total = jax.lax.psum(tree, axis) if axis else tree
    return jax.tree.map(lambda v: v / parts, total)

  def value(w, *arrays):
    one = lambda *part: (loss(w, *part), None)
    return (mean(_sum_over(one, jnp.zeros((), arrays[0].dtype), number, *arrays)[0]),)

  def of_weights(w, *arrays):
    one = lambda *part: (jax.value_and_grad(loss)(w, *part), None)
    zeros = jnp.zeros((), arrays[0].dtype), jax.tree.map(jnp.zeros_like, w)
    return mean(_sum_over(one, zeros, number, *arrays)[0])

  def of_all(w, *arrays):
    def one(*part):
      value, (of_w, *of_images) = jax.value_and_grad(loss, argnums=(0, 1, 2))(w, *part)
      return (value, of_w), of_images

    zeros = jnp.zeros((), arrays[0].dtype), jax.tree.map(jnp.zeros_like, w)
    total, of_images = _sum_over(one, zeros, number, *arrays)
    share = lambda g, v: g.reshape(v.shape) / parts
    return *mean(total), *map(share, of_images, arrays[:2])

  everywhere, own = jax.sharding.PartitionSpec(), jax.sharding.PartitionSpec(axis)

  def on_devices(f, *results):
    def call(w, x, y):
      arrays, g = _filled(x, y, parts), f
      if mesh:
        ins = everywhere, *[own] * len(arrays)
        g = jax.shard_map(f, mesh=mesh, check_vma=False, in_specs=ins, out_specs=results)
      outputs = zip(g(w, *arrays), results, strict=True)
      return tuple(v[: len(x)] if spec is own else v for v, spec in outputs)

    return call

  only = on_devices(value, everywhere)
  of_weights = on_devices(of_weights, everywhere, everywhere)
  return lambda *of: only(*of)[0], of_weights, on_devices(of_all, everywhere, everywhere, own, own)


def _filled(x: Array, y: Array, parts: int) -> tuple[Array, ...]:
  """Returns images and labels, and if `parts` does not divide them also copies and weights."""
  images = x.shape[0]
  copies = -images % parts
  if not copies:
    return x, y
  fill = lambda v: jnp.concatenate([v, jnp.repeat(v[-1:], copies, axis=0)])
  return fill(x), fill(y), (jnp.arange(images + copies) < images) * (parts / images)
