"""Fine-tuning by hand: the optimizer's state goes from step to step, and batches pass through the set."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedjax_syn.algorithms.dynafed.finetuning import finetune
from fedjax_syn.algorithms.dynafed.synthetic_set import SyntheticSet


def set_of(values):
  x = jnp.asarray(values, jnp.float32).reshape(-1, 1, 1, 1)
  return SyntheticSet(x, jnp.zeros((len(values), 1)), jnp.zeros(()))


def test_momentum_by_hand():
  """Loss w^2 / 2 from w = 4, rate 1/2, momentum 1/2. Velocities 4, 2 + 2 = 4, 0 + 2 = 2: w = 2, 0, -1."""
  loss = lambda w, x, y, key: 0.5 * w**2
  w, records = finetune(
    loss,
    optax.sgd(0.5, momentum=0.5),
    jnp.asarray(4.0),
    set_of([0]),
    jax.random.key(0),
    3,
    record=lambda w: 10 * w,
  )
  assert float(w) == -1
  np.testing.assert_array_equal(records, [20, 0, -10])


def test_batches_pass_through_the_set():
  """Loss -w sum(x) with rate 1 adds up the images seen: all of 1, 2, 4, 8 after two batches of two, and three
  times all of them after as many full steps."""
  loss = lambda w, x, y, key: -w * x.sum()
  tune = lambda steps, batch: finetune(
    loss,
    optax.sgd(1.0),
    jnp.zeros(()),
    set_of([1, 2, 4, 8]),
    jax.random.key(0),
    steps,
    batch_size=batch,
  )[0]
  assert float(tune(2, 2)) == 15 and float(tune(1, 2)) in (3, 5, 6, 9, 10, 12)
  assert float(tune(3, 0)) == float(tune(3, 4)) == float(tune(3, 9)) == 45


def test_no_steps_change_nothing():
  w, records = finetune(
    lambda w, x, y, key: w**2,
    optax.adam(0.1),
    jnp.asarray(3.0),
    set_of([1]),
    jax.random.key(0),
    0,
    record=lambda w: w,
  )
  assert float(w) == 3 and records.shape == (0,)
