"""All forms of convolutions give the same values and derivatives."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_syn import models
from fedjax_syn.models.init import INITS
from fedjax_syn.models.network_layers import FORMS, Conv, GroupNorm, avg_pool, max_pool
from fedjax_syn.models.resnet import Block
from tests.models.test_networks import SMALL


def derivatives(form, size, stride):
  """A conv, norm, ReLU, pool and dense layer: value, gradients, a Hessian-vector product.

  In float64. Returns the function compiled once, its point and its direction beside the results.
  """
  form = FORMS[form]
  rng = np.random.default_rng(0)
  conv = Conv(3, size, form, INITS['torch'], stride=stride, padding=1)
  norm = GroupNorm(form)
  params = {
    'conv': {'kernel': rng.normal(size=(size, size, 2, 3)), 'bias': rng.normal(size=3)},
    'norm': {'scale': rng.normal(size=3), 'bias': rng.normal(size=3)},
  }
  x = rng.normal(size=(3, 9, 8, 2))
  v = jax.tree.map(lambda p: rng.normal(size=p.shape), params)

  def loss(params, x):
    z = conv.apply({'params': params['conv']}, form.swap(x))
    z = avg_pool(max_pool(nn.relu(norm.apply({'params': params['norm']}, z, True, None))))
    return jnp.square(jnp.sin(form.swap(z)).sum((1, 2)) + 1).sum()

  @jax.jit
  def everything(params, x):
    slope = jax.grad(lambda p: loss(p, x))
    curve = jax.jvp(slope, (params,), (v,))[1]  # forward over reverse, as in an unroll's adjoint
    twice = jax.grad(
      lambda x: sum(map(jnp.vdot, *map(jax.tree.leaves, (jax.grad(loss)(params, x), v))))
    )
    return loss(params, x), jax.grad(loss, (0, 1))(params, x), curve, twice(x)

  return everything, params, x, v


@pytest.mark.parametrize(('size', 'stride'), [(3, 1), (5, 2)])
def test_forms_agree_to_second_derivatives(size, stride):
  """To 1e-10; the Hessian-vector product also with central differences of the gradient."""
  with jax.enable_x64(True):
    results = {}
    for form in FORMS:
      everything, params, x, v = derivatives(form, size, stride)
      results[form] = everything(params, x)
    up, down = (
      everything(jax.tree.map(lambda p, d, s=s: p + s * 1e-6 * d, params, v), x)[1][0]
      for s in (1, -1)
    )
  numeric = jax.tree.map(lambda a, b: (np.asarray(a) - np.asarray(b)) / 2e-6, up, down)
  close = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-5)
  jax.tree.map(close, results[form][2], numeric)
  exact = functools.partial(np.testing.assert_allclose, rtol=1e-10, atol=1e-10)
  for other in results.values():
    jax.tree.map(exact, other, results['xla'])


@pytest.mark.parametrize(
  ('name', 'settings'),
  [('convnet', {}), ('convnet', {'norm': 'batch', 'pooling': 'max'}), ('lenet', {})],
)
def test_forms_agree_on_networks(name, settings):
  """One set of weights fits all forms: features are flattened in the same order."""
  x = np.random.default_rng(0).normal(size=(2, *SMALL[name]['shape']))
  with jax.enable_x64(True):
    made = [
      models.create(name, num_classes=3, conv=form, **{**SMALL[name], **settings}) for form in FORMS
    ]
    variables = made[0].init(jax.random.key(0))
    outputs = [jax.jit(model.apply, static_argnums=2)(variables, x, True) for model in made]
  for other in outputs[1:]:
    jax.tree.map(functools.partial(np.testing.assert_allclose, atol=1e-10), other, outputs[0])


def test_forms_agree_on_a_residual_block():
  """Values and gradients, of a block whose skip has a convolution of its own."""
  results = []
  with jax.enable_x64(True):
    x = jnp.asarray(np.random.default_rng(0).normal(size=(2, 6, 6, 3)))
    for form in FORMS.values():
      block = Block(6, 2, 'group', form, INITS['torch'])
      params = jax.jit(lambda x, b=block: b.init(jax.random.key(0), x, True, None))(form.swap(x))

      @jax.jit
      def run(params, x, b=block, form=form):
        def loss(params, x):
          return jnp.square(form.swap(b.apply(params, form.swap(x), True, None)) - 1).sum()

        return jax.value_and_grad(loss, (0, 1))(params, x)

      results.append(run(params, x))
  for other in results[1:]:
    jax.tree.map(functools.partial(np.testing.assert_allclose, atol=1e-9), other, results[0])
