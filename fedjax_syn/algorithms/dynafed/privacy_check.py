"""Privacy of a synthetic set: nearest neighbours and membership inference.

DynaFed argues by pictures that its set shows no client's images (Remark 1, Figure 4). This module
measures it, with two limits. Learned pixels may leave the range of real ones, so that a set may be
far from every image and still reveal much. Both attacks know the set alone, not the trajectory. A
result at chance is no proof of privacy; a result above chance is a leak.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.metrics import pairwise_distances_argmin_min, roc_auc_score

from fedjax_syn.core.types import Model, Variables
from fedjax_syn.data import federated
from fedjax_syn.data.split import Split

QUANTILE = 0.05


class Nearness(NamedTuple):
  """Distances of synthetic images to the training images, and those of held-out real images."""

  median: float  # of the distances of the synthetic images
  low: float  # their 5 % quantile
  held_out_median: float
  held_out_low: float
  share_nearer: float  # of the synthetic images, nearer than `held_out_low`; 0.05 for new images


class Attack(NamedTuple):
  """The success of a score in telling members from others."""

  auc: float  # 1/2 is chance
  std_error: float


def as_seen(data: federated.FederatedData, split: Split) -> Split:
  """Returns rows of a data set as `nearest_distances` takes them: floats scaled, uint8 as they are.

  Args:
    data: gives the constants.
    split: of the data set.
  """
  if split.x.dtype == np.uint8:
    return split
  return split._replace(x=np.asarray(federated.normalise(data, jnp.asarray(split.x))))


def nearest_distances(
  data: federated.FederatedData, x: np.ndarray, references: np.ndarray, chunk: int = 10_000
) -> np.ndarray:
  """Returns each image's distance to the nearest reference.

  Args:
    data: gives the normalisation of uint8 images.
    x: images [n, height, width, channels], uint8 or normalised, or other rows, scaled.
    references: the same, [m, ...].
    chunk: images of either kind that are floats at the same time.

  Returns:
    Distances per pixel in normalised space, ||a - b|| / sqrt(height width channels), [n].
  """
  distances = []
  for i in range(0, len(x), chunk):
    a = _flat(data, x[i : i + chunk])
    best = np.full(len(a), np.inf)
    for j in range(0, len(references), chunk):
      b = _flat(data, references[j : j + chunk])
      index, _ = pairwise_distances_argmin_min(a, b)
      # From the difference, since the norm from products is not 0 for a copy.
      best = np.minimum(best, np.sqrt(np.mean((a - b[index]) ** 2, axis=1)))
    distances.append(best)
  return np.concatenate(distances)


def nearness(synthetic: np.ndarray, held_out: np.ndarray) -> Nearness:
  """Compares the synthetic images' distances to the training images with those of held-out images.

  Args:
    synthetic: [images], from `nearest_distances`.
    held_out: [rows], of real images that nobody trained on.

  Returns:
    The summary.
  """
  low = np.quantile(held_out, QUANTILE)
  return Nearness(
    float(np.median(synthetic)),
    float(np.quantile(synthetic, QUANTILE)),
    float(np.median(held_out)),
    float(low),
    float(np.mean(synthetic < low)),
  )


def sample_losses(
  model: Model,
  data: federated.FederatedData,
  variables: Variables,
  x: np.ndarray,
  y: np.ndarray,
  batch_size: int = 500,
) -> np.ndarray:
  """Returns the cross-entropy of a model on each image.

  Args:
    model: the network.
    data: gives the normalisation.
    variables: parameters and running statistics.
    x: uint8 [rows, height, width, channels].
    y: labels [rows].
    batch_size: rows at once.

  Returns:
    Losses [rows].
  """
  rows, batch_size = len(y), min(batch_size, len(y))
  padded = np.arange(-(-rows // batch_size) * batch_size) % rows  # one shape, one program
  out = [_losses(model, data, variables, x[i], y[i]) for i in padded.reshape(-1, batch_size)]
  return np.concatenate(out)[:rows]


@functools.partial(jax.jit, static_argnums=0)  # one program for all models of a network
def _losses(model, data, variables, x, y):
  logits = model.apply(variables, federated.normalise(data, x), train=False).logits
  return optax.softmax_cross_entropy_with_integer_labels(logits, y)


def membership(members: np.ndarray, others: np.ndarray) -> Attack:
  """Measures an attack that calls images with high scores members of the training set.

  Args:
    members: scores of training images: minus the distance to the nearest synthetic image, or minus
      the loss of a model that was trained on the synthetic set only.
    others: scores of images that nobody trained on.

  Returns:
    The probability that a member scores higher than another image, ties counting one half, and its
    standard error by Hanley and McNeil (1982). The images must come from one distribution: a
    difference between the training and the test split would look like a leak.
  """
  labels = np.repeat([1, 0], [len(members), len(others)])
  auc = float(roc_auc_score(labels, np.concatenate([members, others])))
  both_members, both_others = auc / (2 - auc), 2 * auc**2 / (1 + auc)
  variance = (
    auc * (1 - auc)
    + (len(members) - 1) * (both_members - auc**2)
    + (len(others) - 1) * (both_others - auc**2)
  ) / (len(members) * len(others))
  return Attack(auc, float(np.sqrt(max(variance, 0.0))))


def _flat(data: federated.FederatedData, x: np.ndarray) -> np.ndarray:
  if x.dtype == np.uint8:
    x = np.asarray(federated.normalise(data, jnp.asarray(x)))
  return np.ascontiguousarray(x.reshape(len(x), -1))
