"""Distribution and gradient matching against hand values.

The tests cover means, distances, the ball, the radius and the noise.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedjax_syn as fs
from fedjax_syn.algorithms.set_sharing import base, gradient_matching
from fedjax_syn.algorithms.set_sharing import distribution_matching as dm
from fedjax_syn.algorithms.set_sharing.base import perturb_weights
from fedjax_syn.algorithms.set_sharing.class_sets import ClassSet, bytes_of, gather, over_present
from fedjax_syn.core import microbatches
from fedjax_syn.core.types import Variables
from fedjax_syn.data import federated
from fedjax_syn.models import create
from tests import tiny


def net():
  model = create('mlp', shape=(2, 2, 1), num_classes=3, width=6, depth=2)
  return model, model.init(jax.random.key(0))


def sets_of(present, per_class=2, seed=0):
  """Sets of several clients, noise in present and absent classes alike."""
  present = jnp.asarray(present, bool)
  x = jax.random.normal(jax.random.key(seed), (*present.shape, per_class, 2, 2, 1))
  return ClassSet(x, present)


def test_distance_of_means_by_hand():
  """(0, 0) and (3, 4) are 5 apart, 25 squared; equal means have distance and gradient 0."""
  a, b = jnp.zeros(2), jnp.array([3.0, 4.0])
  np.testing.assert_allclose(dm.distance(a, b, squared=False), 5, rtol=1e-6)
  np.testing.assert_allclose(dm.distance(a, b, squared=True), 25, rtol=1e-6)
  for squared in (True, False):
    assert dm.distance(b, b, squared) == 0
    np.testing.assert_array_equal(jax.grad(lambda z: dm.distance(b, z, squared))(b), 0)


@pytest.mark.parametrize('backend', ['cpu', 'tpu'])
@pytest.mark.parametrize('batch', [1, 3, 64])
def test_class_means_against_numpy(batch, backend):
  """Client 1 of two: rows 4..10, in batches that do not divide 7; class 2 may be absent."""
  data = tiny.federated([4, 7])
  embed = lambda x: (x, 2 * x.reshape(x.shape[0], -1)[:, :1])
  means = dm.class_means(data, federated.shard_of(data, 1), embed, backend, batch)
  x = (np.asarray(data.x[4:], float) / 255 - 0.5) / 0.3
  y = np.asarray(data.y[4:])
  for c in range(3):
    want = x[y == c].mean(0) if (y == c).any() else np.zeros((2, 2, 1))
    np.testing.assert_allclose(means[0][c], want, rtol=0, atol=1e-5)
    np.testing.assert_allclose(means[1][c], 2 * want[0, 0], rtol=0, atol=1e-5)


@pytest.mark.parametrize('images', [32, 64, 40])
def test_means_in_pieces_are_means_at_once(images):
  x = jax.random.normal(jax.random.key(0), (images, 2, 2, 1))
  embed = lambda x: (x.reshape(x.shape[0], -1), x[:, 0, 0] ** 2)
  for got, want in zip(dm.means(x, embed), embed(x), strict=True):
    np.testing.assert_allclose(got, want.mean(0), rtol=1e-5, atol=1e-6)


def test_positions_by_class():
  data = tiny.federated([4, 7])
  positions, begin = dm.by_class(data, federated.shard_of(data, 1))
  y = np.asarray(data.y[4:])
  np.testing.assert_array_equal(y[np.asarray(positions)[:7]], np.sort(y))
  np.testing.assert_array_equal(begin, np.searchsorted(np.sort(y), [0, 1, 2]))


def test_stages_begin_at_the_last_layer_and_keep_the_deeper_ones():
  np.testing.assert_array_equal(dm.backward_stages(3), [[0, 0, 1], [0, 1, 1], [1, 1, 1]])


def test_layers_of_a_network():
  model, w = net()
  x = jnp.ones((5, 2, 2, 1))
  shapes = {name: [z.shape for z in dm.layers(model, w, x, name)] for name in dm.LAYERS}
  assert shapes == {
    'pooled': [(5, 6), (5, 6)],
    'pooled+logits': [(5, 6), (5, 6), (5, 3)],
    'last+logits': [(5, 6), (5, 3)],
  }
  model = create('convnet', shape=(8, 8, 1), num_classes=3, width=4, depth=2)
  w = model.init(jax.random.key(0))
  pooled = dm.layers(model, w, jnp.ones((5, 8, 8, 1)), 'pooled')
  assert [z.shape for z in pooled] == [(5, 4, 4, 4), (5, 2, 2, 4)]  # blocks keep their shape


def test_matching_moves_present_classes_towards_their_means_and_leaves_absent_ones():
  own = sets_of([[True, False, True]])
  own = ClassSet(own.x[0], own.present[0])
  goal = jnp.arange(3.0)

  def losses(i):
    return lambda x, c: (x.mean() - goal[c]) ** 2

  moved = dm.descend(losses, own, 400, lr=2.0, momentum=0.5)
  np.testing.assert_allclose(moved.x[0].mean(), 0, atol=1e-3)
  np.testing.assert_allclose(moved.x[2].mean(), 2, atol=1e-3)
  np.testing.assert_array_equal(moved.x[1], own.x[1])


def test_momentum_of_matching_by_hand():
  """x from 1 under x^2 / 2, rate 0.1, momentum 0.5: v = 1, x = 0.9; v = 1.4, x = 0.76."""
  own = ClassSet(jnp.ones((1, 1, 1, 1, 1)), jnp.ones(1, bool))
  moved = dm.descend(lambda i: lambda x, c: (x**2).sum() / 2, own, 2, lr=0.1, momentum=0.5)
  np.testing.assert_allclose(moved.x, 0.76, rtol=1e-6)


def test_perturbed_weights_lie_in_the_ball():
  params = {'a': jnp.ones((40, 5)), 'b': jnp.zeros(7)}
  for seed in range(20):  # 207 standard normal numbers are 14 long: cut to 2
    drawn = perturb_weights(jax.random.key(seed), params, 2.0)
    norm = float(optax.tree.norm(optax.tree.sub(drawn, params)))
    np.testing.assert_allclose(norm, 2, rtol=1e-5)
  one = [perturb_weights(jax.random.key(s), {'a': jnp.zeros(1)}, 2.0)['a'] for s in range(400)]
  inside = np.mean(np.abs(np.array(one)) < 1.999)  # a single number is inside where |N| < 2: 0.9545
  np.testing.assert_allclose(inside, 0.954, atol=0.04)


def test_gradient_distance_by_hand():
  """Columns (3, 4) and (4, 3) have cos 24/25; (1, 0) and (-1, 0) have -1: 1/25 + 2.

  Biases do not count.
  """
  a = {'w': jnp.array([[3.0, 1.0], [4.0, 0.0]]), 'b': jnp.array([1.0, 2.0])}
  b = {'w': jnp.array([[4.0, -1.0], [3.0, 0.0]]), 'b': jnp.array([-9.0, 2.0])}
  np.testing.assert_allclose(gradient_matching.distance(a, b), 2.04, rtol=1e-5)
  np.testing.assert_allclose(gradient_matching.distance(a, a), 0, atol=3e-6)
  zero = jax.tree.map(jnp.zeros_like, a)
  np.testing.assert_allclose(
    gradient_matching.distance(zero, b), 2
  )  # two output units without direction
  assert all(
    np.isfinite(g).all() for g in jax.tree.leaves(jax.grad(gradient_matching.distance)(zero, b))
  )


def mean_loss(model, w, stats, x, y):
  logits = model.apply(Variables(w, stats), x).logits
  return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()


def flat(sets, clients):
  """The present images of some clients, with labels, by numpy."""
  images, labels = [], []
  for k in clients:
    for c in np.flatnonzero(np.asarray(sets.present[k])):
      images.append(np.asarray(sets.x[k, c]))
      labels += [c] * sets.x.shape[2]
  return jnp.asarray(np.concatenate(images)), jnp.asarray(labels)


PRESENT = [[True, False, True], [False, True, False], [False, False, False]]


def test_gradients_on_sets_are_those_of_the_mean_loss():
  model, (w, stats) = net()
  sets = sets_of(PRESENT)
  own = ClassSet(sets.x[0], sets.present[0])
  slope = jax.jit(jax.grad(lambda w, x, y: mean_loss(model, w, stats, x, y)))
  want, union = (slope(w, *flat(sets, clients)) for clients in ([0], [0, 1]))
  got = jax.jit(lambda w: gradient_matching.set_gradient(model, w, stats, own))(w)
  both = jax.jit(lambda w: gradient_matching.union_gradient(model, w, stats, sets))(w)
  for pair in ((want, got), (union, both)):
    for a, b in zip(*map(jax.tree.leaves, pair), strict=True):
      np.testing.assert_allclose(a, b, rtol=0, atol=1e-6)


def test_a_matching_step_is_the_gradient_of_the_distance():
  """In float64 the tangent form equals reverse over reverse to 1e-10; absent classes stay."""
  with jax.enable_x64(True):
    model, (w, stats) = net()
    w = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), w)
    sets = sets_of(PRESENT)
    sets = sets._replace(x=sets.x.astype(jnp.float64))
    own = ClassSet(sets.x[0], sets.present[0])
    target = jax.jit(lambda: gradient_matching.union_gradient(model, w, stats, sets))()
    match = lambda *how: jax.jit(
      lambda own: gradient_matching.match(model, w, stats, own, target, *how)
    )(own)

    def distance(x):
      images = jnp.concatenate([x[0], x[2]])
      labels = jnp.array([0, 0, 2, 2])
      g = jax.grad(lambda w: mean_loss(model, w, stats, images, labels))(w)
      return gradient_matching.distance(g, target)

    value, slope = jax.jit(jax.value_and_grad(distance))(own.x)
    moved, seen = match(1, 0.1)
    np.testing.assert_allclose(seen, value, rtol=1e-10)
    np.testing.assert_allclose(moved.x, own.x - 0.1 * slope, rtol=0, atol=1e-10)
    assert np.abs(slope[0]).max() > 1e-4
    np.testing.assert_array_equal(moved.x[1], own.x[1])
    _, last = match(50, 0.01)
    assert last < value


def test_radius_against_two_explicit_steps():
  """max over clients of ||(w - eta g_k) - (w - eta g)||; the client without a class is left out."""
  model, (w, stats) = net()
  sets = sets_of(PRESENT)
  slope = jax.jit(jax.grad(lambda w, x, y: mean_loss(model, w, stats, x, y)))
  step = lambda clients: jax.tree.map(lambda p, g: p - 0.3 * g, w, slope(w, *flat(sets, clients)))
  radius = jax.jit(lambda sets: gradient_matching.radius(model, w, stats, sets, 0.3))
  union = step([0, 1])
  want = max(float(optax.tree.norm(optax.tree.sub(step([k]), union))) for k in (0, 1))
  np.testing.assert_allclose(radius(sets), want, rtol=1e-5)
  alone = sets_of([[True, True, True], [False] * 3])
  np.testing.assert_allclose(radius(alone), 0, atol=1e-6)


def test_clipping_bounds_every_update_and_noise_has_its_scale():
  """Norm 10 becomes C = 2. With sigma 3 the noise is N(0, (3 * 2 / 4)^2).

  2 classes of 2 images are present.
  """
  present = jnp.array([True, False, True])
  grads = jnp.zeros((3, 2, 50, 50, 1)).at[0].set(10 / np.sqrt(5000))
  clipped = dm.privatise(jax.random.key(0), grads, present, dm.Noise(2.0, 0.0))
  np.testing.assert_allclose(jnp.sqrt((clipped**2).sum()), 2, rtol=1e-5)
  small = dm.privatise(jax.random.key(0), grads / 10, present, dm.Noise(2.0, 0.0))
  np.testing.assert_array_equal(small, grads / 10)
  noised = dm.privatise(jax.random.key(0), grads, present, dm.Noise(2.0, 3.0)) - clipped
  np.testing.assert_allclose(noised[jnp.array([0, 2])].std(), 1.5, rtol=0.03)
  np.testing.assert_array_equal(noised[1], 0)


def test_absent_classes_are_not_visited_and_the_union_lists_present_images():
  visited = over_present(
    jnp.array([False, True, True]), lambda c, seen: seen.at[c].add(1), jnp.zeros(3)
  )
  np.testing.assert_array_equal(visited, [0, 1, 1])
  sets = sets_of(PRESENT)
  x, y, order, count = gather(sets)
  assert count == 6
  want, labels = flat(sets, [0, 1])
  np.testing.assert_array_equal(x[order[:6]], want)
  np.testing.assert_array_equal(y[order[:6]], labels)


def test_bytes_are_those_of_the_present_images():
  """2, 1 and 0 classes of 10 images of 4 x 4 x 1 float32, and three bytes of flags."""
  got = bytes_of(np.array(PRESENT), 10, (4, 4, 1))
  np.testing.assert_array_equal(got, [2 * 640 + 3, 640 + 3, 3])


def test_training_on_the_union_in_pieces_is_training_on_it_at_once(monkeypatch):
  """On a CPU, 20 images of a convolutional network are four pieces of five.

  In float64 the end is the same.
  """
  with jax.enable_x64(True):
    model = create('convnet', shape=(8, 8, 1), num_classes=3, width=2, depth=1)
    x = jax.random.normal(jax.random.key(3), (2, 3, 4, 8, 8, 1))
    sets = [ClassSet(x, jnp.array([[True, True, False], [False, True, True]]))]
    w = jax.tree.map(lambda leaf: leaf.astype(float), model.init(jax.random.key(0)).params)
    task = tiny.build(fs.FedDM(), model, tiny.federated([6, 3], side=8)).task()

    def train():
      how = {'steps': 3, 'batch_size': 20}
      return base.train(jax.random.key(1), task, w, {}, sets, optax.sgd(0.1), **how)

    monkeypatch.setattr(microbatches, 'CACHE', 0)
    monkeypatch.setattr(microbatches, 'LEAST_LOCAL', 5)
    monkeypatch.setattr(microbatches, 'LEAST_OF_BLOCKS', 5)
    assert microbatches.num_microbatches(model, (8, 8, 1), x.dtype, 20) == 4
    apart = train()
    monkeypatch.undo()
    assert microbatches.num_microbatches(model, (8, 8, 1), x.dtype, 20) == 1
    for a, b in zip(*map(jax.tree.leaves, (apart, train())), strict=True):
      np.testing.assert_allclose(a, b, rtol=0, atol=1e-12)
    assert (
      max(np.abs(a - b).max() for a, b in zip(*map(jax.tree.leaves, (apart, w)), strict=True))
      > 1e-2
    )
