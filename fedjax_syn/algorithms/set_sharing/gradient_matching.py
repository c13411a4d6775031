"""Gradient matching of sets (FedDualMatch, Eq. 4; DC, Zhao et al., 2021)."""

import jax
import jax.numpy as jnp
import optax

from fedjax_syn.algorithms.set_sharing.class_sets import ClassSet, over_present
from fedjax_syn.core import clients
from fedjax_syn.core.types import Array, Model, Params, Stats, Variables

EPSILON = 1e-6  # added to the product of the norms, as in DC's code


def distance(a: Params, b: Params) -> Array:
  """Returns the sum over layers and output units of 1 - cos between two gradients.

  Args:
    a: gradients; a leaf of two or more axes has one row per output unit, its last axis.
    b: the same.

  Returns:
    The distance, []; leaves of one axis (biases, norms) do not count. Source: DC's layer-wise
    distance.
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
  """Returns the square root with derivative 0 at 0."""
  return jnp.sqrt(jnp.where(x > 0, x, 1.0)) * (x > 0)


def class_loss(model: Model, w: Params, stats: Stats, x: Array, c: Array) -> Array:
  """Returns the summed cross-entropy of a class's images [images, ...], []."""
  logits = model.apply(Variables(w, stats), x, train=False).logits
  return -jnp.sum(jax.nn.log_softmax(logits)[:, c])


def set_gradient(model: Model, w: Params, stats: Stats, own: ClassSet) -> Params:
  """Returns the gradient in w of the mean cross-entropy on a set; zeros for an empty one."""

  def add(c, total):
    grads = jax.grad(class_loss, argnums=1)(model, w, stats, own.x[c], c)
    return jax.tree.map(jnp.add, total, grads)

  total = over_present(own.present, add, jax.tree.map(jnp.zeros_like, w))
  images = jnp.maximum(own.present.sum() * own.x.shape[1], 1)
  return jax.tree.map(lambda g: g / images, total)


def union_gradient(model: Model, w: Params, stats: Stats, sets: ClassSet, axis: str = '') -> Params:
  """Returns the gradient in w of the mean cross-entropy on all sets.

  Args:
    model: the network.
    w: where the gradient is taken.
    stats: running statistics, held fixed.
    sets: leaves [clients, ...].
    axis: of a mesh whose devices have different clients; '': there is one device.
  """
  counts = sets.present.sum(axis=-1)

  def add(total, inputs):
    own, count = inputs
    grads = set_gradient(model, w, stats, own)
    return jax.tree.map(lambda t, g: t + count * g, total, grads), None

  zero = jax.tree.map(jnp.zeros_like, w)
  total, _ = jax.lax.scan(add, zero, (sets, counts))
  classes = counts.sum()
  if axis:
    total, classes = jax.lax.psum((total, classes), axis)
  return jax.tree.map(lambda g: g / jnp.maximum(classes, 1), total)


def match(
  model: Model,
  w: Params,
  stats: Stats,
  start: ClassSet,
  target: Params,
  steps: int,
  lr: Array | float,
) -> tuple[ClassSet, Array]:
  """Optimises one client's set so that its gradient at w approaches a target.

  d/dX dist(g(X), target) = d/dX <grad_w l(X), v> with v = d dist / d g, which is the derivative of
  grad_X l along
  v: one tangent per class, so that absent classes cost no time.

  Args:
    model: the network.
    w: where gradients are taken.
    stats: running statistics, held fixed.
    start: the client's set.
    target: a gradient, as of `union_gradient`.
    steps: steps of gradient descent.
    lr: rate of these steps.

  Returns:
    The set after the last step, and the distance before it, [].
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


def match_all(
  model: Model,
  w: Params,
  stats: Stats,
  sets: ClassSet,
  start: ClassSet,
  steps: int,
  lr: Array | float,
  mesh: jax.sharding.Mesh | None = None,
) -> tuple[ClassSet, Array]:
  """Optimises every client's set so that its gradient at w approaches that of all sets (Eq. 4).

  Args:
    model: the network.
    w: where gradients are taken.
    stats: running statistics, held fixed.
    sets: S, whose gradient is the target; leaves [clients, ...].
    start: where the clients' sets start, leaves [clients, ...].
    steps: steps of gradient descent.
    lr: rate of these steps.
    mesh: of the devices that share the clients; None: one.

  Returns:
    The sets after the last step and the distances before it, leaves [clients, ...].
  """

  def some(axis, common, sets, start):
    w, stats, lr = common
    target = union_gradient(model, w, stats, sets, axis)
    one = lambda own: match(model, w, stats, own, target, steps, lr)
    return clients.in_blocks(one, start, mesh)

  return clients.over_devices(some, mesh, (w, stats, lr), sets, start)


def radius(
  model: Model,
  w: Params,
  stats: Stats,
  sets: ClassSet,
  lr: Array | float,
  mesh: jax.sharding.Mesh | None = None,
) -> Array:
  """Returns R_t = max_k ||w^{S_k} - w^S||, each a step of rate lr from w, [] (line 4)."""

  def some(axis, common, sets):
    union = union_gradient(model, *common, sets, axis)

    def distance(own):
      difference = optax.tree.sub(set_gradient(model, *common, own), union)
      return jnp.where(own.present.any(), optax.tree.norm(difference), 0.0)

    return clients.in_blocks(distance, sets, mesh)

  return lr * clients.over_devices(some, mesh, (w, stats), sets).max()
