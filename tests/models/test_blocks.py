"""A block of a ConvNet as one function, against the layers one by one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_syn import models
from fedjax_syn.core import microbatches
from fedjax_syn.core.types import Variables
from fedjax_syn.models import blocks

pytestmark = pytest.mark.skipif(not blocks.FAST, reason='an older JAX takes no blocks')


def stages_loss(conv, shape, width, depth):
  """A loss of all stages, as (params, images) -> value; its point, in float64."""
  model = models.create('convnet', shape=shape, num_classes=3, width=width, depth=depth, conv=conv)
  rng = np.random.default_rng(0)
  away = lambda leaf: np.asarray(leaf, float) + 0.3 * rng.normal(size=leaf.shape)
  params = jax.tree.map(away, model.init(jax.random.key(0)).params)

  def loss(params, x):
    out, stages = model.apply(Variables(params, {}), x, train=False, stages=True)
    return sum(jnp.sin(z).sum() for z in stages) + jnp.square(out.logits).sum()

  return loss, params, rng.normal(size=(3, *shape))


# One channel of MNIST's size; few channels in and out; many in every block.
@pytest.mark.parametrize(
  ('shape', 'width', 'depth'), [((28, 28, 1), 8, 2), ((8, 8, 2), 4, 3), ((8, 4, 9), 9, 2)]
)
def test_values_and_gradients_are_those_of_the_layers(shape, width, depth):
  """In float64, to 1e-10, of all weights and of the images, compiled; 'xla' has no blocks."""
  results = {}
  with jax.enable_x64(True):
    for conv in ('xla', 'chwn'):
      loss, params, x = stages_loss(conv, shape, width, depth)
      results[conv] = jax.jit(jax.value_and_grad(loss, (0, 1)))(params, x)
      used = str(jax.make_jaxpr(loss)(params, x)).count('custom_vjp_call')
      assert used == (depth if conv == 'chwn' else 0)
  close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)
  jax.tree.map(close, results['chwn'], results['xla'])
  assert np.abs(results['xla'][1][1]).max() > 1e-2


def test_odd_sizes_and_other_norms_take_the_layers():
  for shape, norm in (((12, 12, 1), 'group'), ((8, 8, 1), 'batch')):
    model = models.create('convnet', shape=shape, num_classes=3, width=2, norm=norm, conv='chwn')
    v = model.init(jax.random.key(0))
    program = jax.make_jaxpr(lambda x, v=v, m=model: m.apply(v, x, train=False, stages=True))
    assert 'custom_vjp' not in str(program(jnp.ones((2, *shape))))


# Sizes of 16 and more: an earlier form of the block came out wrong there, compiled for a CPU.
@pytest.mark.parametrize(('shape', 'width'), [((16, 16, 2), 8), ((16, 16, 8), 9)])
def test_second_derivatives_are_those_of_the_layers(shape, width):
  """Forward and reverse over reverse, in float64, to 1e-10, compiled."""
  results = {}
  with jax.enable_x64(True):
    for conv in ('xla', 'chwn'):
      loss, params, x = stages_loss(conv, shape, width, 1)
      point = params, jnp.asarray(x)
      along = jax.tree.map(jnp.cos, point)
      gradient = jax.grad(lambda point, loss=loss: loss(*point))
      slope = lambda point, g=gradient: sum(map(jnp.vdot, *map(jax.tree.leaves, (g(point), along))))
      both = lambda p, g=gradient, s=slope: (jax.jvp(g, (p,), (along,))[1], jax.grad(s)(p))
      results[conv] = jax.jit(both)(point)
  close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-8)
  jax.tree.map(close, results['chwn'], results['xla'])
  assert np.abs(results['xla'][0][1]).max() > 1e-2


def test_forward_mode_takes_the_layers_one_by_one():
  loss, params, x = stages_loss('chwn', (8, 8, 2), 4, 1)
  x = jnp.asarray(x, jnp.float32)
  slope = lambda x: jax.jvp(lambda x: loss(params, x), (x,), (jnp.ones_like(x),))[1]
  with pytest.raises(TypeError, match='forward-mode'):
    slope(x)
  with blocks.layers_one_by_one():
    tangent = slope(x)
  expected = jax.grad(loss, 1)(params, x).sum()
  np.testing.assert_allclose(tangent, expected, rtol=1e-4)


def test_vmapped_kernels_give_the_same_and_no_grouped_convolution():
  loss, params, x = stages_loss('chwn', (8, 8, 2), 8, 1)
  two = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf * 1.5]).astype(jnp.float32), params)
  gradient = jax.jit(jax.vmap(jax.grad(loss), (0, None)))
  x = jnp.asarray(x, jnp.float32)
  assert 'feature_group_count = 2' not in gradient.lower(two, x).as_text()
  first = jax.grad(loss)(jax.tree.map(lambda leaf: leaf[1], two), x)
  close = lambda a, b: np.testing.assert_allclose(a[1], b, rtol=2e-4, atol=1e-4)
  jax.tree.map(close, gradient(two, x), first)


def test_microbatches_of_blocks_count_what_is_inside_a_block():
  model = models.create('convnet', shape=(32, 32, 1), num_classes=3, width=32, conv='chwn')
  number = lambda batch: microbatches.num_microbatches(
    model, (32, 32, 1), jnp.dtype('float32'), batch, 'cpu'
  )
  assert number(32) == 4  # eight images; a block gives 1 MiB for 32, and has 4 MiB inside
  assert number(8) == 1
