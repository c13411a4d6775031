"""Any Flax module (linen) as a `Model`: its last Dense layer is the head."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import flax.errors
import flax.linen as nn
import jax
import jax.numpy as jnp

from fedjax_syn.core.keys import fold
from fedjax_syn.core.types import Array, Model, Output, Params, PRNGKey, Variables
from fedjax_syn.data.features import TOKENS

OPTIONAL = (
  *('num_classes', 'width', 'depth', 'norm', 'pooling', 'init', 'conv', 'shape', 'dropout'),
)
STREAMS = 'dropout', 'params'  # of random numbers; draws of other names take the second
LEFT = ('width', 'depth', 'dropout')  # 0 leaves them to the class


@functools.cache  # compiled programs are looked up by the model
def from_class(cls: type[nn.Module], name: str, **settings: Any) -> Model:
  """Makes a model of a module's class, giving it those of the settings that it has fields for.

  Args:
    cls: a class of Flax modules.
    name: what the model is called in results and messages.
    **settings: the arguments of `fedjax_syn.models.create`; a width, depth or dropout of 0 is left
      to the class.

  Returns:
    The model.

  Raises:
    ValueError: if the class has other fields without defaults, or the module does not fit; see
      `from_module`.
  """
  tokens = settings.get('kind') == TOKENS
  given = {k: v for k, v in settings.items() if k in OPTIONAL and k in cls.__annotations__}
  given = {k: v for k, v in given.items() if not (k in LEFT and v == 0)}
  if settings.get('dropout') and 'dropout' not in given:
    raise ValueError(
      f'model.name = {name!r}: model.dropout = {settings["dropout"]}, and the class has no field'
      ' dropout; 0 would work'
    )
  try:
    module = cls(**given)
  except TypeError as error:
    raise ValueError(
      f'model.name = {name!r}: {error}; only {", ".join(OPTIONAL)} are given'
    ) from error
  return from_module(module, settings['shape'], settings['num_classes'], name, tokens)


def from_module(
  module: nn.Module,
  shape: tuple[int, ...],
  num_classes: int,
  name: str = 'flax',
  tokens: bool = False,
) -> Model:
  """Makes a model of a Flax module.

  Args:
    module: called as module(x) -> logits [batch, classes], x [batch, *shape] normalised; also with
      train (bool), and mask ([batch], 1 for a sample, 0 for padding; None outside training) if it
      takes them; training and deterministic (bool) are other names for train and its opposite.
      With BatchNorm it has to take the mask and give it to every BatchNorm as `mask`, since batches
      are padded. What it draws (`nn.Dropout`, `make_rng`) has a key in local training alone.
    shape: of a row, see `fedjax_syn.models.create`.
    num_classes: size of the output.
    name: what the model is called in results and messages.
    tokens: whether rows are integers.

  Returns:
    The model. The last Dense layer of `num_classes` units is its head, its inputs are the features.

  Raises:
    ValueError: if the module cannot be called like this, has no such layer, or draws random numbers
      with train=False.
  """
  blank = functools.partial(jnp.zeros, dtype=jnp.int32 if tokens else None)
  rows = lambda count: blank((count, *shape))
  where = f'model.name = {name!r}: {type(module).__name__}'
  dense = _head(module, rows, num_classes, where)
  keyed, keyless = _random(module, rows, where)
  path, top = dense.path, dense.clone(parent=None, name=None)

  @jax.jit
  def initialise(key: PRNGKey) -> Variables:
    variables = _init(module, rows(1), key)
    return Variables(variables['params'], variables.get('batch_stats', {}))

  def apply(
    variables: Variables,
    x: Array,
    train: bool = False,
    mask: Array | None = None,
    key: PRNGKey | None = None,
  ) -> Output:
    collections = {'params': variables.params, 'batch_stats': variables.stats}
    mode = train and (key is not None or keyless)
    rngs = None if key is None else {name: fold(key, i) for i, name in enumerate(STREAMS)}
    logits, changed, last = _call(module, collections, x, mode, mask, rngs)
    stats = changed.get('batch_stats', {}) if mode else variables.stats
    return Output(logits, last[1], stats)

  def head(params: Params, features: Array) -> Any:
    for part in path:
      params = params[part]
    return top.apply({'params': params}, features)

  def is_head(leaf: tuple) -> bool:
    return tuple(getattr(part, 'key', part) for part in leaf[: len(path)]) == path

  return Model(name, initialise, apply, head, is_head, keyed=keyed)


def _accepts(module: nn.Module, train: bool, mask: Array | None = None) -> dict[str, Any]:
  """Returns the options that the module's `__call__` has parameters for."""
  parameters = inspect.signature(type(module).__call__).parameters
  options = {'train': train, 'training': train, 'deterministic': not train, 'mask': mask}
  return {name: value for name, value in options.items() if name in parameters}


