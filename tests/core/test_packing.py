import jax
import jax.numpy as jnp
import numpy as np
import optax
from hypothesis import given, settings
from hypothesis import strategies as st

from fedjax_syn.core import packing

SHAPES = st.lists(st.integers(0, 40), max_size=3).map(tuple)
KINDS = st.sampled_from((np.float32, np.float16, np.int32))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(SHAPES, KINDS), max_size=6))
def test_a_packed_tree_is_the_same_tree_again(leaves):
  rng = np.random.default_rng(0)
  tree = {str(i): jnp.asarray(rng.normal(size=s) * 9, k) for i, (s, k) in enumerate(leaves)}
  packed = packing.pack(tree)
  assert len(packed.small) == len({leaf.dtype for leaf in tree.values() if leaf.size <= 1024})
  assert len(packed.large) == sum(leaf.size > 1024 for leaf in tree.values())
  again = packing.unpack(packed)
  assert jax.tree.structure(again) == jax.tree.structure(tree)
  for name, leaf in tree.items():
    assert again[name].dtype == leaf.dtype
    np.testing.assert_array_equal(again[name], leaf)


def test_an_optimizer_takes_the_same_steps_on_a_packed_tree():
  rng = np.random.default_rng(1)
  draw = lambda: {
    'kernel': jnp.asarray(rng.normal(size=(40, 40)), jnp.float32),
    'bias': jnp.asarray(rng.normal(size=40), jnp.float32),
    'scale': jnp.asarray(rng.normal(size=(3, 5)), jnp.float32),
  }
  adam, start, gradients = optax.adam(0.1), draw(), [draw(), draw()]

  def steps(form):
    params = form(start)
    state = adam.init(params)
    for gradient in gradients:
      updates, state = adam.update(form(gradient), state, params)
      params = optax.apply_updates(params, updates)
    return params

  plain, packed = steps(lambda tree: tree), packing.unpack(steps(packing.pack))
  for name, leaf in plain.items():
    np.testing.assert_allclose(packed[name], leaf, rtol=1e-6)
    assert np.abs(packed[name] - start[name]).max() > 0.1
