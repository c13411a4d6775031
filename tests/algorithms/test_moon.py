"""MOON: the contrastive loss, the previous model and the projection head."""

import jax
import jax.numpy as jnp
import numpy as np

import fedjax_syn as fs
from fedjax_syn.algorithms.moon import contrastive_loss
from fedjax_syn.models import create
from tests import tiny


def test_contrastive_loss_by_hand():
  """cos 1 with the global and 0 with the previous features, tau 1/2: -ln(e^2 / (e^2 + 1)).

  Equal features give ln 2.
  """
  z = jnp.array([[2.0, 0.0], [0.0, 3.0]])
  near, far = jnp.array([[1.0, 0.0], [0.0, 1.0]]), jnp.array([[0.0, 1.0], [1.0, 0.0]])
  want = np.log(1 + np.exp(-2))
  np.testing.assert_allclose(contrastive_loss(z, near, far, jnp.ones(2), 0.5), want, rtol=1e-5)
  masked = contrastive_loss(z, jnp.stack([near[0], far[1]]), far, jnp.array([1.0, 0.0]), 0.5)
  np.testing.assert_allclose(masked, want, rtol=1e-5)
  np.testing.assert_allclose(
    contrastive_loss(z, near, near, jnp.ones(2), 0.5), np.log(2), rtol=1e-5
  )


def test_it_keeps_the_local_model_of_a_client_s_last_round():
  engine = tiny.build(
    fs.chain(fs.FedAvg(lr=0.1, optimizer='sgd', batch_size=4), fs.MOON()),
    tiny.net(4, 3),
    tiny.federated([6, 0, 3]),
  )
  state, _ = engine.run(0, engine.init(0), 1)
  kept = state.clients['moon'].params
  mean = jax.tree.map(lambda leaf: (leaf[0] + leaf[2]) / 2, kept)
  for a, b in zip(jax.tree.leaves(mean), jax.tree.leaves(state.params), strict=True):
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-6)
  first = engine.init(0).params
  for a, b in zip(jax.tree.leaves(kept), jax.tree.leaves(first), strict=True):
    np.testing.assert_array_equal(a[1], b)  # no sample, no training


def test_the_projection_is_followed_by_the_models_head():
  model = create('mlp', shape=(2, 2, 1), num_classes=3, width=8, depth=1)
  engine = tiny.build(
    fs.chain(fs.FedAvg(lr=0.1, batch_size=4), fs.MOON(projection=5)), model, tiny.federated([6, 3])
  )
  variables = engine.model.init(jax.random.key(0))
  x = jnp.ones((2, 2, 2, 1))
  out = engine.model.apply(variables, x)
  assert out.features.shape == (2, 5) and out.logits.shape == (2, 3)
  np.testing.assert_allclose(
    engine.model.head(variables.params, out.features), out.logits, rtol=1e-6, atol=1e-6
  )
  heads = [
    path
    for path, _ in jax.tree_util.tree_leaves_with_path(variables.params)
    if engine.model.is_head(path)
  ]
  assert {path[1].key for path in heads} == {'classifier'} and len(heads) == 2
  state, report = engine.run(0, engine.init(0), 2)
  assert np.isfinite(report['train/loss'])
