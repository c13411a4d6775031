"""FedGen: the losses of the generator, and its batch norm."""

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_syn.algorithms.fedgen import diversity_loss, ensemble_loss
from fedjax_syn.models.generator import FeatureGenerator, Moments, running


def test_ensemble_loss_by_hand():
  """Label 0 lies with client 0 (3 samples) and client 1 (1), label 1 with client 1 only.

  Client 0 gives label 0 the probability 1/2, client 1 gives both labels 1/4: y = (0, 1) costs
  3/4 ln 2 + 1/4 ln 4 and ln 4, the mean is (5/4 ln 2 + 2 ln 2) / 2."""
  logits = jnp.log(jnp.array([[[0.5, 0.5, 0.0001]] * 2, [[0.25, 0.25, 0.5]] * 2]))
  logits = logits.at[0, :, 2].set(-1e9)
  counts = jnp.array([[3.0, 0, 0], [1.0, 2, 0]])
  got = ensemble_loss(logits, jnp.array([0, 1]), counts)
  np.testing.assert_allclose(got, 13 / 8 * np.log(2), rtol=1e-6)


def test_diversity_loss_by_hand():
  """Two samples: noise (0, 0) and (1, 3) is 5 apart on average, features (0) and (0.2) 0.2.

  Two of the four pairs are different, so the exponent is -(1 + 1) / 4.
  """
  got = diversity_loss(jnp.array([[0.0, 0], [1, 3]]), jnp.array([[0.0], [0.2]]))
  np.testing.assert_allclose(got, np.exp(-0.5), rtol=1e-6)


def test_running_moments_keep_the_label_of_a_batch_of_one_class():
  """With a batch's own moments its label would cancel: features would not depend on it."""
  g = FeatureGenerator(hidden=3, features=4, classes=3)
  noise = jax.random.uniform(jax.random.key(1), (5, 2))
  weights = g.init(jax.random.key(0), jnp.zeros(5, jnp.int32), noise)
  of = lambda label, moments: g.apply(weights, jnp.full(5, label), noise, moments)[0]
  mixed = jnp.array([0, 1, 2, 0, 1])
  _, moments = g.apply(weights, mixed, noise)
  np.testing.assert_allclose(of(0, None), of(2, None), atol=1e-5)
  assert np.abs(of(0, moments) - of(2, moments)).min() > 1e-3
  # What a row becomes does not depend on its neighbours.
  alone = g.apply(weights, mixed[:1], noise[:1], moments)[0]
  np.testing.assert_allclose(alone, g.apply(weights, mixed, noise, moments)[0][:1], rtol=1e-5)


def test_running_moments_are_those_of_torch():
  """A tenth of the batch's mean, 2, and of its variance over n - 1, (1 + 0 + 1) / 2 = 1."""
  batch = Moments(jnp.array([2.0]), jnp.array([2 / 3]))
  got = running(Moments(jnp.zeros(1), jnp.ones(1)), batch, 3)
  np.testing.assert_allclose(got.mean, [0.2], rtol=1e-6)
  np.testing.assert_allclose(got.variance, [0.9 + 0.1], rtol=1e-6)
