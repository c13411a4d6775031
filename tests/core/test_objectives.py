"""Both kinds of classification: losses and distributions by hand, metrics also by scikit-learn."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sk

from fedjax_syn.algorithms.fedcog import generation as comp
from fedjax_syn.core import objectives
from fedjax_syn.core.objectives import multi_label, single_label

# Three samples, three labels. Label 0 is true twice and predicted twice, once both. Label 1 is
# true once and never predicted. Label 2 is never true and predicted once.
TRUE = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 0]])
FOUND = np.array([[1, 0, 0], [0, 0, 0], [1, 0, 1]])
LOGITS = jnp.where(FOUND > 0, 0.3, -0.3)


def scores(logits, y, mask):
  sums = jax.tree.map(np.asarray, multi_label.counts(logits, jnp.asarray(y), jnp.asarray(mask)))
  return multi_label.scores(sums, int(mask.sum()))


def test_metrics_by_hand():
  """Precision is 1/2, 0 (none predicted), 0; recall 1/2, 0, 0 (none true); F1 2/(2 + 2), 0, 0.

  So the means are 1/6. Overall one label is right, of three predicted and of three true. Only the
  first of the three samples is right in all labels.
  """
  got = scores(LOGITS, TRUE, np.ones(3, np.float32))
  assert got == pytest.approx(
    {
      'accuracy': 1 / 3,
      'c_precision': 1 / 6,
      'c_recall': 1 / 6,
      'c_f1': 1 / 6,
      'o_precision': 1 / 3,
      'o_recall': 1 / 3,
      'o_f1': 1 / 3,
    }
  )


def test_accuracy_and_the_most_frequent_prediction_by_hand():
  """Predictions are 0, 2, 2 and, as padding, 1; true classes are 0, 2, 1.

  So two of three are right, and two of three are predicted as class 2.
  """
  logits, y = jnp.eye(3)[jnp.array([0, 2, 2, 1])], jnp.array([0, 2, 1, 1])
  sums = jax.tree.map(np.asarray, single_label.counts(logits, y, jnp.array([1.0, 1, 1, 0])))
  wanted = {'accuracy': 2 / 3, 'top_prediction': 2 / 3}
  assert single_label.scores(sums, 3) == pytest.approx(wanted)


def test_padding_counts_for_nothing():
  """Without the third sample label 0 has precision 1, recall 1/2 and F1 2/3.

  Overall precision is 1 of 1 and recall 1 of 3.
  """
  got = scores(LOGITS, TRUE, np.array([1, 1, 0], np.float32))
  wanted = {'accuracy': 1 / 2, 'c_precision': 1 / 3, 'c_recall': 1 / 6, 'c_f1': 2 / 9}
  wanted |= {'o_precision': 1, 'o_recall': 1 / 3, 'o_f1': 1 / 2}
  assert got == pytest.approx(wanted)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 5, 12]), st.sampled_from([2, 6]))
def test_metrics_are_scikit_learns(seed, rows, labels):
  rng = np.random.default_rng(seed)
  y = rng.integers(0, 2, (rows, labels))
  logits = rng.normal(size=(rows, labels)).astype(np.float32)
  got, found = scores(jnp.asarray(logits), y, np.ones(rows, np.float32)), (logits > 0).astype(int)
  assert got['accuracy'] == pytest.approx(sk.accuracy_score(y, found))
  for letter, average in (('c', 'macro'), ('o', 'micro')):
    want = sk.precision_recall_fscore_support(y, found, average=average, zero_division=0)[:3]
    assert [got[f'{letter}_{n}'] for n in ('precision', 'recall', 'f1')] == pytest.approx(want)


def test_loss_by_hand():
  """Logits 0 and ln 3 cost -ln(1/2) and, for a label that is absent, -ln(1/4).

  The loss is the mean over labels and mask.
  """
  logits = jnp.array([[0.0, np.log(3.0)], [5.0, 5.0]])
  y, mask = jnp.array([[1, 0], [0, 0]]), jnp.array([1.0, 0.0])
  want = (np.log(2) + np.log(4)) / 2
  np.testing.assert_allclose(multi_label.loss(logits, y, mask), want, rtol=1e-6)
  assert multi_label.loss(logits, y, jnp.zeros(2)) == 0


def test_the_likelihood_of_a_distribution_is_the_loss():
  rng = np.random.default_rng(0)
  logits, mask = jnp.asarray(rng.normal(size=(5, 4)), jnp.float32), jnp.ones(5)
  for kind, y in (
    (single_label, rng.integers(0, 4, 5)),
    (multi_label, rng.integers(0, 2, (5, 4))),
  ):
    log_p = kind.log_distribution(logits)
    np.testing.assert_allclose(jnp.exp(log_p).sum(-1), 1, rtol=1e-6)
    losses_of = objectives.negative_log_likelihood(log_p, jnp.asarray(y))
    assert losses_of.shape == (5,)
    np.testing.assert_allclose(losses_of.mean(), kind.loss(logits, jnp.asarray(y), mask), rtol=1e-6)
    assert objectives.objective_of(y) is kind


def test_divergences_of_labels_by_hand():
  """The divergence is 0 for one of two labels and ln 2 for the other (0 against 1).

  So the average is ln(2) / 2.
  """
  p, q = (multi_label.log_distribution(jnp.array([[z, 0.5]])) for z in (40.0, -40.0))
  js = objectives.per_sample(comp.jensen_shannon(p, q))
  np.testing.assert_allclose(js, [np.log(2) / 2], rtol=1e-5)
  kl = objectives.per_sample(optax.losses.kl_divergence_with_log_targets(p, q))
  np.testing.assert_allclose(kl, [20], rtol=1e-5)  # 1 ln(1 / e^-40) of two labels


@settings(deadline=None, max_examples=40)
@given(
  # Few shapes, as each is compiled.
  st.sampled_from([3, 8]).flatmap(lambda n: st.lists(st.integers(0, 40), min_size=n, max_size=n)),
  st.sampled_from([2, 40]),
  st.floats(0.0, 8.0),
)
def test_label_sets(counts, budget, each):
  """Shares are within one of what is due.

  Samples differ by one label at most, unless a label is in all of them.
  """
  lacking = np.asarray(comp.complement(jnp.array(counts)), float)
  sets = np.asarray(comp.label_sets(jnp.array(lacking), each, budget))
  assert sets.shape == (budget, len(counts)) and set(np.unique(sets)) <= {0, 1}
  total = np.round(budget * np.clip(np.float32(each), 1, len(counts)))
  share = lacking / lacking.sum() if lacking.sum() else np.full(len(counts), 1 / len(counts))
  due = np.minimum(total * share, budget)
  assert np.abs(sets.sum(0) - due).max() < 1.01
  if (total * share).max() <= budget - 1:
    assert sets.sum() == total and np.ptp(sets.sum(1)) <= 1


def test_label_sets_of_one_label_are_complementary_labels():
  d = jnp.array([500, 0, 400, 200, 400])
  one_hot = jax.nn.one_hot(comp.class_labels(comp.complement(d), 50), 5, dtype=jnp.int32)
  np.testing.assert_array_equal(comp.label_sets(comp.complement(d), 1.0, 50), one_hot)


def test_label_sets_by_hand():
  """Counts 4, 0, 2 of labels 0, 1, 2 lack 0, 4, 2.

  Two labels in each of 3 samples are 6: 4 of label 1 and 2 of label 2. But 3 samples can hold
  label 1 only 3 times.
  """
  sets = comp.label_sets(comp.complement(jnp.array([4, 0, 2])), 2.0, 3)
  np.testing.assert_array_equal(sets, [[0, 1, 0], [0, 1, 1], [0, 1, 1]])
