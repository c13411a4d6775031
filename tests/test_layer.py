"""What a layer's class may look like, which fields are traced, and which hooks are in a program."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_syn as fs
from fedjax_syn import layer as layer_lib
from fedjax_syn.core.contexts import Task
from fedjax_syn.core.fields import ConfigError


class Sample(fs.Layer):
  """Fields of every kind."""

  weight: float = fs.field(default=0.5, help='traced', low=0.0)
  bound: float = fs.field(default=1.0, help='static', static=True)
  ceiling: float | None = fs.field(default=None, help='absent or traced')
  steps: int = fs.field(default=3, help='static', high=10)
  sizes: tuple[int, ...] = fs.field(default=(1, 2), help='static')
  kind: str = fs.field(default='a', help='static', choices=('a', 'b'))
  plain: bool = False

  @fs.when(lambda self, task: self.kind == 'b' and task.first_round > 2)
  def loss(self, client, loss_fn, w, step):
    value, out = loss_fn(w, step)
    return self.weight * value, out


def test_a_layer_is_frozen_and_called_like_its_class():
  layer = Sample(weight=2)
  assert (Sample.name, layer.weight, type(layer.weight)) == ('sample', 2.0, float)
  with pytest.raises(AttributeError, match='cannot assign'):
    layer.weight = 1.0
  assert repr(layer) == 'Sample(weight=2.0)'
  assert repr(Sample(sizes=(1, 2), kind='b')) == "Sample(kind='b')"


@pytest.mark.parametrize(
  ('fields', 'line'),
  [
    ({'weight': -1}, 'sample.weight=-1.0: must be at least 0.0'),
    ({'weight': 'x'}, "sample.weight='x': must be a number"),
    ({'weight': float('nan')}, 'sample.weight=nan: must be a finite number'),
    ({'steps': 0.5}, 'sample.steps=0.5: must be an integer'),
    ({'steps': 11}, 'sample.steps=11: must be at most 10'),
    ({'kind': 'c'}, "sample.kind='c': unknown; known: 'a', 'b'"),
    ({'sizes': 3}, 'sample.sizes=3: must be a tuple, as in 0,1,2 (of one: 3,)'),
    ({'plain': 1}, 'sample.plain=1: must be True or False'),
  ],
)
def test_values_are_checked_by_the_rules_of_configs(fields, line):
  with pytest.raises(ConfigError) as refused:
    Sample(**fields)
  assert str(refused.value) == line


def test_floats_are_leaves_unless_they_are_declared_static():
  leaves = lambda layer: dict(
    (jax.tree_util.keystr(path), value)
    for path, value in jax.tree_util.tree_flatten_with_path(layer)[0]
  )
  assert leaves(Sample()) == {'.weight': 0.5}
  assert leaves(Sample(ceiling=2.0)) == {'.weight': 0.5, '.ceiling': 2.0}
  same = lambda a, b: jax.tree.structure(a) == jax.tree.structure(b)
  assert same(Sample(), Sample(weight=7.0)) and same(Sample(ceiling=1), Sample(ceiling=2))
  for other in ({'bound': 2.0}, {'ceiling': 1.0}, {'steps': 4}, {'sizes': ()}, {'plain': True}):
    assert not same(Sample(), Sample(**other)), other


def test_another_value_of_a_traced_field_compiles_nothing():
  traces = []

  @jax.jit
  def program(layer):
    traces.append(layer.steps)
    return layer.weight * layer.steps

  assert [float(program(Sample(weight=w))) for w in (1.0, 2.0, np.float64(3.0))] == [3.0, 6.0, 9.0]
  assert traces == [3]
  assert float(program(Sample(weight=1.0, steps=4))) == 4.0 and traces == [3, 4]
  weights = jax.vmap(program)(Sample(weight=jnp.arange(3.0)))
  np.testing.assert_allclose(weights, [0.0, 3.0, 6.0])


def test_numbers_of_numpy_are_numbers():
  assert Sample(weight=np.float32(0.25), steps=np.int64(4)) == Sample(weight=0.25, steps=4)


@pytest.mark.parametrize('one', [np.array, jnp.asarray], ids=['numpy', 'jax'])
def test_arrays_of_one_number_are_checked_and_become_the_number(one):
  layer = Sample(weight=one(0.25), steps=one(4), plain=one(True))
  assert layer == Sample(weight=0.25, steps=4, plain=True) and hash(layer) == hash(layer)
  for fields, line in (
    ({'weight': one(-1.0)}, 'sample.weight=-1.0: must be at least 0.0'),
    ({'weight': one(True)}, 'sample.weight=True: must be a number'),
    ({'weight': one(np.nan)}, 'must be a finite number'),
    ({'steps': one([3])}, 'must be an integer'),
  ):
    with pytest.raises(ConfigError) as refused:
      Sample(**fields)
    assert line in str(refused.value)


@pytest.mark.parametrize('name', ['num_clients', 'model', 'rounds'])
def test_a_condition_uses_the_phase_alone(name):
  layer = make(loss=fs.when(lambda self, task: getattr(task, name))(Sample.loss))()
  with pytest.raises(AttributeError, match=f'task.first_round, and not task.{name}'):
    layer_lib.has(layer, 'loss', Task(fs.chain(), None))


def test_when_says_whether_a_hook_is_in_a_program():
  has = lambda kind, first_round: layer_lib.has(
    Sample(kind=kind), 'loss', Task(fs.chain(), None, first_round=first_round)
  )
  assert [has('a', 3), has('b', 1), has('b', 3)] == [False, False, True]
  assert layer_lib.overrides(Sample(), 'loss') and not layer_lib.overrides(Sample(), 'grad')
  assert not layer_lib.has(Sample(), 'grad', Task(fs.chain(), None))


def make(**members):
  return type('Mine', (fs.Layer,), members)


def annotated(kind, **members):
  return make(__annotations__={name: kind for name in members}, **members)


@pytest.mark.parametrize(
  ('build', 'line'),
  [
    (
      lambda: make(losss=lambda self, c, f, w, s: None),
      "Mine.losss is no hook; did you mean 'loss'?",
    ),
    (lambda: make(zzzz=lambda self: None), 'Mine.zzzz is no hook (names of other functions begin'),
    (
      lambda: make(loss=lambda self, w: None),
      'Mine.loss(self, w): must take (self, client, loss_fn, w, step)',
    ),
    (lambda: annotated(float, loss=0.5), 'Mine.loss is a field with the name of a hook'),
    (lambda: annotated(str, name='x'), 'Mine.name is a field with the name of a hook'),
    (lambda: type('Mine', (Sample,), {'weight': 2.0}), 'Mine.weight = 2.0 needs its annotation'),
    (lambda: make(__annotations__={'rate': float}), 'Mine.rate needs a default'),
    (lambda: annotated(dict, rate=None), "Mine.rate: <class 'dict'> is no type of a field"),
    (lambda: annotated(int | str, rate=1), 'Mine.rate: int | str is no type of a field'),
    (
      lambda: make(client_update=fs.when(lambda self, task: True)(lambda self, client: None)),
      'Mine.client_update: fs.when has no effect on it',
    ),
    (lambda: type('Params', (fs.Layer,), {}), 'Params: a layer cannot be called params, stats'),
  ],
)
def test_a_class_that_cannot_work_is_refused_when_it_is_made(build, line):
  with pytest.raises(TypeError) as refused:
    build()
  assert str(refused.value).startswith(line) and '\n' not in str(refused.value)


def test_a_layer_can_be_extended():
  extended = type('Extended', (Sample,), {'weight': 2.0, '__annotations__': {'weight': float}})
  assert (extended.name, extended().weight, extended().steps) == ('extended', 2.0, 3)
  assert layer_lib.overrides(extended(), 'loss')


def test_helpers_begin_with_an_underscore():
  assert make(_helper=lambda self: 3)()._helper() == 3


def test_when_leaves_the_function_of_another_class_as_it_is():
  condition = Sample.loss.when
  other = make(loss=fs.when(lambda self, task: False)(Sample.loss))()
  assert Sample.loss.when is condition and not layer_lib.has(other, 'loss', Task(fs.chain(), None))
