"""Networks: parameter counts, features and heads, agreement of forms, padding, stacks."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_syn import models
from fedjax_syn.core.types import Variables
from fedjax_syn.models.network_layers import FORMS
from fedjax_syn.models.projection import with_projection

SMALL = {  # the smallest images that show every layer; two channels where the network allows
  'mlp': {'shape': (4, 4, 2), 'width': 5},
  'convnet': {'shape': (8, 8, 2), 'width': 4},
  'lenet': {'shape': (16, 16, 2)},
  'cnn3': {'shape': (22, 22, 2)},
  'resnet18': {'shape': (8, 8, 2), 'width': 2},
}
networks = pytest.mark.parametrize('name', SMALL)


@functools.cache
def small(name, **settings):
  """A model with 3 classes, its `apply` compiled, its variables and 5 images."""
  model = models.create(name, num_classes=3, **{**SMALL[name], **settings})
  model = model._replace(apply=jax.jit(model.apply, static_argnames=('train', 'stages')))
  x = np.random.default_rng(0).normal(size=(5, *SMALL[name]['shape'])).astype(np.float32)
  return model, model.init(jax.random.key(0)), jnp.asarray(x)


def count(name, shape, classes, **settings):
  model = models.create(name, shape=shape, num_classes=classes, **settings)
  variables = jax.eval_shape(model.init, jax.random.key(0))
  return sum(leaf.size for leaf in jax.tree.leaves(variables.params))


@pytest.mark.parametrize(
  ('want', 'name', 'shape', 'classes'),
  [
    (320_010, 'convnet', (32, 32, 3), 10),
    (504_420, 'convnet', (32, 32, 3), 100),
    (317_706, 'convnet', (28, 28, 1), 10),
    (62_006, 'lenet', (32, 32, 3), 10),
    (44_426, 'lenet', (28, 28, 1), 10),
    (69_380, 'cnn3', (32, 32, 3), 100),
    (118_282, 'mlp', (28, 28, 1), 10),
    (11_173_962, 'resnet18', (32, 32, 3), 10),
    (11_689_512, 'resnet18', (224, 224, 3), 1000),
  ],
)
def test_parameter_counts(want, name, shape, classes):
  """The papers' counts; for ResNet-18 torchvision's, and that with the stem for CIFAR."""
  assert count(name, shape, classes) == want
  if name == 'resnet18':
    assert count(name, shape, classes, norm='batch') == want  # running statistics do not count


@pytest.mark.parametrize(
  ('norm', 'per_block'), [('group', 8), ('layer', 8), ('batch', 8), ('none', 0)]
)
def test_convnet_norms(norm, per_block):
  """Two blocks of width 4 on 2 channels: 2*9*4+4 and 4*9*4+4; norms 2*4 each; head 16*3+3."""
  settings = {'shape': (8, 8, 2), 'width': 4, 'depth': 2, 'norm': norm}
  assert count('convnet', classes=3, **settings) == 76 + 148 + 2 * per_block + 51


@pytest.mark.parametrize(('pooling', 'features'), [('avg', 4), ('max', 4), ('none', 256)])
def test_convnet_pooling(pooling, features):
  """Three poolings leave one pixel of 8x8, none leaves all 64; 4 channels each."""
  model, variables, x = small('convnet', pooling=pooling)
  assert jax.eval_shape(model.apply, variables, x).features.shape == (5, features)


def test_max_and_average_pooling_differ():
  averaged, variables, x = small('convnet')
  largest, _, _ = small('convnet', pooling='max')
  assert not np.allclose(
    averaged.apply(variables, x).features, largest.apply(variables, x).features
  )


@pytest.mark.parametrize(
  ('shape', 'side'), [((28, 28, 1), 16), ((28, 28, 3), 14), ((32, 32, 1), 16), ((8, 8, 1), 4)]
)
def test_convnet_pads_small_grey_images_to_32(shape, side):
  """Only 28x28 with one channel: 28 + 2*3 - 2 = 32, halved by the first pooling."""
  model = models.create('convnet', shape=shape, num_classes=3, width=2)
  apply = functools.partial(model.apply, stages=True)
  variables = jax.eval_shape(model.init, jax.random.key(0))
  _, stages = jax.eval_shape(apply, variables, jax.ShapeDtypeStruct((1, *shape), jnp.float32))
  assert stages[0].shape == (1, side, side, 2)


@networks
def test_head_turns_features_into_logits(name):
  model, variables, x = small(name)
  logits, features, stats, _ = model.apply(variables, x)
  assert logits.shape == (5, 3)
  assert features.ndim == 2
  assert stats == {}
  np.testing.assert_allclose(model.head(variables.params, features), logits, atol=1e-6)


@networks
def test_is_head_selects_the_last_layer_and_nothing_else(name):
  """Zeroing what it selects gives zero logits and the same features."""
  model, variables, x = small(name)
  leaves = jax.tree_util.tree_flatten_with_path(variables.params)[0]
  features = model.apply(variables, x).features
  assert sum(leaf.size for path, leaf in leaves if model.is_head(path)) == 3 * features.shape[1] + 3
  headless = jax.tree_util.tree_map_with_path(
    lambda path, leaf: 0 * leaf if model.is_head(path) else leaf, variables.params
  )
  output = model.apply(Variables(headless, {}), x)
  assert not output.logits.any()
  np.testing.assert_allclose(output.features, features, atol=1e-6)


def test_equal_projection_heads_are_one_model():
  """Compiled programs are looked up by their Model.

  So methods that differ only in a number must share it.
  """
  model = models.create('mlp', num_classes=3, shape=(2, 2, 1), width=4, depth=1)
  projected = with_projection(model, (2, 2, 1), 5)
  assert with_projection(model, (2, 2, 1), 5) is projected
  assert with_projection(model, (2, 2, 1), 6) is not projected


@pytest.mark.parametrize(
  ('name', 'shapes'),
  [
    ('mlp', [(5,), (5,)]),
    ('convnet', [(4, 4, 4), (2, 2, 4), (1, 1, 4)]),
    ('lenet', [(6, 6, 6), (1, 1, 16)]),
    ('cnn3', [(10, 10, 16), (4, 4, 32), (1, 1, 64)]),
    ('resnet18', [(8, 8, 2), (4, 4, 4), (2, 2, 8), (1, 1, 16)]),
  ],
)
def test_stages_are_the_activations_in_order(name, shapes):
  """Channels last in every form; the last stage of the ConvNet and the MLP is the features."""
  model, variables, x = small(name)
  _, stages = jax.eval_shape(functools.partial(model.apply, stages=True), variables, x)
  assert [stage.shape[1:] for stage in stages] == shapes
  if name in ('mlp', 'convnet'):
    output, stages = model.apply(variables, x, stages=True)
    np.testing.assert_array_equal(stages[-1].reshape(5, -1), output.features)
    np.testing.assert_allclose(output.logits, model.apply(variables, x).logits, atol=1e-6)


def test_mlp_is_matrix_products():
  model, variables, x = small('mlp')
  p = jax.tree.map(np.asarray, variables.params)
  z = np.asarray(x).reshape(5, -1)
  for i in range(2):
    layer = p['body'][f'dense_{i}']
    z = np.maximum(z @ layer['kernel'] + layer['bias'], 0)
  want = z @ p['head']['kernel'] + p['head']['bias']
  np.testing.assert_allclose(model.apply(variables, x).logits, want, atol=1e-6)


@functools.cache
@pytest.mark.parametrize('shape', [(8, 8, 2), (64, 64, 1)], ids=['small stem', 'large stem'])
def test_resnet_stages(shape):
  """The small stem keeps 8 pixels; the large one takes 64 to 32, and its pooling to 16."""
  model = models.create('resnet18', shape=shape, num_classes=3, width=2)
  variables = jax.eval_shape(model.init, jax.random.key(0))
  x = jax.ShapeDtypeStruct((2, *shape), jnp.float32)
  output, stages = jax.eval_shape(functools.partial(model.apply, stages=True), variables, x)
  first = 8 if shape[0] == 8 else 16
  want = [(2, first >> i, first >> i, 2 << i) for i in range(4)]
  assert [stage.shape for stage in stages] == want
  assert output.features.shape == (2, 16)


def test_padding_does_not_reach_batch_statistics():
  """3 samples padded to 5: logits, statistics and gradient are those of the 3 alone."""
  with jax.enable_x64(True):
    model = models.create('convnet', shape=(8, 8, 2), num_classes=3, width=3, depth=1, norm='batch')
    variables = model.init(jax.random.key(0))
    x = jnp.asarray(np.random.default_rng(0).normal(size=(5, 8, 8, 2))).at[3:].set(7.0)

    @jax.jit
    def step(params, x, mask):
      def loss(params):
        output = model.apply(Variables(params, variables.stats), x, True, mask)
        losses = -jax.nn.log_softmax(output.logits)[:, 0]
        return (losses * mask).sum() / jnp.maximum(mask.sum(), 1), output

      return jax.value_and_grad(loss, has_aux=True)(params)

    (_, want), slope = step(variables.params, x[:3], jnp.ones(3))
    (_, got), same = step(variables.params, x, jnp.array([1.0, 1, 1, 0, 0]))
    (_, none), still = step(variables.params, x, jnp.zeros(5))
    (_, unmasked), _ = step(variables.params, x, jnp.ones(5))
  close = functools.partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-9)
  close(got.logits[:3], want.logits)
  jax.tree.map(close, got.stats, want.stats)
  jax.tree.map(close, same, slope)
  jax.tree.map(np.testing.assert_array_equal, none.stats, variables.stats)
  assert not any(leaf.any() for leaf in jax.tree.leaves(still))  # finite, and zero
  assert np.isfinite(none.logits).all()
  for a, b, c in zip(
    *(jax.tree.leaves(s) for s in (want.stats, variables.stats, unmasked.stats)), strict=True
  ):
    assert not np.allclose(a, b, atol=1e-3)  # the step does move them,
    assert not np.allclose(a, c, atol=1e-3)  # and padding would if nothing were masked


def test_statistics_change_in_training_only():
  model, variables, x = small('convnet', norm='batch')
  jax.tree.map(np.testing.assert_array_equal, model.apply(variables, x).stats, variables.stats)
  trained = model.apply(variables, x, train=True).stats
  moved = jax.tree.map(lambda a, b: bool((a != b).all()), trained, variables.stats)
  assert all(jax.tree.leaves(moved))


@pytest.mark.parametrize('name', ['mlp', 'convnet'])
def test_stack_of_clients(name):
  """A vmapped stack of models is the models one by one, and so are its finite gradients."""
  model, _, x = small(name)
  clients = [model.init(jax.random.key(i)).params for i in range(2)]
  stack = jax.tree.map(lambda *leaves: jnp.stack(leaves), *clients)

  @jax.jit
  def slope(params, x):
    def loss(params):
      logits = model.apply(Variables(params, {}), x, train=True).logits
      return -jax.nn.log_softmax(logits)[:, 0].mean()

    return jax.grad(loss)(params)

  got = jax.jit(jax.vmap(slope, in_axes=(0, None)))(stack, x)
  for i, client in enumerate(clients):
    want = slope(client, x)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
      assert np.isfinite(a).all()
      np.testing.assert_allclose(a[i], b, atol=1e-5)
  assert any(np.abs(leaf[0] - leaf[1]).max() > 1e-3 for leaf in jax.tree.leaves(got))


@networks
def test_parameters_do_not_depend_on_the_form(name):
  """Same names and shapes: a checkpoint fits everywhere."""
  made = (models.create(name, num_classes=3, conv=form, **SMALL[name]) for form in FORMS)
  first, *others = (jax.eval_shape(model.init, jax.random.key(0)) for model in made)
  assert all(other == first for other in others)


def test_images_without_contrast_have_finite_gradients():
  """All pixels equal: every GroupNorm divides 0 by sqrt(0 + epsilon)."""
  model, variables, x = small('convnet')

  def loss(params, x):
    return jnp.square(model.apply(Variables(params, {}), x).logits).sum()

  slopes = jax.jit(jax.grad(loss, (0, 1)))(variables.params, 0 * x)
  assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slopes))
