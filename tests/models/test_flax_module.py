"""Flax modules from outside as models: where their head is, what they get, and what is refused."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_syn import models

SHAPE = (4, 4, 1)


class Plain(nn.Module):
  """Takes nothing but images."""

  @nn.compact
  def __call__(self, x):
    x = nn.relu(nn.Dense(5)(x.reshape(len(x), -1)))
    return nn.Dense(3)(x)


class Deep(nn.Module):
  """Takes the settings, and its head lies inside another module and is not made last."""

  num_classes: int
  width: int = 7

  def setup(self):
    self.top = Plain2(self.num_classes)
    self.body = nn.Dense(self.width)
    self.norm = nn.BatchNorm()

  def __call__(self, x, train, mask):
    x = self.body(x.reshape(len(x), -1))
    mask = None if mask is None else mask[:, None] > 0
    return self.top(self.norm(x, use_running_average=not train, mask=mask))


class Plain2(nn.Module):
  classes: int

  @nn.compact
  def __call__(self, x):
    return nn.Dense(self.classes, name='out')(x)


class Unmasked(nn.Module):
  @nn.compact
  def __call__(self, x, train):
    x = nn.BatchNorm(use_running_average=not train)(x)
    return nn.Dense(3)(x.reshape(len(x), -1))


class Dropping(nn.Module):
  """Drops half of the inputs, whose rows are scaled to 1."""

  @nn.compact
  def __call__(self, x, train):
    x = nn.Dropout(0.5, deterministic=not train)(x.reshape(len(x), -1))
    return nn.Dense(3)(x)


class Noisy(nn.Module):
  """Adds noise in training, from a stream of its own name; flax's word for evaluation."""

  @nn.compact
  def __call__(self, x, deterministic):
    x = x.reshape(len(x), -1)
    if not deterministic:
      x = x + jax.random.normal(self.make_rng('noise'), x.shape)
    return nn.Dense(3)(x)


class AlwaysDropping(nn.Module):
  @nn.compact
  def __call__(self, x):
    return nn.Dense(3)(nn.Dropout(0.5, deterministic=False)(x.reshape(len(x), -1)))


class Headless(nn.Module):
  @nn.compact
  def __call__(self, x):
    return nn.Conv(3, (4, 4), padding='VALID')(x).reshape(len(x), 3)


class Wrong(nn.Module):
  @nn.compact
  def __call__(self, x):
    return nn.Dense(4)(x.reshape(len(x), -1))


class Demanding(nn.Module):
  secret: int

  @nn.compact
  def __call__(self, x):
    return nn.Dense(3)(x.reshape(len(x), -1))


def create(cls, **more):
  return models.create(f'{__name__}:{cls.__name__}', shape=SHAPE, num_classes=3, **more)


@pytest.fixture
def x():
  return jax.random.normal(jax.random.key(1), (6, *SHAPE))


@pytest.mark.parametrize('cls, top', [(Plain, ['Dense_1']), (Deep, ['top', 'out'])])
def test_the_head_of_the_features_is_the_logits(cls, top, x):
  model = create(cls)
  variables = model.init(jax.random.key(0))
  out = jax.jit(model.apply)(variables, x)
  np.testing.assert_allclose(model.head(variables.params, out.features), out.logits, rtol=1e-6)
  paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(variables.params)]
  heads = [[part.key for part in path[:-1]] for path in paths if model.is_head(path)]
  assert heads == [top, top]  # kernel and bias


def test_it_computes_what_the_module_computes(x):
  model, module = create(Plain), Plain()
  variables = model.init(jax.random.key(0))
  expected = module.apply({'params': variables.params}, x)
  np.testing.assert_array_equal(model.apply(variables, x, train=True).logits, expected)
  # Under vmap over clients, as the engine calls it.
  two = jax.tree.map(lambda a: jnp.stack([a, 2 * a]), variables)
  both = jax.vmap(lambda v: model.apply(v, x).logits)(two)
  np.testing.assert_allclose(both[0], expected, rtol=1e-6)


def test_settings_reach_the_fields_that_bear_their_names():
  width = lambda **more: (
    create(Deep, **more).init(jax.random.key(0)).params['body']['kernel'].shape[1]
  )
  assert width() == 7 and width(width=11) == 11  # 0 is the class's own default


def test_padding_changes_no_statistics(x):
  model = create(Deep)
  variables = model.init(jax.random.key(0))
  padded = jnp.concatenate([x, 100 * x[:2]])
  mask = jnp.array([1.0] * 6 + [0.0] * 2)
  whole = model.apply(variables, x, train=True, mask=jnp.ones(6))
  with_padding = model.apply(variables, padded, train=True, mask=mask)
  near = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
  jax.tree.map(near, whole.stats, with_padding.stats)
  assert model.apply(variables, x).stats is variables.stats
  moved = jax.tree.map(lambda a, b: float(jnp.abs(a - b).max()), whole.stats, variables.stats)
  assert max(jax.tree.leaves(moved)) > 1e-3


@pytest.mark.parametrize(
  'cls, words',
  [
    (Unmasked, ['BatchNorm', 'mask']),
    (AlwaysDropping, ['draws random numbers in evaluation', 'deterministic=not train']),
    (Headless, ['last Dense layer', '3 classes']),
    (Wrong, ['logits [batch, 3]', '[2, 4]']),
    (Demanding, ['secret', 'num_classes']),
  ],
)
def test_refusals_are_one_line(cls, words):
  with pytest.raises(ValueError) as refused:
    create(cls)
  text = str(refused.value)
  assert '\n' not in text and f'{__name__}:{cls.__name__}' in text
  assert all(word.lower() in text.lower() for word in words), text


def test_a_function_of_three_lines_is_an_adapter():
  def net(*, shape, num_classes, **unused):
    return models.from_module(Deep(num_classes, width=3), shape, num_classes)

  made = net(shape=SHAPE, num_classes=3, norm='group')
  assert made.init(jax.random.key(0)).params['body']['kernel'].shape == (16, 3)


@pytest.mark.parametrize('cls', [Dropping, Noisy])
def test_random_layers_draw_with_a_key_alone(cls, x):
  """Evaluation, and training without a key, are deterministic and equal here."""
  model = create(cls)
  assert model.keyed and not create(Plain).keyed
  w = model.init(jax.random.key(0))
  apply = jax.jit(model.apply, static_argnames='train')
  plain = apply(w, x).logits
  np.testing.assert_array_equal(apply(w, x, train=True).logits, plain)
  drawn = [apply(w, x, train=True, key=jax.random.key(i)).logits for i in (1, 1, 2)]
  np.testing.assert_array_equal(drawn[0], drawn[1])
  assert np.abs(drawn[0] - plain).max() > 1e-3 < np.abs(drawn[0] - drawn[2]).max()


def test_dropout_by_hand(x):
  """What the head sees are the inputs, doubled or zero, each with probability a half."""
  model = create(Dropping)
  flat, kept = np.asarray(x).reshape(6, -1), []
  for i in range(50):
    seen = model.apply(model.init(jax.random.key(0)), x, train=True, key=jax.random.key(i)).features
    ones = np.asarray(seen) / flat / 2
    np.testing.assert_allclose(ones, np.round(ones), atol=1e-6)
    kept.append(ones)
  # 4,800 draws: a deviation of 0.0072.
  np.testing.assert_allclose(np.mean(kept), 0.5, atol=0.03)
