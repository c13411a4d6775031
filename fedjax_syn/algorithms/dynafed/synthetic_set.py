"""The learnable synthetic set: images, soft labels and the step size that goes with them."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_syn.core.keys import fold
from fedjax_syn.core.sampling import minibatch
from fedjax_syn.core.types import Array, PRNGKey

SNAPSHOTS = 9  # of the set along the synthesis, in every checkpoint: before, after and between
SNAPSHOT_BYTES = 2**24  # if they would take more, three


class SyntheticSet(NamedTuple):
  """What DynaFed's synthesis learns; also a pytree of its gradients and optimizer states."""

  x: Array  # [images, *shape], normalised pixels or values, not clipped
  y: Array  # [images, classes], logits of the soft labels
  log_step: Array  # [], logarithm of the inner step size, so that it stays positive


def snapshot_count(images: int, shape: tuple[int, ...]) -> int:
  """Returns how many snapshots of a set are kept; shape of a row."""
  return SNAPSHOTS if 4 * images * math.prod(shape) * SNAPSHOTS <= SNAPSHOT_BYTES else 3


def snapshot_iterations(snapshots: int, iterations: int) -> np.ndarray:
  """Returns the iterations of the snapshots, int [snapshots]: evenly from 0, halves rounded up."""
  gaps = 2 * (snapshots - 1)
  return (2 * np.arange(snapshots) * iterations + snapshots - 1) // gaps


def keep(snapshots: SyntheticSet, syn: SyntheticSet, done: Array, iterations: int) -> SyntheticSet:
  """Keeps a set among the snapshots if its turn has come.

  Args:
    snapshots: leaves [snapshots, ...].
    syn: the set now.
    done: iterations done, [].
    iterations: in all.
  """
  kept = snapshot_iterations(len(snapshots.x), iterations)
  # Of few iterations several snapshots have the same.
  turn = lambda leaf: (done == kept).reshape(-1, *[1] * (leaf.ndim - 1))
  return jax.tree.map(lambda old, new: jnp.where(turn(old), new, old), snapshots, syn)


def noise(
  key: PRNGKey,
  images: int,
  shape: tuple[int, ...],
  num_classes: int,
  step: float,
  std: float = 1.0,
) -> SyntheticSet:
  """Starts a synthetic set from noise and equal labels.

  Args:
    key: for the pixels, N(0, std^2) in normalised space.
    images: how many.
    shape: of an image, or of a row of a table or sequences.
    num_classes: all labels start with equal probability.
    step: the inner step size at first.
    std: of the pixels; 1 in the paper. What is left of the noise hides what is learned.

  Returns:
    The set. Source: DynaFed, Algorithm 1, line 1 and Appendix B.
  """
  return SyntheticSet(
    x=std * jax.random.normal(key, (images, *shape)),
    y=jnp.zeros((images, num_classes)),
    log_step=jnp.log(jnp.asarray(step, jnp.result_type(float))),
  )


def soft_cross_entropies(logits: Array, label_logits: Array) -> Array:
  """Returns the cross-entropy of each image against its soft label.

  Args:
    logits: [batch, classes], the model's.
    label_logits: [batch, classes], softmax of which are the labels.

  Returns:
    [batch]. The authors' code divides by the number of classes as well; that only rescales the step
    size, and is not done here.
  """
  return -jnp.sum(jax.nn.softmax(label_logits) * jax.nn.log_softmax(logits), axis=-1)


def soft_cross_entropy(logits: Array, label_logits: Array) -> Array:
  """Returns the mean of `soft_cross_entropies`, []."""
  return soft_cross_entropies(logits, label_logits).mean()


def batch(syn: SyntheticSet, key: PRNGKey, batch_size: int, step: Array) -> tuple[Array, Array]:
  """Returns images [batch, ...] and label logits [batch, classes] of a step.

  Args:
    syn: the set.
    key: of a training run; batches are those of `minibatch`.
    batch_size: images per step; 0 is all of them.
    step: [], 0, 1, ...
  """
  images = syn.x.shape[0]
  if not 0 < batch_size < images:
    return syn.x, syn.y
  rows = minibatch(fold(key, 0, 1), images, batch_size, step)
  return syn.x[rows], syn.y[rows]


def to_numpy(sets: SyntheticSet) -> dict[str, np.ndarray]:
  """Returns images and label probabilities of one set, or of several stacked, as numpy arrays."""
  logits = np.asarray(sets.y)
  weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
  return {
    'x': np.asarray(sets.x),
    'y': weights / weights.sum(axis=-1, keepdims=True),
    'step_size': np.exp(np.asarray(sets.log_step)),
  }