def _init(module: nn.Module, x: Array, key: PRNGKey) -> Any:
  return module.init(key, x, **_accepts(module, False))


def _call(
  module: nn.Module,
  variables: dict[str, Any],
  x: Array,
  train: bool,
  mask: Array | None,
  rngs: dict[str, PRNGKey] | None = None,
) -> tuple[Any, Any, Any]:
  """Returns logits, changed variables, and the last Dense layer that was called with its input.

  Without keys, `nn.Dropout` drops nothing.
  """
  called: list[tuple[nn.Dense, Array]] = []

  def watch(next_call, args, kwargs, context):
    if rngs is None and isinstance(context.module, nn.Dropout):
      return args[0]
    out = next_call(*args, **kwargs)
    if isinstance(context.module, nn.Dense) and context.method_name == '__call__':
      called.append((context.module, args[0]))
    return out

  with nn.intercept_methods(watch):
    options = _accepts(module, train, mask)
    logits, changed = module.apply(variables, x, mutable=['batch_stats'], rngs=rngs, **options)
  return logits, changed, called[-1] if called else None


def _random(module: nn.Module, rows: Callable[[int], Array], where: str) -> tuple[bool, bool]:
  """Says whether the module draws in training, and whether it can train without a key.

  A module that only draws by `nn.Dropout`, or not without a key, can: it drops nothing then.
  """
  shapes = jax.eval_shape(lambda key: _init(module, rows(1), key), jax.random.key(0))

  def draws(train: bool) -> bool:
    def call(key, variables):
      return _call(module, variables, rows(2), train, jnp.ones(2), dict.fromkeys(STREAMS, key))[0]

    program = jax.make_jaxpr(call)(jax.random.key(0), shapes).jaxpr
    key = program.invars[0]
    return any(key is v for e in program.eqns for v in e.invars)

  if draws(False):
    raise ValueError(
      f'{where}: draws random numbers in evaluation; nn.Dropout(..., deterministic=not train), with'
      ' train among the arguments of __call__, would work'
    )
  if not draws(True):
    return False, True
  try:
    jax.eval_shape(lambda v: _call(module, v, rows(2), True, jnp.ones(2))[0], shapes)
  except flax.errors.InvalidRngError:
    return True, False
  return True, True


def _head(
  module: nn.Module, rows: Callable[[int], Array], num_classes: int, where: str
) -> nn.Dense:
  """Returns the module's last Dense layer; raises the errors of `from_module`."""
  last = None

  def trial(variables):
    nonlocal last
    rngs = dict.fromkeys(STREAMS, jax.random.key(0))
    logits, _, last = _call(module, variables, rows(2), True, jnp.ones(2), rngs)
    return logits

  try:
    shapes = jax.eval_shape(lambda key: _init(module, rows(1), key), jax.random.key(0))
    logits = jax.eval_shape(trial, shapes)
  except Exception as error:  # a user's module may fail in any way
    reason = (str(error).splitlines() or [''])[0]
    raise ValueError(f'{where}: cannot be used ({type(error).__name__}: {reason})') from error
  if getattr(logits, 'shape', None) != (2, num_classes):
    got = list(getattr(logits, 'shape', [])) or type(logits).__name__
    raise ValueError(
      f'{where}: must return logits [batch, {num_classes}], got {got} for a batch of 2'
    )
  if last is None or last[0].features != num_classes:
    raise ValueError(
      f'{where}: its last Dense layer must have the {num_classes} classes: it is the head'
    )
  if 'batch_stats' in shapes and 'mask' not in _accepts(module, True):
    raise ValueError(
      f'{where}: with BatchNorm, __call__ must take mask and pass it to every BatchNorm: batches'
      ' are padded'
    )
  return last[0]
