"""Activations in bfloat16: what is rounded, and what stays float32."""

import functools
import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_syn import models
from fedjax_syn.models.activations import in_bfloat16
from fedjax_syn.models.network_layers import EPSILON, FORMS, BatchNorm, GroupNorm
from tests.models.test_networks import SMALL

SIZES = {**SMALL, 'text': {'shape': (6,), 'width': 5}}
ULP = 2**-8  # a number of bfloat16 differs from the next one by so much of itself


@pytest.mark.parametrize('norm', [GroupNorm, BatchNorm])
def test_moments_of_norms_are_not_rounded(norm):
  """Around a mean of 100.3 bfloat16 has steps of half a unit; the standard deviation is 3."""
  x = jnp.asarray(np.random.default_rng(0).normal(100.3, 3, (4, 8, 8, 2)), jnp.bfloat16)
  layer = norm(FORMS['xla'])
  y, changed = layer.init_with_output(jax.random.key(0), x, True, None)
  exact = np.asarray(x, np.float64)
  axes = (1, 2) if norm is GroupNorm else (0, 1, 2)
  centred = exact - exact.mean(axes, keepdims=True)
  want = centred / np.sqrt((centred**2).mean(axes, keepdims=True) + EPSILON)
  assert y.dtype == jnp.bfloat16
  np.testing.assert_allclose(np.asarray(y, np.float64), want, rtol=ULP, atol=1e-5)
  assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(changed))


def products(function, *arguments):
  """The types of what a program's matrix products and convolutions return."""
  text = jax.jit(function).lower(*arguments).as_text()
  return re.findall(r'stablehlo\.(?:dot_general|convolution).*-> tensor<[\dx]*x(\w+)>', text)


class Own(nn.Module):
  """A user's network with BatchNorm."""

  @nn.compact
  def __call__(self, x, train=False, mask=None):
    z = nn.Conv(4, (3, 3))(x)
    z = nn.relu(
      nn.BatchNorm(not train)(z, mask=None if mask is None else mask[:, None, None, None])
    )
    return nn.Dense(3)(z.mean((1, 2)))


@functools.cache
def pair(name):
  """A network in float32 and in bfloat16, its variables and a batch."""
  if name == 'own':
    shape = 6, 6, 1
    model = models.from_module(Own(), shape, 3)
    other = in_bfloat16(model)
  else:
    create = functools.partial(models.create, name, num_classes=3, conv='xla', **SIZES[name])
    model, other = create(), create(activations='bfloat16')
    shape = SIZES[name]['shape']
  rng = np.random.default_rng(0)
  x = rng.integers(1, 9, (4, *shape)) if len(shape) == 1 else rng.normal(size=(4, *shape))
  x = jnp.asarray(x, jnp.int32 if len(shape) == 1 else jnp.float32)
  return model, other, model.init(jax.random.key(0)), x


@pytest.mark.parametrize('name', ['convnet', 'mlp', 'text', 'own'])
def test_a_network_rounds_what_it_computes_and_not_what_it_returns(name):
  model, other, variables, x = pair(name)
  exact, rounded = (
    jax.jit(functools.partial(m.apply, train=True))(variables, x) for m in (model, other)
  )
  assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(rounded))
  scale = float(jnp.abs(exact.logits).max())
  error = float(jnp.abs(exact.logits - rounded.logits).max())
  assert 1e-5 * scale < error < 8 * ULP * scale
  *body, head = products(lambda v: other.apply(v, x, train=True), variables)
  assert set(body) == {'bf16'} and head == 'f32'


def test_steps_that_bfloat16_could_not_hold_are_added_up():
  """Parameters are near 1 or below; a step of 1e-4 rounds to nothing there in bfloat16."""
  model, other, variables, x = pair('convnet')

  @jax.jit
  def train(params):
    def step(params, _):
      loss = lambda p: jnp.square(other.apply(variables._replace(params=p), x).logits - 1).mean()
      grads = jax.grad(loss)(params)
      sign = jax.tree.map(lambda g: 1e-4 * jnp.sign(g), grads)
      return optax.tree.sub(params, sign), jax.tree.map(lambda g: g.dtype == jnp.float32, grads)

    return jax.lax.scan(step, params, None, 20)

  trained, wide = train(variables.params)
  assert all(np.asarray(leaf).all() for leaf in jax.tree.leaves(wide))
  moved = trained['body']['norm_0']['scale'] - variables.params['body']['norm_0']['scale']
  assert float(jnp.abs(moved).max()) == pytest.approx(20e-4, rel=0.2)


def test_the_same_arguments_give_the_same_network():
  """Compiled programs are looked up by it."""
  make = lambda kind: models.create('mlp', shape=(2, 2, 1), num_classes=3, activations=kind)
  assert make('bfloat16') == make('bfloat16') != make('float32')
  with pytest.raises(ValueError, match="activations = 'half' is unknown"):
    make('half')
