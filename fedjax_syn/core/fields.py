"""Fields of configs and layers: default, help and allowed values, checked in one place."""

import dataclasses
import functools
import os
import sys
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from fedjax_syn.core import texts
from fedjax_syn.core.texts import shown

LONGEST = 4096  # characters of a text: a path's, on Linux
KINDS = {bool: 'True or False', int: 'an integer', float: 'a number', str: 'a string'}
LARGEST = 2**31 - 1  # of an integer whose field says nothing else: programs count in int32
FLOATS = 1e-30, 1e30  # sizes of a number that is not 0: programs compute in float32
_SIZES = 'numbers from {:g} to {:g} in size would work (0 where it is allowed)'.format(*FLOATS)


class ConfigError(ValueError):
  """An invalid config: one line that names the key, the value and what would work."""

  def __init__(self, message: str):
    """Shortens the message to one line."""
    super().__init__(texts.one_line(message))


def field(
  default: Any,
  help: str = '',
  *,
  low: float | None = None,
  high: float | None = None,
  above: float | None = None,
  choices: tuple[Any, ...] | None = None,
  identity: bool = True,
  static: bool | None = None,
  added: bool = False,
) -> Any:
  """Declares one field of a layer or of a config.

  Args:
    default: the default; its type is the field's type.
    help: one line: what it is, in which unit, where the default comes from.
    low: smallest allowed number.
    high: largest allowed number.
    above: the number must be strictly greater than this.
    choices: the only allowed values.
    identity: whether another value makes another run; False for what changes no result, as where
      data lie or how often a run is saved.
    static: whether another value compiles another program. By default a number with a fraction is
      an argument of the program, and everything else is static. A float on which the method
      branches in Python must be static.
    added: whether hashes leave the field out at its default, as those of earlier versions did,
      which had no such field.

  Returns:
    A `dataclasses.field` that carries the rest as metadata.
  """
  rules = {'help': help, 'low': low, 'high': high, 'above': above, 'choices': choices}
  rules |= {'identity': identity, 'static': static, 'added': added}
  return dataclasses.field(default=default, metadata=rules)


def coerce(key: str, value: Any, kind: Any) -> Any:
  """Returns the value as its field's type.

  An int is converted to a float, and a list to a tuple; everything else is an error.

  Args:
    key: of the field, for the error.
    value: of any type.
    kind: bool, int, float, str, tuple[kind, ...], or `kind | None`.

  Raises:
    ConfigError: if the value is of another type, not finite, or a text that is too long.
  """
  if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
    options = [k for k in typing.get_args(kind) if k is not types.NoneType]
    return None if value is None else coerce(key, value, options[0])
  if typing.get_origin(kind) is tuple:
    if not isinstance(value, tuple | list):
      one = shown(value) if isinstance(value, int | float) else '1'
      raise ConfigError(f'{key}={shown(value)}: must be a tuple, as in 0,1,2 (of one: {one},)')
    return tuple(coerce(key, item, typing.get_args(kind)[0]) for item in value)
  fits = isinstance(value, (int, float) if kind is float else kind)
  if not fits or (isinstance(value, bool) and kind is not bool):  # False is an int to Python
    raise ConfigError(f'{key}={shown(value)}: must be {KINDS[kind]}')
  if kind is float and not abs(value) <= sys.float_info.max:  # an integer can be larger, too
    raise ConfigError(f'{key}={shown(value)}: must be a finite number')
  if kind is str and len(value) > LONGEST:
    raise ConfigError(f'{key}={shown(value)}: must have at most {LONGEST} characters')
  if kind is str and '\0' in value:
    raise ConfigError(f'{key}={shown(value)}: must not contain a null character')
  return kind(value)


def check_range(key: str, value: Any, rules: Mapping[str, Any]) -> None:
  """Raises ConfigError for a value, or an item of a tuple, that its field does not allow.

  Args:
    key: of the field, for the error.
    value: of the field's type.
    rules: the field's metadata. Numbers that float32 or int32 cannot hold are never allowed.
  """
  choices, low, above, high = (rules.get(rule) for rule in ('choices', 'low', 'above', 'high'))
  smallest, largest = FLOATS
  for item in value if isinstance(value, tuple) else (value,):
    if item is None:
      continue
    if choices is not None and item not in choices:
      raise ConfigError(f'{key}={shown(item)}: unknown; known: {", ".join(map(repr, choices))}')
    if low is not None and item < low:
      raise ConfigError(f'{key}={shown(item)}: must be at least {low}')
    if above is not None and item <= above:
      raise ConfigError(f'{key}={shown(item)}: must be greater than {above}')
    if high is not None and item > high:
      raise ConfigError(f'{key}={shown(item)}: must be at most {high}')
    if isinstance(item, int) and high is None and item > LARGEST:
      raise ConfigError(f'{key}={shown(item)}: must be at most {LARGEST}')
    if isinstance(item, float) and item and not smallest <= abs(item) <= largest:
      raise ConfigError(f'{key}={shown(item)}: {_SIZES}')


def as_field(owner: type, field: str, value: Any, name: str) -> Any:
  """Returns a value held to the rules of a dataclass's field.

  Args:
    owner: the dataclass.
    field: of it.
    value: numpy numbers, arrays, ranges and paths are converted to Python values.
    name: what messages call it.

  Raises:
    ConfigError: naming the value and what would work.
  """
  kind = _types(owner)[field]
  out = coerce(name, _plain(value, kind), kind)
  check_range(name, out, owner.__dataclass_fields__[field].metadata)  # type: ignore[attr-defined]
  return out


_types = functools.cache(typing.get_type_hints)


def _plain(value: Any, kind: Any) -> Any:
  """A value as Python has it."""
  if typing.get_origin(kind) is tuple:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
      return value
    return tuple(_plain(item, typing.get_args(kind)[0]) for item in value)
  if isinstance(value, os.PathLike):
    return os.fspath(value)
  return value.item() if isinstance(value, np.generic) else value
