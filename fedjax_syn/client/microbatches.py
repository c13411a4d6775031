"""A local step's gradient, taken piece by piece of its batch, so that what a piece leaves behind stays in cache."""

import jax
import jax.numpy as jnp

from fedjax_syn.core.types import Array, GradFn, LossFn, Model, Output, Params, Step

SMALLEST = 16  # images of a piece, and lanes of a vector; with fewer, loops cost more than caches give (docs/speed.md)
CACHE = 2**20  # bytes of the largest array of a step, about what a core keeps beside the others


def count(model: Model, shape: tuple[int, ...], dtype: jnp.dtype, batch_size: int) -> int:
  """Says in how many pieces a batch is taken: 1 but on a CPU, for networks with convolutions.

  Args:
    model: the network; if it has batch statistics, images see each other.
    shape: of an image.
    dtype: of a normalised one.
    batch_size: images of a step.

  Returns:
    A divisor of the batch size, with pieces of at least `SMALLEST` images.
  """
  variables = jax.eval_shape(model.init, jax.random.key(0))
  convolutions = any(leaf.ndim == 4 for leaf in jax.tree.leaves(variables.params))
  if jax.default_backend() != 'cpu' or not convolutions or variables.stats:
    return 1
  batch = jax.ShapeDtypeStruct((batch_size, *shape), dtype)
  made = jax.make_jaxpr(lambda v, x: model.apply(v, x, train=True))(variables, batch).jaxpr
  largest = max(v.aval.size * v.aval.dtype.itemsize for e in made.eqns for v in e.outvars)
  if largest <= CACHE:
    return 1
  fit = range(1, batch_size // SMALLEST + 1)
  return max((n for n in fit if batch_size % n == 0), default=1)


def value_and_grad(loss_fn: LossFn, pieces: int) -> GradFn:
  """Differentiates a loss on pieces of the batch in turn and adds up.

  Args:
    loss_fn: a mean over the samples of the mask, of a network in which no sample sees another.
    pieces: a divisor of the batch size.

  Returns:
    `jax.value_and_grad(loss_fn, has_aux=True)` but for rounding. Of the output, nothing can be differentiated: it is
    not for a loss that looks at it.
  """
  if pieces == 1:
    return jax.value_and_grad(loss_fn, has_aux=True)

  def split(v: Array) -> Array:
    return v.reshape(pieces, v.shape[0] // pieces, *v.shape[1:])

  def join(v: Array) -> Array:
    return v.reshape(-1, *v.shape[2:])

  def grad_fn(params: Params, step: Step):
    samples = jnp.maximum(step.mask.sum(), 1)

    def share(params, x, y, mask):
      loss, out = loss_fn(params, step._replace(x=x, y=y, mask=mask))
      return loss * (mask.sum() / samples), out

    def add(total, part):
      (loss, out), grads = jax.value_and_grad(share, has_aux=True)(params, *part)
      return jax.tree.map(jnp.add, total, (loss, grads)), (out.logits, out.features)

    parts = tuple(map(split, (step.x, step.y, step.mask)))
    start = jnp.zeros((), step.mask.dtype), jax.tree.map(jnp.zeros_like, params)
    (loss, grads), outputs = jax.lax.scan(add, start, parts)
    return (loss, Output(*map(join, outputs), step.stats)), grads

  return grad_fn
