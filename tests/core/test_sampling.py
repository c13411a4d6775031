"""Batches: shuffled passes through a set."""

import jax
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fedjax_syn.core.sampling import minibatch


@settings(max_examples=20, deadline=None)
@given(images=st.integers(1, 20), batch=st.integers(1, 20), seed=st.integers(0, 9))
def test_minibatches_pass_through_the_whole_set(images, batch, seed):
  batch = min(batch, images)
  per_pass = -(-images // batch)
  rows = [np.asarray(minibatch(jax.random.key(seed), images, batch, i)) for i in range(per_pass)]
  assert all(len(set(r)) == batch for r in rows)
  assert set(np.concatenate(rows)) == set(range(images))
