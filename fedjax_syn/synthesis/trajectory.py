"""Trajectory matching: a synthetic set whose training follows a segment of the global model's trajectory.

The inner problem trains from w^t on the set for s' steps of gradient descent; the outer problem moves
images, labels and step size so that the end lands near a later checkpoint. Source: DynaFed (Pi et al.,
2023), Eqs. 3-4 and Algorithm 1; the normalised distance is that of MTT (Cazenavette et al., 2022).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_syn.keys import fold
from fedjax_syn.synthesis.synthetic import SyntheticSet, minibatch, soft_cross_entropy
from fedjax_syn.typing import Array, Model, Params, PRNGKey, Stats, Variables

InnerLoss = Callable[[Params, Array, Array, PRNGKey], Array]  # (w, images, label logits, key) -> []
Augment = Callable[[PRNGKey, Array], Array]


def inner_loss(model: Model, stats: Stats, augment: Augment | None) -> InnerLoss:
  """Returns the loss on (augmented) synthetic images, with the running statistics held fixed."""

  def loss(params, x, y, key):
    if augment is not None:
      x = augment(key, x)
    return soft_cross_entropy(model.apply(Variables(params, stats), x, train=True).logits, y)

  return loss


def unroll(
  loss: InnerLoss,
  w: Params,
  syn: SyntheticSet,
  key: PRNGKey,
  steps: int,
  *,
  batch_size: int = 0,
  adjoint: str = 'jvp',
) -> Params:
  """Trains from w on a synthetic set; differentiable in the set, by a chosen adjoint.

  Args:
    loss: the inner loss.
    w: the start w^t.
    syn: the set; images [n, ...], label logits [n, classes], log step size [].
    key: for augmentation and batches, fresh in every step and replayed in the backward pass.
    steps: s'.
    batch_size: images per step; 0 is all of them.
    adjoint: 'jvp': the backward pass is one JVP of the gradient per step (mixed partial derivatives
      commute); 'reverse': reverse over reverse with each step rematerialised; 'plain': reverse over
      reverse that stores everything, for tests. All give the same gradients.

  Returns:
    The end of the unroll, w~_{s'}; same structure as w.
  """
  images = syn.x.shape[0]

  def select(syn, i, key):
    if not batch_size or batch_size >= images:
      return syn.x, syn.y
    rows = minibatch(fold(key, 0, 1), images, batch_size, i)
    return syn.x[rows], syn.y[rows]

  def step_loss(w, syn, i, key):
    x, y = select(syn, i, key)
    return loss(w, x, y, fold(key, i))

  return ADJOINTS[adjoint](step_loss, w, syn, key, steps)


def _descend(step_loss, w, syn, i, key):
  a = jnp.exp(syn.log_step)
  return jax.tree.map(lambda p, g: p - a * g, w, jax.grad(step_loss)(w, syn, i, key))


def _unroll_plain(step_loss, w, syn, key, steps):
  for i in range(steps):
    w = _descend(step_loss, w, syn, i, key)
  return w


def _unroll_reverse(step_loss, w, syn, key, steps):
  step = jax.checkpoint(lambda w, syn, i: _descend(step_loss, w, syn, i, key), prevent_cse=False)
  return jax.lax.scan(lambda w, i: (step(w, syn, i), None), w, jnp.arange(steps))[0]


def _unroll_jvp(step_loss, w, syn, key, steps):
  """With w' = w - a g(w, S) and the cotangent v of w': the cotangents of w, S and log a are
  v - a H v, -a d/dS <g, v> and -a <g, v>; H v and d/dS <g, v> are the tangents of grad_(w,S) l along v."""

  @jax.custom_vjp
  def run(w, syn, key):
    descend = lambda w, i: (_descend(step_loss, w, syn, i, key), None)
    return jax.lax.scan(descend, w, jnp.arange(steps))[0]

  def forward(w, syn, key):
    descend = lambda w, i: (_descend(step_loss, w, syn, i, key), w)
    end, starts = jax.lax.scan(descend, w, jnp.arange(steps))
    return end, (starts, syn, key)

  def backward(residuals, v):
    starts, syn, key = residuals
    a = jnp.exp(syn.log_step)

    def step(carry, inputs):
      v, bar = carry
      w, i = inputs
      gradient = lambda w: jax.grad(step_loss, argnums=(0, 1))(w, syn, i, key)
      (g, _), (hv, mixed) = jax.jvp(gradient, (w,), (v,))
      moved = SyntheticSet(a * mixed.x, a * mixed.y, a * optax.tree.vdot(g, v))
      v = jax.tree.map(lambda v, h: v - a * h, v, hv)
      return (v, jax.tree.map(jnp.subtract, bar, moved)), None

    start = (v, jax.tree.map(jnp.zeros_like, syn))
    (v, bar), _ = jax.lax.scan(step, start, (starts, jnp.arange(steps)), reverse=True)
    return v, bar, None

  run.defvjp(forward, backward)
  return run(w, syn, key)


ADJOINTS: dict[str, Callable[[Any, Params, SyntheticSet, PRNGKey, int], Params]] = {
  'jvp': _unroll_jvp,
  'reverse': _unroll_reverse,
  'plain': _unroll_plain,
}


def _squared_norm(tree):
  return optax.tree.vdot(tree, tree)


def squared_distance(end: Params, target: Params, start: Params) -> Array:
  """||w~ - w*||^2 / ||w^t - w*||^2, []: 1 where nothing was learned, 0 at the target."""
  return _squared_norm(optax.tree.sub(end, target)) / _squared_norm(optax.tree.sub(start, target))


def cosine_distance(end: Params, target: Params, start: Params) -> Array:
  """1 - cos(w~, w*), [], over all parameters as one vector; the start is not used."""
  del start
  norms = jnp.sqrt(_squared_norm(end) * _squared_norm(target))
  return 1 - optax.tree.vdot(end, target) / norms


DISTANCES = {'squared': squared_distance, 'cosine': cosine_distance}


class Segment(NamedTuple):
  """A drawn piece of the trajectory."""

  start: Params  # w^t
  target: Params  # the mean of the drawn checkpoints after it, or w^{t+s}


def draw_segment(
  key: PRNGKey, trajectory: Params, first: int, length: int, segment: int, targets: int
) -> Segment:
  """Draws w^t and its target.

  Args:
    key: for t and the checkpoints.
    trajectory: w^0 ... w^L, leaves [L + 1, ...].
    first: smallest t: 0 with the initial model, else 1.
    length: L.
    segment: s; t + s <= L.
    targets: how many checkpoints out of w^{t+1} ... w^{t+s}, with replacement, are averaged; 0: w^{t+s}.

  Returns:
    The segment. Source: DynaFed, Section 6 (the target is averaged over 2 drawn checkpoints).
  """
  at = jax.random.randint(fold(key, 0), (), first, length - segment + 1)
  if targets:
    ahead = at + jax.random.randint(fold(key, 0, 1), (targets,), 1, segment + 1)
  else:
    ahead = at[None] + segment
  target = jax.tree.map(lambda leaf: leaf[ahead].mean(axis=0), trajectory)
  return Segment(jax.tree.map(lambda leaf: leaf[at], trajectory), target)


def matching_loss(
  loss: InnerLoss,
  syn: SyntheticSet,
  segment: Segment,
  key: PRNGKey,
  *,
  steps: int,
  batch_size: int,
  distance: str,
  adjoint: str,
) -> Array:
  """d(A(X, y, w^t, s'), w*) of one segment, []; see `unroll` and `DISTANCES`."""
  end = unroll(loss, segment.start, syn, key, steps, batch_size=batch_size, adjoint=adjoint)
  return DISTANCES[distance](end, segment.target, segment.start)


def smallest_move(trajectory: Params, first: int, length: int, segment: int) -> Array:
  """The smallest ||w^t - w^{t+k}||^2 over drawable t and k = 1..s, []; 0 means that a ratio would be 0/0."""
  t = jnp.arange(first, length - segment + 1)
  moves = [
    jax.vmap(lambda i: _squared_norm(jax.tree.map(lambda w: w[i] - w[i + k], trajectory)))(t)
    for k in range(1, segment + 1)
  ]
  return jnp.min(jnp.stack(moves))
