"""The methods, one file each, found by themselves.

A file `name.py` exports `Config`, a frozen dataclass of its fields, and a function `name(base, **fields)`
that puts the method around another. `fedavg` is what every chain starts from.
"""

import dataclasses
import functools
import importlib
import pkgutil
import re
from collections.abc import Callable
from typing import Any

from fedjax_syn.method import Method

BASE = 'fedavg'


@functools.cache  # a config asks several times
def _files() -> tuple[str, ...]:
  return tuple(sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith('_')))


def names() -> dict[str, str]:
  """Returns the name of every method and the first line of its file."""
  return {name: (module(name).__doc__ or '').strip().splitlines()[0] for name in _files()}


def module(name: str) -> Any:
  """Returns the module of a method."""
  return importlib.import_module(f'{__name__}.{name}')


def config_class(name: str) -> type | None:
  """Returns the frozen dataclass of a method's fields; None if it has none."""
  return getattr(module(name), 'Config', None)


def block_name(word: str) -> str:
  """Returns what the block of a method is called in a config: its name, 'function' of 'package.module:function'."""
  return word.rpartition(':')[2]


def wrapper(name: str) -> Callable[..., Method]:
  """Returns the function that puts a method around another; `name` may be 'package.module:function'."""
  if ':' in name:
    path, _, attribute = name.partition(':')
    return getattr(importlib.import_module(path), attribute)
  return getattr(module(name), name)


def create(word: str, config: Any) -> Method:
  """Builds a method from a config.

  Args:
    word: names joined from the inside out, 'scaffold+dynafed'; 'fedavg' is understood at the beginning.
    config: an object with the blocks `client`, `server`, `rounds` and one block per method.

  Returns:
    The method.

  Raises:
    ValueError: if a part does not exist or the parts cannot be combined.
  """
  known = names()
  parts = [part for part in word.split('+') if part != BASE]
  method = module(BASE).from_config(config)
  for part in parts:
    if ':' not in part and part not in known:
      raise ValueError(f'algorithm={word!r}: {part!r} is unknown; known: {", ".join(known)}')
    block = getattr(config, part.rpartition(':')[2], None)
    fields = (
      {f.name: getattr(block, f.name) for f in dataclasses.fields(block)}
      if block is not None
      else {}
    )
    method = _around(part, method, fields, word)
  return method


def _around(part: str, base: Method, fields: dict[str, Any], word: str) -> Method:
  """Puts one method around another; a refusal names the setting that is to be changed."""
  try:
    method = wrapper(part)(base, **fields)
  except (ValueError, TypeError) as error:
    named = re.match(r'[\w.]+ ?[=:]', str(error))
    raise ValueError(str(error) if named else f'algorithm={word!r}: {error}') from error
  if not isinstance(method, Method):
    raise ValueError(f'algorithm={word!r}: {part} returns a {type(method).__name__}, not a Method')
  return method
