"""Gradient matching: sets whose gradient points where another set's does (FedDualMatch, Eq. 4; DC, Zhao et al., 2021)."""

import jax
import jax.numpy as jnp

from fedjax_syn.algorithms.set_sharing.class_sets import ClassSet, over_present
from fedjax_syn.core.types import Array, Model, Params, Stats, Variables

EPSILON = 1e-6  # beside the product of the norms, as in DC's code


def distance(a: Params, b: Params) -> Array:
  """Sum over layers and output units of 1 - cos between two gradients.

  Args:
    a: gradients; a leaf of two or more axes has one row per output unit, its last axis.
    b: the same.

  Returns:
    The distance, []; leaves of one axis (biases, norms) count for nothing. Source: DC's layer-wise distance.
  """

  def layer(a, b):
    if a.ndim < 2:
      return jnp.zeros(())
    a, b = (g.reshape(-1, g.shape[-1]) for g in (a, b))
    dot, square_a, square_b = (a * b).sum(0), (a * a).sum(0), (b * b).sum(0)
    norms = _safe_sqrt(square_a) * _safe_sqrt(square_b)
    return jnp.sum(1 - dot / (norms + EPSILON))

  return sum(jax.tree.leaves(jax.tree.map(layer, a, b)), jnp.zeros(()))


def _safe_sqrt(x: Array) -> Array:
  """sqrt whose derivative at 0 is 0."""
  return jnp.sqrt(jnp.where(x > 0, x, 1.0)) * (x > 0)


def class_loss(model: Model, w: Params, stats: Stats, x: Array, c: Array) -> Array:
  """Sum of the cross-entropy of a class's images [images, ...], []."""
  logits = model.apply(Variables(w, stats), x, train=False).logits
  return -jnp.sum(jax.nn.log_softmax(logits)[:, c])


def set_gradient(model: Model, w: Params, stats: Stats, own: ClassSet) -> Params:
  """Gradient in w of the mean cross-entropy on one client's set; zeros for an empty one."""

  def add(c, total):
    grads = jax.grad(class_loss, argnums=1)(model, w, stats, own.x[c], c)
    return jax.tree.map(jnp.add, total, grads)

  total = over_present(own.present, add, jax.tree.map(jnp.zeros_like, w))
  images = jnp.maximum(own.present.sum() * own.x.shape[1], 1)
  return jax.tree.map(lambda g: g / images, total)


def union_gradient(model: Model, w: Params, stats: Stats, sets: ClassSet) -> Params:
  """Gradient in w of the mean cross-entropy on the union of all clients' sets, leaves of `sets` [clients, ...]."""
  counts = sets.present.sum(axis=-1)

  def add(total, inputs):
    own, count = inputs
    grads = set_gradient(model, w, stats, own)
    return jax.tree.map(lambda t, g: t + count * g, total, grads), None

  zero = jax.tree.map(jnp.zeros_like, w)
  total, _ = jax.lax.scan(add, zero, (sets, counts))
  return jax.tree.map(lambda g: g / jnp.maximum(counts.sum(), 1), total)


def match(
  model: Model,
  w: Params,
  stats: Stats,
  start: ClassSet,
  target: Params,
  steps: int,
  lr: Array | float,
) -> tuple[ClassSet, Array]:
  """Moves one client's set so that its gradient at w comes near a target.

  d/dX dist(g(X), target) = d/dX <grad_w l(X), v> with v = d dist / d g, and that is the derivative of
  grad_X l along v: one tangent per class, so that absent classes cost nothing.

  Args:
    model: the network.
    w: where gradients are taken.
    stats: running statistics, held fixed.
    start: the client's set.
    target: a gradient, as of `union_gradient`.
    steps: steps of gradient descent.
    lr: their rate.

  Returns:
    The moved set, and the distance before the last step, [].
  """
  images = jnp.maximum(start.present.sum() * start.x.shape[1], 1)

  def step(i, carry):
    own, _ = carry
    g = set_gradient(model, w, stats, own)
    value, v = jax.value_and_grad(distance)(g, target)

    def move(c, x):
      along = lambda w: jax.grad(class_loss, argnums=3)(model, w, stats, own.x[c], c)
      slope = jax.jvp(along, (w,), (v,))[1] / images
      return x.at[c].add(-lr * slope)

    return own._replace(x=over_present(own.present, move, own.x)), value

  return jax.lax.fori_loop(0, steps, step, (start, jnp.zeros(())))


def radius(model: Model, w: Params, stats: Stats, sets: ClassSet, lr: Array | float) -> Array:
  """R_t = max_k ||w^{S_k} - w^S||, each one gradient step of size lr from w, []. Source: Algorithm 1, line 4."""
  union = union_gradient(model, w, stats, sets)

  def apart(own):
    g = set_gradient(model, w, stats, own)
    square = sum(
      jnp.sum((a - b) ** 2) for a, b in zip(*map(jax.tree.leaves, (g, union)), strict=True)
    )
    return jnp.where(own.present.any(), jnp.sqrt(square), 0.0)

  return lr * jax.lax.map(apart, sets).max()
