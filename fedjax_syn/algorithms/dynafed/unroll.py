"""Trajectory matching: training on the synthetic set follows the global model's trajectory.

The inner problem trains from w^t on the set for s' steps of gradient descent; the outer problem
moves images, labels and step size so that the end lands near a later checkpoint. Source: DynaFed
(Pi et al., 2023), Eqs. 3-4 and Algorithm 1; the normalised distance is that of MTT (Cazenavette et
al., 2022).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_syn.algorithms.dynafed.synthetic_set import SyntheticSet, batch, soft_cross_entropies
from fedjax_syn.core.keys import fold
from fedjax_syn.core.microbatches import microbatched
from fedjax_syn.core.types import Array, Model, Params, PRNGKey, Stats, Variables
from fedjax_syn.data.augment import dsa, parse_strategy

InnerLoss = Callable[[Params, Array, Array, PRNGKey], Array]  # (w, images, label logits, key) -> []
Augment = Callable[[PRNGKey, Array], Array]


def augmentation(strategy: str) -> Augment | None:
  """Returns the augmentation of DSA operations, as 'colour_crop'; None if there are none."""
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

  def losses(params, x, y):
    return soft_cross_entropies(model.apply(Variables(params, stats), x, train=True).logits, y)

  mean = microbatched(losses, num_microbatches, mesh)

  def loss(params, x, y, key):
    if augment is not None:
      x = augment(key, x)
    return mean(params, x, y)

  return loss


class Adjoint(NamedTuple):
  """What the backward pass of a step needs, and how it is computed."""

  # (value_and_grad of the loss in (w, S), w) -> (gradient in w, what is kept for the backward pass)
  forward: Callable[..., tuple[Params, Any]]
  # (value_and_grad of the loss in (w, S), kept, v) -> its tangents along v: of l, (of g, of dl/dS)
  tangent: Callable[..., tuple[Array, tuple[Params, SyntheticSet]]]


def _linearized(gradient, w):
  (_, (g, _)), linear = jax.linearize(gradient, w)
  return g, linear


ADJOINTS = {
  'jvp': Adjoint(
    lambda gradient, w: (gradient(w)[1][0], w),
    lambda gradient, w, v: jax.jvp(gradient, (w,), (v,))[1],
  ),
  'stored': Adjoint(_linearized, lambda gradient, linear, v: linear(v)),
}


def unroll(
  loss: InnerLoss,
  w: Params,
  syn: SyntheticSet,
  key: PRNGKey,
  steps: int,
  *,
  batch_size: int = 0,
  adjoint: str = 'jvp',
  scan_unroll: int = 1,
  backward_steps: int = 0,
) -> Params:
  """Trains from w on a synthetic set; differentiable in w and in the set.

  With w' = w - a g(w, S) and the cotangent v of w': the cotangents of w, S and log a are v - a H v,
  -a d/dS <g, v> and -a <g, v>. H v and d/dS <g, v> are the tangents of the gradient in (w, S) along
  v, since mixed partial derivatives commute, and <g, v> is the tangent of the loss.

  Args:
    loss: the inner loss.
    w: the start w^t.
    syn: the set; images [n, ...], label logits [n, classes], log step size [].
    key: for augmentation and batches; the backward pass draws the same as the forward pass.
    steps: s'.
    batch_size: images per step; 0 is all of them.
    adjoint: 'jvp' keeps the parameters of each step, and computes one JVP of the gradient; 'stored'
      keeps the activations too, and computes nothing twice. Both give the same gradients.
    scan_unroll: steps per iteration of the compiled loop; more is faster for small networks and
      slower to compile.
    backward_steps: n, the last steps that the derivative goes through; those before them are taken
      as constants, so that the derivative is truncated. 0 is all of them: exact.

  Returns:
    The end of the unroll, w~_{s'}; structure of w.
  """
  forward, tangent = ADJOINTS[adjoint]
  first = max(steps - backward_steps, 0) if backward_steps else 0  # of the steps of the derivative

  def gradient(syn, i, key):
    def step_loss(w, syn):
      x, y = batch(syn, key, batch_size, i)
      return loss(w, x, y, fold(key, i))

    return lambda w: jax.value_and_grad(step_loss, argnums=(0, 1))(w, syn)

  def scan(body, start, inputs, reverse=False):
    count = len(jax.tree.leaves(inputs)[-1])
    return jax.lax.scan(body, start, inputs, reverse=reverse, unroll=min(scan_unroll, count))

  def run_forward(w, syn, key):
    a = jnp.exp(syn.log_step)

    def descend(w, i):
      g, kept = forward(gradient(syn, i, key), w)
      return jax.tree.map(lambda p, g: p - a * g, w, g), kept

    if first:
      w, _ = scan(lambda w, i: (descend(w, i)[0], None), w, jnp.arange(first))
    end, kept = scan(descend, w, jnp.arange(first, steps))
    return end, (kept, syn, key)

  def run_backward(residuals, v):
    kept, syn, key = residuals
    a = jnp.exp(syn.log_step)

    def step(carry, inputs):
      v, bar = carry
      kept, i = inputs
      along, (hv, mixed) = tangent(gradient(syn, i, key), kept, v)
      change = SyntheticSet(a * mixed.x, a * mixed.y, a * along)
      v = jax.tree.map(lambda v, h: v - a * h, v, hv)
      return (v, jax.tree.map(jnp.subtract, bar, change)), None

    start = (v, jax.tree.map(jnp.zeros_like, syn))
    (v, bar), _ = scan(step, start, (kept, jnp.arange(first, steps)), reverse=True)
    return v, bar, None

  run = jax.custom_vjp(lambda w, syn, key: run_forward(w, syn, key)[0])
  run.defvjp(run_forward, run_backward)
  return run(w, syn, key)


def _squared_norm(tree):
  return optax.tree.vdot(tree, tree)


def squared_distance(end: Params, target: Params, start: Params) -> Array:
  """||w~ - w*||^2 / ||w^t - w*||^2, []: 1 where nothing was learned, 0 at the target."""
  return _squared_norm(optax.tree.sub(end, target)) / _squared_norm(optax.tree.sub(start, target))


class Segment(NamedTuple):
  """A drawn piece of the trajectory."""

  start: Params  # w^t
  target: Params  # the mean of the drawn checkpoints after it, or w^{t+s}


class SegmentRule(NamedTuple):
  """How segments are drawn; see `draw_segment`."""

  first: int
  length: int
  segment: int
  targets: int
  include_end: bool = False


def draw_segment(
  key: PRNGKey,
  trajectory: Params,
  first: int,
  length: int,
  segment: int,
  targets: int,
  include_end: bool = False,
) -> Segment:
  """Draws w^t and its target.

  Args:
    key: for t and the checkpoints.
    trajectory: w^0 ... w^L, leaves [L + 1, ...].
    first: smallest t: 0 with the initial model, else 1.
    length: L.
    segment: s; t + s <= L.
    targets: how many checkpoints out of w^{t+1} ... w^{t+s}, with replacement, are averaged; 0:
      w^{t+s}.
    include_end: w^{t+s} is one more checkpoint in the mean.

  Returns:
    The segment. Source: DynaFed, Section 6 (the target is averaged over 2 drawn checkpoints, which
    may mean those alone or together with w^{t+s}).
  """
  at = jax.random.randint(fold(key, 0), (), first, length - segment + 1)
  if targets:
    ahead = at + jax.random.randint(fold(key, 0, 1), (targets,), 1, segment + 1)
  else:
    ahead = at[None] + segment
  if include_end:
    ahead = jnp.append(ahead, at + segment)
  target = jax.tree.map(lambda leaf: leaf[ahead].mean(axis=0), trajectory)
  return Segment(jax.tree.map(lambda leaf: leaf[at], trajectory), target)


def smallest_move(trajectory: Params, first: int, length: int, segment: int) -> Array:
  """Returns the smallest ||w^t - w^{t+k}||^2 over all t and k = 1..s, []."""
  t, k = jnp.meshgrid(jnp.arange(first, length - segment + 1), jnp.arange(1, segment + 1))
  move = lambda t, k: _squared_norm(jax.tree.map(lambda w: w[t] - w[t + k], trajectory))
  return jax.lax.map(lambda pair: move(*pair), (t.ravel(), k.ravel())).min()
