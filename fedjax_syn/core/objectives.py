"""The kind of a classification problem: its loss, its predictive distributions, its metrics.

A method reads logits through the task's `Objective`, so that it is written once for both kinds.
Distributions lie along the last axis; there is one value per sample (`single_label`), or one per
sample and label (`multi_label`), which `per_sample` averages.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedjax_syn.core.types import Array


def cross_entropy(logits: Array, y: Array, mask: Array) -> Array:
  """Returns the mean softmax cross-entropy []: logits [batch, classes], y [batch], mask [batch]."""
  losses = optax.softmax_cross_entropy_with_integer_labels(logits, y)
  return jnp.sum(losses * mask) / jnp.maximum(jnp.sum(mask), 1)


def binary_cross_entropy(logits: Array, y: Array, mask: Array) -> Array:
  """Sigmoid cross-entropy, mean over labels and over the samples of a mask.

  The mean over labels (PyTorch's default) and not the sum: loss, divergence and distillation have
  the size that they have with one class per sample, whatever the number of labels, and so do rates
  and weights.

  Args:
    logits: [batch, labels].
    y: multi-hot, [batch, labels].
    mask: [batch].

  Returns:
    The loss, [].
  """
  losses = optax.sigmoid_binary_cross_entropy(logits, y.astype(logits.dtype)).mean(axis=-1)
  return jnp.sum(losses * mask) / jnp.maximum(jnp.sum(mask), 1)


class Objective(NamedTuple):
  """A kind of classification; see `single_label` and `multi_label`."""

  name: str
  loss: Callable[[Array, Array, Array], Array]
  """(logits, y, mask [batch]) -> mean loss over the mask, []."""
  log_distribution: Callable[[Array], Array]
  """logits [..., classes] -> log probabilities [..., outcomes] or [..., labels, outcomes]."""
  right: Callable[[Array, Array], Array]
  """(logits [..., classes], y) -> is the sample right, [...]."""
  counts: Callable[[Array, Array, Array], dict[str, Array]]
  """(logits, y, mask) -> sums over a batch, by name."""
  scores: Callable[[dict[str, np.ndarray], int], dict[str, float]]
  """(sums over a split, rows) -> metrics, by name."""


def per_sample(values: Array) -> Array:
  """Averages values over labels: [batch] or [batch, labels] -> [batch]."""
  return values.mean(axis=tuple(range(1, values.ndim))) if values.ndim > 1 else values


def negative_log_likelihood(log_p: Array, y: Array) -> Array:
  """The loss of each sample under log probabilities.

  Args:
    log_p: an objective's `log_distribution`, [batch, outcomes] or [batch, labels, outcomes].
    y: [batch], or multi-hot [batch, labels].

  Returns:
    [batch], averaged over labels.
  """
  return per_sample(-jnp.take_along_axis(log_p, y[..., None], axis=-1)[..., 0])


def precision_recall_f1(true: np.ndarray, predicted: np.ndarray, right: np.ndarray) -> np.ndarray:
  """Precision, recall and F1 of labels; a ratio without a denominator is 0, as in scikit-learn.

  Args:
    true: how often each label is there, [...].
    predicted: how often it is predicted, [...].
    right: how often both, [...].

  Returns:
    [3, ...].
  """
  ratio = lambda a, b: np.divide(a, b, out=np.zeros(np.shape(a)), where=np.asarray(b) > 0)
  return np.stack([ratio(right, predicted), ratio(right, true), ratio(2 * right, true + predicted)])


def _right(logits, y):
  return jnp.argmax(logits, axis=-1) == y


def _single_counts(logits, y, mask):
  right = _right(logits, y) * mask
  predicted = jax.nn.one_hot(jnp.argmax(logits, axis=-1), logits.shape[-1], dtype=mask.dtype)
  return {
    'right': jnp.sum(right),
    'predicted': mask @ predicted,
  }


def _single_scores(sums, rows):
  return {
    'accuracy': float(sums['right']) / rows,
    'top_prediction': float(sums['predicted'].max()) / rows,
  }


def _all_right(logits, y):
  return ((logits > 0) == (y > 0)).all(axis=-1)  # a logit above 0: a probability above 0.5


def _multi_counts(logits, y, mask):
  true, predicted, kept = y > 0, logits > 0, mask[:, None]
  return {
    'right': jnp.sum(_all_right(logits, y) * mask),
    'true': jnp.sum(true * kept, axis=0),
    'predicted': jnp.sum(predicted * kept, axis=0),
    'both': jnp.sum((true & predicted) * kept, axis=0),
  }


def _multi_scores(sums, rows):
  of_labels = [np.asarray(sums[name], np.float64) for name in ('true', 'predicted', 'both')]
  by_class = precision_recall_f1(*of_labels).mean(axis=1)
  overall = precision_recall_f1(*(a.sum() for a in of_labels))
  names = ('precision', 'recall', 'f1')
  return {
    'accuracy': float(sums['right']) / rows,
    **{f'c_{name}': float(v) for name, v in zip(names, by_class, strict=True)},
    **{f'o_{name}': float(v) for name, v in zip(names, overall, strict=True)},
  }


# One class per sample: y [batch], softmax over the classes. 'accuracy' is the share of samples that
# are right, 'top_prediction' that of the samples that get the most frequent prediction: 1 if the
# model has collapsed to a class.
single_label = Objective(
  'single_label',
  cross_entropy,
  jax.nn.log_softmax,
  _right,
  _single_counts,
  _single_scores,
)

# Any number of labels per sample: y multi-hot [batch, labels], a sigmoid per label, which is there
# or not: two outcomes. A label counts as predicted above a probability of 0.5. 'accuracy' is the
# share of samples with all labels right (exact match): labels are rare, and of single labels almost
# all are right if none is ever predicted. 'c_' are means over labels (macro: F1 too is the mean of
# the labels' F1, as FedCOG's Table 2 must be: its C-F1 is not the F1 of its C-P and C-R), 'o_' are
# over all labels of all samples (micro).
multi_label = Objective(
  'multi_label',
  binary_cross_entropy,
  lambda logits: jnp.stack([jax.nn.log_sigmoid(-logits), jax.nn.log_sigmoid(logits)], axis=-1),
  _all_right,
  _multi_counts,
  _multi_scores,
)


def objective_of(y: Array | np.ndarray) -> Objective:
  """Returns the kind of labels: [rows] have one class per row, [rows, labels] are multi-hot."""
  return single_label if y.ndim == 1 else multi_label
