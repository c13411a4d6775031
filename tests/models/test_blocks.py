"""A block of a frozen ConvNet as one function, against the layers one by one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_syn import models
from fedjax_syn.core.types import Variables


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


# One channel of MNIST's size; few channels in and out; Winograd's form in every block.
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


def test_second_derivatives_are_refused():
  loss, params, x = stages_loss('chwn', (8, 8, 2), 4, 1)
  slope = lambda x: jax.grad(loss, 1)(params, x).sum()
  with pytest.raises(NotImplementedError, match="model.conv='xla'"):
    jax.grad(slope)(jnp.asarray(x))
