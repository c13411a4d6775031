"""Training by optax optimizers, by hand."""

import jax.numpy as jnp
import numpy as np
import optax

from fedjax_syn.core.optimizers import optimize, training_step


def test_the_state_goes_from_step_to_step():
  """The loss is w^2 / 2 from w = 4, with rate 1/2 and momentum 1/2.

  Velocities are 4, 2 + 2 = 4 and 0 + 2 = 2, so w = 2, 0, -1.
  """
  sgd = optax.sgd(0.5, momentum=0.5)
  loss = lambda w, batch: 0.5 * w**2
  w, records = optimize(loss, sgd, jnp.asarray(4.0), jnp.arange(3), lambda w: 10 * w)
  assert float(w) == -1
  np.testing.assert_array_equal(records, [20, 0, -10])


def test_each_step_has_its_batch():
  """Loss -w x with rate 1 adds up the x."""
  w, _ = optimize(lambda w, x: -w * x, optax.sgd(1.0), jnp.zeros(()), jnp.array([1.0, 2.0, 4.0]))
  assert float(w) == 7


def test_no_batch_changes_nothing():
  w, records = optimize(
    lambda w, i: w**2, optax.adam(0.1), jnp.asarray(3.0), jnp.arange(0), lambda w: w
  )
  assert float(w) == 3 and records.shape == (0,)


def test_a_step_returns_what_the_loss_was_before_it():
  """(w - x)^2 / 2 at w = 1, x = 3 is 2, its gradient -2; rate 1/2 leads to 2."""
  sgd = optax.sgd(0.5)
  step = training_step(lambda w, x: (0.5 * (w - x) ** 2, 10 * w), sgd, has_aux=True)
  w = jnp.asarray(1.0)
  (new, _), (loss, aux) = step((w, sgd.init(w)), 3.0)
  assert (float(new), float(loss), float(aux)) == (2, 2, 10)
