"""Checks of the subclasses of `fedjax_syn.Layer`, and their registration as pytrees."""

import dataclasses
import difflib
import functools
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from fedjax_syn.core.fields import KINDS
from fedjax_syn.core.texts import shown

# Keys beside those of the layers in what clients send and keep.
RESERVED = ('params', 'stats', 'optimizer')
# Hooks that `when` can make conditional; the others say what a layer is, or act between rounds.
CONDITIONAL = (
  *('client_init', 'setup', 'receive', 'prepare', 'loss', 'grad', 'step', 'finish'),
  *('postprocess_update', 'client_metrics', 'personal', 'server_init', 'broadcast'),
  *('common', 'aggregate', 'server_update', 'server_metrics'),
)


@functools.cache  # tables check some thousand configs; a class does not change
def kinds(cls: type) -> dict[str, Any]:
  """Returns the type of every field: its annotation, or the default's type."""
  defaults = {f.name: type(f.default) for f in dataclasses.fields(cls)}
  try:
    return defaults | {k: v for k, v in typing.get_type_hints(cls).items() if k in defaults}
  except NameError:
    return defaults


def check(cls: type, hooks: Mapping[str, Callable[..., Any]]) -> None:
  """Refuses a layer whose hooks or fields cannot be what they should.

  Args:
    cls: already a dataclass.
    hooks: the base class's, by name.

  Raises:
    TypeError: for misspelt hooks, hooks with another number of parameters, fields with the name of
      a hook, without a default or of a type that no config can hold, and a class whose name is
      taken.
  """
  if cls.__name__.lower() in RESERVED:
    raise TypeError(f'{cls.__name__}: a layer cannot be called {", ".join(RESERVED)}')
  for name, value in vars(cls).items():
    if isinstance(value, types.FunctionType) and not name.startswith('_'):
      _check_hook(f'{cls.__name__}.{name}', value, name, hooks)
  types_of, own = kinds(cls), vars(cls).get('__annotations__', {})
  for f in dataclasses.fields(cls):
    where = f'{cls.__name__}.{f.name}'
    if f.name in hooks or f.name == 'name':
      raise TypeError(f'{where} is a field with the name of a hook')
    if f.default is dataclasses.MISSING:
      raise TypeError(f'{where} needs a default, as in fedjax_syn.field(default=0.1)')
    if not _is_kind(types_of[f.name]):
      raise TypeError(
        f'{where}: {shown(types_of[f.name])} is no type of a field: bool, int, float, str,'
        ' tuple[int, ...] or one of them | None'
      )
    if f.name in vars(cls) and f.name not in own:
      value = shown(vars(cls)[f.name])
      raise TypeError(f'{where} = {value} needs its annotation to change the default')


def _check_hook(
  where: str, value: Callable[..., Any], name: str, hooks: Mapping[str, Callable[..., Any]]
) -> None:
  if name not in hooks:
    near = difflib.get_close_matches(name, hooks, 1)
    hint = f'; did you mean {near[0]!r}?' if near else ''
    raise TypeError(f'{where} is no hook{hint} (names of other functions begin with _)')
  expected = inspect.signature(hooks[name]).parameters
  if len(inspect.signature(value).parameters) != len(expected):
    raise TypeError(f'{where}{inspect.signature(value)}: must take ({", ".join(expected)})')
  if hasattr(value, 'when') and name not in CONDITIONAL:
    raise TypeError(f'{where}: fs.when has no effect on it, but on {", ".join(CONDITIONAL)}')


def _is_kind(kind: Any) -> bool:
  options = typing.get_args(kind)
  if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
    rest = [option for option in options if option is not types.NoneType]
    return len(rest) == 1 and _is_kind(rest[0])
  if typing.get_origin(kind) is tuple:
    return len(options) == 2 and options[1] is ... and options[0] in KINDS
  return isinstance(kind, type) and kind in KINDS


@functools.cache
def traced_fields(cls: type) -> tuple[str, ...]:
  """Returns the fields that are arguments of compiled programs: floats not declared static."""
  types_of = kinds(cls)

  def is_static(f):
    said = f.metadata.get('static')
    return types_of[f.name] not in (float, float | None) if said is None else said

  return tuple(f.name for f in dataclasses.fields(cls) if not is_static(f))


def is_abstract(value: Any) -> bool:
  """Returns whether a traced field's value is a tracer, a shape or, as for `jax.vmap`, an array."""
  if isinstance(value, jax.core.Tracer | jax.ShapeDtypeStruct):
    return True
  several = isinstance(value, jax.Array | np.ndarray) and value.ndim > 0
  return several and np.issubdtype(value.dtype, np.number)


def register(cls: type) -> None:
  """Makes a layer's class a pytree with the traced fields as leaves."""
  traced = traced_fields(cls)
  static = tuple(f.name for f in dataclasses.fields(cls) if f.name not in traced)

  def flatten(layer):
    children = [(jax.tree_util.GetAttrKey(name), getattr(layer, name)) for name in traced]
    return children, tuple(getattr(layer, name) for name in static)

  def unflatten(values, children):  # not by __init__, which would check tracers and axis numbers
    layer = object.__new__(cls)
    layer.__dict__.update(zip((*static, *traced), (*values, *children), strict=True))
    return layer

  jax.tree_util.register_pytree_with_keys(cls, flatten, unflatten)
