"""Compares training on the synthetic set, on real images and on noise with the global trajectory.

Source: DynaFed (Pi et al., 2023), Figure 6, left.
"""

import functools
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedjax_syn.algorithms.dynafed.synthetic_set import SyntheticSet
from fedjax_syn.algorithms.dynafed.unroll import (
  SegmentRule,
  draw_segment,
  inner_loss,
  unroll,
)
from fedjax_syn.core.keys import fold
from fedjax_syn.core.programs import Once
from fedjax_syn.core.types import Array, Model, Params, PRNGKey, Stats
from fedjax_syn.data import federated

CERTAIN = 30.0  # a logit that makes softmax a one-hot vector to float32's last digit


def labelled(x: Array, y: Array, num_classes: int, log_step: Array) -> SyntheticSet:
  """Returns a synthetic set of images [n, ...] with hard labels [n]."""
  return SyntheticSet(x, CERTAIN * jax.nn.one_hot(y, num_classes, dtype=x.dtype), log_step)


def dynamics(
  key: PRNGKey,
  model: Model,
  stats: Stats,
  trajectory: Params,
  sets: Mapping[str, SyntheticSet],
  *,
  rule: SegmentRule,
  steps: int,
  draws: int = 20,
) -> dict[str, np.ndarray]:
  """Trains on each set along drawn segments and measures the distance of the end to the target.

  Args:
    key: for the segments, which all sets share.
    model: the network.
    stats: its running statistics.
    trajectory: w^0 ... w^L, leaves [L + 1, ...].
    sets: by label, sets of one size; each trains with its own step size.
    rule: how segments are drawn.
    steps: s'.
    draws: segments.

  Returns:
    By label, 1 - cos(w~, w*) of every draw, [draws].
  """
  # With equal shardings, one program serves all sets.
  sets = jax.device_put(dict(sets), jax.tree.leaves(trajectory)[0].sharding)
  how = model, rule, steps, draws
  return {
    label: np.asarray(_distances(*how, stats, syn, trajectory, key)) for label, syn in sets.items()
  }


@functools.partial(Once, static_argnums=range(4))
def _distances(model, rule, steps, draws, stats, syn, trajectory, key) -> Array:
  """See `dynamics`; [draws]."""
  loss = inner_loss(model, stats, None)

  def distance(i):
    own = fold(key, i)
    drawn = draw_segment(fold(own, 0), trajectory, *rule)
    end = unroll(loss, drawn.start, syn, fold(own, 1), steps)
    return cosine_distance(end, drawn.target)

  return jax.lax.map(distance, jnp.arange(draws))


def cosine_distance(end: Params, target: Params) -> Array:
  """Returns 1 - cos(w~, w*), [], over all parameters as one vector."""
  norms = jnp.sqrt(optax.tree.vdot(end, end) * optax.tree.vdot(target, target))
  return 1 - optax.tree.vdot(end, target) / norms


def drawn_sets(
  key: PRNGKey, data: 'federated.FederatedData', syn: SyntheticSet, num_classes: int
) -> dict[str, SyntheticSet]:
  """Draws real images and noise, as many as the learned set has; not traced."""
  few = federated.draw(data, fold(key, 0), len(syn.x))
  return _drawn_sets(key, few, syn, num_classes)


@functools.partial(Once, static_argnames='num_classes')
def _drawn_sets(key, few, syn, num_classes):
  x, y = federated.normalise(few, few.x), few.y
  return real_and_noise(fold(key, 0, 1), x, y, syn, num_classes)


def real_and_noise(
  key: PRNGKey, x: Array, y: Array, like: SyntheticSet, num_classes: int
) -> dict[str, SyntheticSet]:
  """Returns the sets that the learned one is compared with.

  Args:
    key: for the noise, N(0, 1) in normalised space.
    x: real images [images, height, width, channels], normalised.
    y: their labels [images].
    like: the learned set, whose size and step size the others get.
    num_classes: classes; the noise has equally many images of each.

  Returns:
    The sets 'real' and 'noise'.
  """
  images = like.x.shape[0]
  noise = jax.random.normal(key, like.x.shape, like.x.dtype)
  return {
    'real': labelled(x, y, num_classes, like.log_step),
    'noise': labelled(noise, jnp.arange(images) % num_classes, num_classes, like.log_step),
  }
