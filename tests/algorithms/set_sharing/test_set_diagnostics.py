"""sigma_d, sigma_g and the spread of gradients, against numbers worked by hand and numpy."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedjax_syn.algorithms.set_sharing import gradient_matching, set_diagnostics
from fedjax_syn.algorithms.set_sharing.class_sets import ClassSet
from fedjax_syn.core.objectives import cross_entropy
from fedjax_syn.core.types import Variables
from fedjax_syn.data import federated
from fedjax_syn.models import create
from tests import tiny


def test_spread_by_hand():
  """(1, 0), (3, 0) and an absent one: the mean is (2, 0), both are 1 away: 1 / 2.

  Equal gradients give 0. The spread is over all leaves together.
  """
  grads = {'a': jnp.array([[1.0], [3.0], [99.0]]), 'b': jnp.zeros((3, 1))}
  present = jnp.array([True, True, False])
  np.testing.assert_allclose(set_diagnostics.spread(grads, present), 0.5, rtol=1e-6)
  # (1, 2) and (3, -2): mean (2, 0), each sqrt(5) away.
  grads['b'] = jnp.array([[2.0], [-2.0], [5.0]])
  np.testing.assert_allclose(set_diagnostics.spread(grads, present), np.sqrt(5) / 2, rtol=1e-6)
  same = {'a': jnp.full((3, 4), 2.0)}
  assert set_diagnostics.spread(same, present) == 0


def test_gradients_on_the_clients_data_in_batches_that_do_not_divide():
  data = tiny.federated([5, 0, 3])
  model = tiny.net(4, 3)
  w, stats = model.init(jax.random.key(0))
  found = set_diagnostics.on_data(model, cross_entropy, data, Variables(w, stats), batch_size=2)
  x = federated.normalise(data, data.x)

  @jax.jit
  @jax.grad
  def slope(w, x, y):
    logits = model.apply(Variables(w, stats), x).logits
    return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

  for client, rows in ((0, slice(0, 5)), (2, slice(5, 8))):
    for a, b in zip(*map(jax.tree.leaves, (found, slope(w, x[rows], data.y[rows]))), strict=True):
      np.testing.assert_allclose(a[client], b, rtol=0, atol=1e-6)
  assert all(not np.asarray(leaf[1]).any() for leaf in jax.tree.leaves(found))


def test_features_by_hand():
  """h(x) = x of one pixel. D: class 0 at 1, 1, 1, class 1 at 5: mean 2.

  S: class 0 at 1, class 1 at 7: mean 4. As stated they are 2 apart. With the client's shares
  3 : 1, S has (3 + 7) / 4 = 2.5, which is 0.5 away.
  """
  x = np.array([1, 1, 1, 5], np.uint8).reshape(4, 1, 1, 1)
  data = tiny.clients_of(x, np.array([0, 0, 0, 1]), [4], 3)
  images = jnp.array([[1.0, 1.0], [6.0, 8.0], [50.0, 50.0]]).reshape(3, 2, 1, 1, 1)
  embed = lambda x: (x,)
  shard = federated.shard_of(data, jnp.int32(0))
  own = ClassSet(images, jnp.array([True, True, False]))
  stated, same = set_diagnostics.feature_difference(embed, data, shard, own)
  np.testing.assert_allclose([stated, same], [2.0, 0.5], rtol=1e-6)
  # Two layers, the second three times the first: sqrt(1 + 9) times as far.
  both = lambda x: (embed(x)[0], 3 * embed(x)[0])
  stated, _ = set_diagnostics.feature_difference(both, data, shard, own)
  np.testing.assert_allclose(stated, 2 * np.sqrt(10), rtol=1e-6)


def test_gradient_difference_is_the_mean_over_clients_that_have_a_set():
  model = create('mlp', shape=(2, 2, 1), num_classes=3, width=6, depth=2)
  w, stats = model.init(jax.random.key(0))
  present = jnp.array([[True, False, True], [False, True, False], [False, False, False]])
  sets = ClassSet(jax.random.normal(jax.random.key(1), (3, 3, 2, 2, 2, 1)), present)
  union = gradient_matching.union_gradient(model, w, stats, sets)
  apart = []
  for k in range(2):
    own = gradient_matching.set_gradient(model, w, stats, ClassSet(sets.x[k], sets.present[k]))
    apart.append(float(optax.tree.norm(optax.tree.sub(own, union))))
  found = set_diagnostics.gradient_difference(model, w, stats, sets)
  np.testing.assert_allclose(found, np.mean(apart), rtol=1e-5)
  assert found > 0.01
