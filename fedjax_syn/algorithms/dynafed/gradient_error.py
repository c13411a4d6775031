"""Errors of gradients on the synthetic set (DynaFed, Assumption 3).

Theorem 1 assumes that for all parameters w of the training

  e(w) <= delta r(w) + epsilon,   e = ||grad L(w, D_syn) - grad L(w, D)||,   r = ||grad L(w, D)||.

Many pairs (delta, epsilon) bound the same points (r, e); `fit` returns three of them. A delta of 1
or more says nothing: an empty set, whose gradient is 0, has delta = 1 and epsilon = 0.
"""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import numpy as np
import optax

from fedjax_syn.algorithms.dynafed.synthetic_set import SyntheticSet, soft_cross_entropy
from fedjax_syn.client.shard_gradient import Loss, gradient_sum
from fedjax_syn.core.types import Model, Params, Stats, Variables
from fedjax_syn.data import federated


class GradientErrors(NamedTuple):
  """Gradients on a small set compared with those on all data, at several parameters."""

  real_norm: np.ndarray  # [points], r
  error_norm: np.ndarray  # [points], e
  cosine: np.ndarray  # [points], of the two gradients; nan where one of them is zero


class Line(NamedTuple):
  """Pairs for which e <= delta r + epsilon holds at every point."""

  delta_alone: float  # the smallest delta with epsilon = 0; inf if e > 0 where r = 0
  epsilon_alone: float  # the smallest epsilon with delta = 0
  delta: float  # of the pair with the smallest mean of delta r + epsilon - e
  epsilon: float


def real_gradient(
  model: Model,
  loss: Loss,
  data: federated.FederatedData,
  variables: Variables,
  batch_size: int = 500,
) -> Params:
  """Returns grad L(w, D), the mean over all clients' rows (DynaFed, Eq. 1); see `gradient_sum`."""
  shard, rows = federated.all_clients(data), data.order.shape[0]
  total = gradient_sum(model, loss, data, shard, variables, min(batch_size, rows))
  return optax.tree.scale(1 / rows, total)


def gradient_errors(
  model: Model,
  loss: Loss,
  data: federated.FederatedData,
  points: Params,
  stats: Stats,
  sets: Mapping[str, SyntheticSet],
  batch_size: int = 500,
) -> dict[str, GradientErrors]:
  """Compares gradients on small sets with the gradient on all clients' data.

  Running statistics are held fixed. For a network with BatchNorm this is not the gradient of
  fine-tuning, which normalises by the batch.

  Args:
    model: the network.
    loss: (logits, y, mask) -> mean loss on real data; small sets have soft cross-entropy.
    data: the clients' data.
    points: parameters, leaves [points, ...]: DynaFed's trajectory, for example.
    stats: running statistics, the same at all points.
    sets: by label, images and label logits; not augmented.
    batch_size: real rows at once.

  Returns:
    By label, the errors. Source: DynaFed, Assumption 3 and Eq. 9.
  """

  def soft(w, syn):
    logits = model.apply(Variables(w, stats), syn.x, train=False).logits
    return soft_cross_entropy(logits, syn.y)

  @jax.jit
  def measure(points, data, sets):
    def at(w):
      real = real_gradient(model, loss, data, Variables(w, stats), batch_size)
      norm = optax.tree.norm(real)

      def compare(syn):
        own = jax.grad(soft)(w, syn)
        cosine = optax.tree.vdot(own, real) / (optax.tree.norm(own) * norm)
        return GradientErrors(norm, optax.tree.norm(optax.tree.sub(own, real)), cosine)

      return {label: compare(syn) for label, syn in sets.items()}

    return jax.lax.map(at, points)

  errors = jax.tree.map(np.asarray, measure(points, data, dict(sets)))
  return {label: errors[label] for label in sets}  # in the order given; JAX sorts dicts


def epsilon_of(delta: float, errors: GradientErrors) -> float:
  """Returns the smallest epsilon >= 0 with e <= delta r + epsilon at every point."""
  return float(np.max(errors.error_norm - delta * errors.real_norm, initial=0.0))


def fit(errors: GradientErrors) -> Line:
  """Fits delta and epsilon of Assumption 3 to points.

  `epsilon_of(delta)` is convex, piecewise linear and decreasing. Of the pairs (delta,
  epsilon_of(delta)), `fit` returns the two extremes and the one with the smallest mean of delta r +
  epsilon - e. That mean is convex and piecewise linear in delta, so its minimum is at a corner: at
  delta = 0, at epsilon = 0 or on a line through two points.

  Args:
    errors: of at least one point.

  Returns:
    The pairs. The bound holds at the given points; elsewhere it may not.
  """
  r, e = (np.asarray(v, np.float64) for v in (errors.real_norm, errors.error_norm))
  with np.errstate(divide='ignore', invalid='ignore'):
    ratios = np.where(e > 0, e / r, 0.0)
    slopes = (e[:, None] - e) / (r[:, None] - r)
  candidates = np.concatenate([[0.0], ratios, slopes.ravel()])
  candidates = np.unique(candidates[np.isfinite(candidates) & (candidates >= 0)])
  bounds = [(delta * r.mean() + epsilon_of(delta, errors), delta) for delta in candidates]
  delta = float(min(bounds)[1])
  return Line(float(ratios.max()), epsilon_of(0.0, errors), delta, epsilon_of(delta, errors))
