"""Microbatches give the values and derivatives of the whole, on one and several devices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_syn as fs
from fedjax_syn import models
from fedjax_syn.algorithms.dynafed import unroll
from fedjax_syn.algorithms.dynafed.synthetic_set import SyntheticSet
from fedjax_syn.core import microbatches
from fedjax_syn.core.mesh import place, replicated
from fedjax_syn.engine import Engine, Layout
from tests import tiny

IMAGES = 12


def mesh_of(devices):
  return jax.sharding.Mesh(np.array(jax.devices()[:devices]), ('lanes',)) if devices > 1 else None


@pytest.fixture
def x64():
  with jax.enable_x64(True):
    yield


def drawn(model):
  kx, ky = jax.random.split(jax.random.key(2))
  x = jax.random.normal(kx, (IMAGES, 3, 3, 1), float)
  return model.init(jax.random.key(0)).params, x, jax.random.normal(ky, (IMAGES, 3), float)


@pytest.mark.parametrize(('count', 'devices'), [(4, 1), (5, 1), (3, 2), (1, 4), (2, 4)])
def test_value_gradient_and_its_tangent_are_those_of_the_whole(x64, count, devices):
  """Of the weights alone, as in a step of training, and of all three, as in the adjoint."""
  model, mesh = tiny.net(9, 3), mesh_of(devices)
  whole, split = (unroll.inner_loss(model, {}, None, *how) for how in ((1, None), (count, mesh)))
  where = drawn(model)
  w, x, y = place(where, replicated(mesh)) if mesh else where
  along = jax.tree.map(jnp.cos, w)
  for argnums in (0, (0, 1, 2)):

    def derivatives(loss, argnums=argnums):
      gradient = lambda w: jax.value_and_grad(loss, argnums=argnums)(w, x, y, jax.random.key(0))
      return jax.jit(lambda w: jax.jvp(gradient, (w,), (along,)))(w)

    one, other = derivatives(whole), derivatives(split)
    assert max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(one)) > 0.1
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-12), one, other)
  key = jax.random.key(0)
  np.testing.assert_allclose(split(w, x, y, key), whole(w, x, y, key), rtol=1e-12)


@pytest.mark.parametrize('adjoint', unroll.ADJOINTS)
def test_meta_gradients_are_those_of_the_whole(x64, adjoint):
  """An augmentation sees all images together, so its draws do not depend on the microbatches."""
  model = tiny.net(9, 3)
  w, x, y = drawn(model)
  target = model.init(jax.random.key(1)).params
  syn = SyntheticSet(x, y, jnp.log(jnp.asarray(0.3)))
  turned = lambda key, x: x * jax.random.uniform(key, (IMAGES, 1, 1, 1), float)
  mesh, results = mesh_of(2), []
  for how in ((1, None), (3, None), (3, mesh)):
    loss = unroll.inner_loss(model, {}, turned, *how)

    def matching(syn, w, target, loss=loss):
      end = unroll.unroll(loss, w, syn, jax.random.key(3), 3, adjoint=adjoint)
      return unroll.squared_distance(end, target, w)

    arguments = syn, w, target
    arguments = place(arguments, replicated(mesh)) if how[1] else arguments
    results.append(jax.jit(jax.value_and_grad(matching))(*arguments))
  for other in results[1:]:
    jax.tree.map(
      lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-11), results[0], other
    )


def convnet(norm='group'):
  return models.create('convnet', shape=(8, 8, 1), num_classes=10, width=2, depth=1, norm=norm)


@pytest.mark.parametrize(
  ('images', 'devices', 'expected'),
  [
    (150, 2, (15, 2)),  # 75 images on each: 15 microbatches of 5
    (150, 4, (8, 4)),  # 38 on each: 8 microbatches of 5, 10 places of which nobody has
    (7, 2, (1, 1)),  # one microbatch of 7: a device has at least 5
    (20, 1, (4, 1)),
  ],
)
def test_split(images, devices, expected):
  split = microbatches.synthetic_microbatches(images, convnet(), mesh_of(devices))
  assert (split.number, split.mesh.devices.size if split.mesh else 1) == expected


def test_networks_that_gain_nothing_or_whose_images_see_each_other_are_not_split():
  for model in (tiny.net(9, 3), convnet('batch')):
    assert microbatches.synthetic_microbatches(150, model, mesh_of(2)) == (1, None)


def test_synthesis_on_two_devices_is_that_on_one(monkeypatch):
  """Compares one iteration, by its loss and by the start of the next one.

  More iterations would differ: where a gradient is nearly 0, Adam's first step enlarges rounding
  to the size of a step.
  """
  data = tiny.federated([6, 6, 5, 7])
  states = []
  for number in (1, 3):  # on one device, and on each of two
    split = microbatches.Microbatches(number, mesh_of(2) if number > 1 else None)
    monkeypatch.setattr(microbatches, 'synthetic_microbatches', lambda *_, split=split: split)
    method = fs.chain(
      fs.FedAvg(lr=0.1, optimizer='sgd', batch_size=2),
      fs.DynaFed(
        length=3,
        segment=2,
        iterations=2,
        inner_steps=3,
        images_per_class=4,
        image_lr=1e-6,
        label_lr=1e-6,
        inner_lr_lr=1e-6,
      ),
    )
    engine = Engine(method, tiny.net(4, 3), data, layout=Layout(1, 'blocks', 2))
    state, _ = engine.run(0, engine.init(0), 3)
    while engine.pending(state):
      state, _, _ = engine.server_work(0, state, 0.0)
    state, report = engine.run(0, state, 1)
    assert report['diverged_round'] == 0
    states.append(state)
  one, two = states
  np.testing.assert_allclose(one.server['dynafed'].losses, two.server['dynafed'].losses, rtol=1e-5)
  np.testing.assert_allclose(one.params['w0'], two.params['w0'], atol=1e-5)
