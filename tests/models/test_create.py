"""The front door: names, refusals in one line, models from outside the package."""

import jax
import pytest

from fedjax_syn import models

IMAGES = 'mlp', 'convnet', 'lenet', 'cnn3', 'resnet18'
ARGUMENTS = {'shape': (8, 8, 1), 'num_classes': 3}


def outside(*, shape, num_classes, width, depth, norm, pooling, init, conv):
  """A model as a user would write one: another name, and settings of its own."""
  assert (shape, norm, pooling, init) == ((8, 8, 1), 'group', 'avg', 'torch')
  assert conv in models.FORMS
  model = models.create('mlp', shape=shape, num_classes=num_classes, width=width, depth=depth)
  return model._replace(name='mine')


TOLD = []  # the forms that `told` was asked for


def told(*, conv, **settings):
  TOLD.append(conv)
  return models.create('mlp', **settings)


def not_a_model(**settings):
  return settings


def test_every_name_has_a_line_and_builds():
  assert set(models.names()) == {*IMAGES, 'text', 'convnet1d'}
  for name, about in models.names().items():
    assert about and '\n' not in about
    shapes = {'images': (32, 32, 3), 'table': (5,), 'sequences': (16, 2), 'tokens': (12,)}
    for kind in models.taken_by(name):
      assert models.create(name, shape=shapes[kind], num_classes=3, kind=kind).name == name


def test_zero_is_the_models_own_width_and_depth():
  for name, width, depth in (('mlp', 128, 2), ('convnet', 128, 3)):
    own, said = (
      jax.eval_shape(models.create(name, **ARGUMENTS, **kw).init, jax.random.key(0))
      for kw in ({}, {'width': width, 'depth': depth})
    )
    assert own == said


def test_a_function_outside_the_package():
  model = models.create(f'{__name__}:outside', **ARGUMENTS, width=4)
  assert model.name == 'mine'
  assert model.init(jax.random.key(0)).params['body']['dense_0']['kernel'].shape == (64, 4)


def test_auto_is_the_form_of_the_backend(monkeypatch):
  """Measured on CPU and GPU; elsewhere, and on backends unknown, XLA's own."""
  for backend, form in (('cpu', 'chwn'), ('gpu', 'patches'), ('tpu', 'xla'), ('other', 'xla')):
    monkeypatch.setattr(jax, 'default_backend', lambda backend=backend: backend)
    models.create(f'{__name__}:told', **ARGUMENTS)
    assert TOLD.pop() == form
  models.create(f'{__name__}:told', **ARGUMENTS, conv='patches')
  assert TOLD.pop() == 'patches'


@pytest.mark.parametrize(
  ('name', 'settings', 'says'),
  [
    ('convnt', {}, r"'convnt'.*did you mean 'convnet'.*known: cnn3, convnet"),
    ('convnet', {'norm': 'grop'}, r"norm = 'grop'.*did you mean 'group'"),
    ('convnet', {'pooling': 'mean'}, r"pooling = 'mean'.*known: avg, max, none"),
    ('mlp', {'init': 'Torch'}, r"init = 'Torch'.*did you mean 'torch'"),
    ('mlp', {'conv': 'nchw'}, r"conv = 'nchw'.*known: auto, xla, patches, chwn"),
    ('mlp', {'width': -1}, 'width = -1: it must be at least 0'),
    ('mlp', {'num_classes': 0}, 'num_classes = 0: it must be at least 1'),
    ('mlp', {'shape': (8, 8, 1, 1)}, r'shape = \(8, 8, 1, 1\)'),
    ('lenet', {'shape': (8,)}, "'lenet': takes images, and these data are a table; use mlp"),
    ('convnet1d', {'shape': (7, 2)}, "'convnet1d' does not fit sequences of 7 steps"),
    ('convnet', {'depth': 4}, "'convnet' does not fit images of 8x8 pixels.*depth"),
    ('lenet', {}, "'lenet' does not fit images of 8x8"),
    ('cnn3', {}, "'cnn3' does not fit images of 8x8"),
    ('no_such_package:model', {}, "'no_such_package:model': cannot be imported"),
    (':model', {}, 'cannot be imported'),
    (f'{__name__}:outsde', {}, "has no function 'outsde'; did you mean 'outside'"),
    (f'{__name__}:ARGUMENTS', {}, "has no function 'ARGUMENTS'"),
    (f'{__name__}:not_a_model', {}, 'returned a dict, not a Model'),
  ],
)
def test_refusals_are_one_line_that_says_what_would_work(name, settings, says):
  with pytest.raises(ValueError, match=says) as refusal:
    models.create(name, **{**ARGUMENTS, **settings})
  assert '\n' not in str(refusal.value)


def test_equal_arguments_give_one_model_by_which_programs_are_shared():
  same = lambda name, **more: (
    models.create(name, **{**ARGUMENTS, **more}) is models.create(name, **ARGUMENTS)
  )
  assert same('mlp') and same('mlp', conv=models.FASTEST['cpu']) and same('mlp', width=0)
  assert not same('mlp', width=4) and not same('mlp', num_classes=4)
  assert not same(f'{__name__}:outside')  # what a function of a user's does is not known
