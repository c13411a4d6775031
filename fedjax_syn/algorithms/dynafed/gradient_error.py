"""How well gradients on the synthetic set stand in for those on the clients' data (DynaFed, Assumption 3).

The assumption behind DynaFed's Theorem 1 is a line over the points (r, e) of all parameters w met:

  e(w) <= delta r(w) + epsilon,   e = ||grad L(w, D_syn) - grad L(w, D)||,   r = ||grad L(w, D)||.

Many pairs (delta, epsilon) bound the same points, so `fit` names three of them. A delta of 1 or more says
nothing: an empty set, with gradient 0, has delta = 1 and epsilon = 0.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedjax_syn.algorithms.dynafed.synthetic_set import SyntheticSet, soft_cross_entropy
from fedjax_syn.core.types import Array, Model, Params, Stats, Variables
from fedjax_syn.data import federated


class GradientErrors(NamedTuple):
  """The gradient on a small set beside the gradient on all data, at several parameters."""

  real_norm: np.ndarray  # [points], r
  error_norm: np.ndarray  # [points], e
  cosine: np.ndarray  # [points], of the two gradients; nan where one of them is zero


class Line(NamedTuple):
  """Pairs for which e <= delta r + epsilon holds at every point."""

  delta_alone: float  # the smallest delta with epsilon = 0; inf if an error remains where r = 0
  epsilon_alone: float  # the smallest epsilon with delta = 0
  delta: float  # the pair whose line lies nearest above the points, on the average
  epsilon: float


def real_gradient(
  model: Model,
  loss: Callable[[Array, Array, Array], Array],
  data: federated.FederatedData,
  variables: Variables,
  batch_size: int = 500,
) -> Params:
  """Returns grad L(w, D) over all clients' rows, each row weighing the same (DynaFed, Eq. 1).

  Args:
    model: the network; running statistics are held fixed, so that the loss is a mean over rows.
    loss: (logits, y, mask) -> mean loss.
    data: the clients' data, uint8 on the device, normalised batch by batch.
    variables: w and statistics.
    batch_size: rows at once.

  Returns:
    The gradient, structure of w.
  """
  shard = federated.all_clients(data)
  rows = data.order.shape[0]
  batch_size = min(batch_size, rows)

  def add(total, index):
    x, y, mask = federated.batch(data, shard, index, batch_size)

    def summed(w):
      logits = model.apply(Variables(w, variables.stats), x, train=False).logits
      return loss(logits, y, mask) * mask.sum()

    return optax.tree.add(total, jax.grad(summed)(variables.params)), None

  zero = optax.tree.zeros_like(variables.params)
  total, _ = jax.lax.scan(add, zero, jnp.arange(-(-rows // batch_size)))
  return optax.tree.scale(1 / rows, total)


def gradient_errors(
  model: Model,
  loss: Callable[[Array, Array, Array], Array],
  data: federated.FederatedData,
  points: Params,
  stats: Stats,
  sets: Mapping[str, SyntheticSet],
  batch_size: int = 500,
) -> dict[str, GradientErrors]:
  """Compares gradients on small sets with the gradient on all clients' data.

  Both are taken with running statistics held fixed. For a network with BatchNorm this is not the
  gradient of fine-tuning, which normalises by the batch.

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

  found = jax.tree.map(np.asarray, measure(points, data, dict(sets)))
  return {label: found[label] for label in sets}  # in the order given; JAX sorts dicts


def epsilon_of(delta: float, errors: GradientErrors) -> float:
  """Returns the smallest epsilon >= 0 with e <= delta r + epsilon at every point."""
  return float(np.max(errors.error_norm - delta * errors.real_norm, initial=0.0))


def fit(errors: GradientErrors) -> Line:
  """Fits delta and epsilon of Assumption 3 to points.

  `epsilon_of(delta)` is convex, piecewise linear and falls; every pair on it is a smallest one. Out of
  these the pair returned beside the two extremes has the smallest mean of delta r + epsilon - e. That mean
  is convex and piecewise linear in delta as well, so that its minimum is at a corner: at delta = 0, at
  epsilon = 0 or on a line through two points.

  Args:
    errors: of at least one point.

  Returns:
    The pairs; the bound holds at the points given, nowhere else for certain.
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
