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

from fedjax_syn.algorithms.dynafed.synthetic_set import SyntheticSet, minibatch, soft_cross_entropy
from fedjax_syn.core.keys import fold
from fedjax_syn.core.microbatches import microbatched
from fedjax_syn.core.types import Array, Model, Params, PRNGKey, Stats, Variables
from fedjax_syn.data.augment import dsa, parse_strategy

InnerLoss = Callable[[Params, Array, Array, PRNGKey], Array]  # (w, images, label logits, key) -> []
Augment = Callable[[PRNGKey, Array], Array]


def augmentation(strategy: str) -> Augment | None:
  """Returns the augmentation of DSA operations, 'colour_crop' (see `parse_strategy`); None if there are none."""
  operations = parse_strategy(strategy)
  return (lambda key, x: dsa(key, x, operations)) if operations else None


def inner_loss(
  model: Model,
  stats: Stats,
  augment: Augment | None,
  num_microbatches: int = 1,
  mesh: jax.sharding.Mesh | None = None,
) -> InnerLoss:
  """Returns the loss on (augmented) synthetic images, with the running statistics held fixed.

  Args:
    model: the network.
    stats: its running statistics.
    augment: (key, images) -> images, or None.
    num_microbatches: see `microbatches.microbatched`.
    mesh: the same.
  """

  def mean(params, x, y):
    return soft_cross_entropy(model.apply(Variables(params, stats), x, train=True).logits, y)

  mean = microbatched(mean, num_microbatches, mesh)

  def loss(params, x, y, key):
    if augment is not None:
      x = augment(key, x)
    return mean(params, x, y)

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
  together: int = 1,
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
      commute), which keeps only the parameters; 'stored': the same, which keeps the activations too and
      computes nothing twice; 'reverse': reverse over reverse with each step rematerialised; 'plain':
      reverse over reverse that stores everything, for tests. All give the same gradients.
    together: steps compiled as one piece; more is faster for small networks and slower to compile.

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

  return ADJOINTS[adjoint](step_loss, w, syn, key, steps, min(together, steps))


def _descend(step_loss, w, syn, i, key):
  a = jnp.exp(syn.log_step)
  return jax.tree.map(lambda p, g: p - a * g, w, jax.grad(step_loss)(w, syn, i, key))


def _unroll_plain(step_loss, w, syn, key, steps, together):
  del together
  for i in range(steps):
    w = _descend(step_loss, w, syn, i, key)
  return w


def _unroll_reverse(step_loss, w, syn, key, steps, together):
  step = jax.checkpoint(lambda w, syn, i: _descend(step_loss, w, syn, i, key), prevent_cse=False)
  descend = lambda w, i: (step(w, syn, i), None)
  return jax.lax.scan(descend, w, jnp.arange(steps), unroll=together)[0]


def _commuting(forward, tangent):
  """An unroll whose backward pass is a JVP of the gradient per step, with what is kept of it as a choice.

  With w' = w - a g(w, S) and the cotangent v of w': the cotangents of w, S and log a are v - a H v,
  -a d/dS <g, v> and -a <g, v>. H v and d/dS <g, v> are the tangents of grad_(w,S) l along v, and <g, v>
  is that of l itself, which spares the gradient's products.

  Args:
    forward: (value_and_grad of (w, S), w) -> (gradient of w, kept).
    tangent: (value_and_grad of (w, S), kept, v) -> tangents (of l, (of g, of d/dS l)) along v.
  """

  def unroll(step_loss, w, syn, key, steps, together):
    def at(syn, i, key):
      return lambda w: jax.value_and_grad(step_loss, argnums=(0, 1))(w, syn, i, key)

    def scan(body, start, inputs, reverse=False):
      return jax.lax.scan(body, start, inputs, reverse=reverse, unroll=together)

    @jax.custom_vjp
    def run(w, syn, key):
      return scan(lambda w, i: (_descend(step_loss, w, syn, i, key), None), w, jnp.arange(steps))[0]

    def run_forward(w, syn, key):
      a = jnp.exp(syn.log_step)

      def descend(w, i):
        g, kept = forward(at(syn, i, key), w)
        return jax.tree.map(lambda p, g: p - a * g, w, g), kept

      end, kept = scan(descend, w, jnp.arange(steps))
      return end, (kept, syn, key)

    def run_backward(residuals, v):
      kept, syn, key = residuals
      a = jnp.exp(syn.log_step)

      def step(carry, inputs):
        v, bar = carry
        kept, i = inputs
        along, (hv, mixed) = tangent(at(syn, i, key), kept, v)
        moved = SyntheticSet(a * mixed.x, a * mixed.y, a * along)
        v = jax.tree.map(lambda v, h: v - a * h, v, hv)
        return (v, jax.tree.map(jnp.subtract, bar, moved)), None

      start = (v, jax.tree.map(jnp.zeros_like, syn))
      (v, bar), _ = scan(step, start, (kept, jnp.arange(steps)), reverse=True)
      return v, bar, None

    run.defvjp(run_forward, run_backward)
    return run(w, syn, key)

  return unroll


def _keep_start(gradient, w):
  return gradient(w)[1][0], w


def _keep_linear(gradient, w):
  (_, (g, _)), linear = jax.linearize(gradient, w)
  return g, linear


ADJOINTS: dict[str, Callable[[Any, Params, SyntheticSet, PRNGKey, int, int], Params]] = {
  'jvp': _commuting(_keep_start, lambda gradient, w, v: jax.jvp(gradient, (w,), (v,))[1]),
  'stored': _commuting(_keep_linear, lambda gradient, linear, v: linear(v)),
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
  together: int = 1,
) -> Array:
  """d(A(X, y, w^t, s'), w*) of one segment, []; see `unroll` and `DISTANCES`."""
  end = unroll(
    loss, segment.start, syn, key, steps, batch_size=batch_size, adjoint=adjoint, together=together
  )
  return DISTANCES[distance](end, segment.target, segment.start)


def smallest_move(trajectory: Params, first: int, length: int, segment: int) -> Array:
  """The smallest ||w^t - w^{t+k}||^2 over drawable t and k = 1..s, []; 0 means that a ratio would be 0/0."""
  t = jnp.arange(first, length - segment + 1)
  moves = [
    jax.vmap(lambda i: _squared_norm(jax.tree.map(lambda w: w[i] - w[i + k], trajectory)))(t)
    for k in range(1, segment + 1)
  ]
  return jnp.min(jnp.stack(moves))
