"""Layers of a user's own, by 'module:Class' or 'FILE.py:Class'."""

import sys
import types

from fedjax_syn.core import own_code
from fedjax_syn.core.texts import shown
from fedjax_syn.layer import Layer


def load(word: str) -> type[Layer]:
  """Imports a layer.

  Args:
    word: 'package.module:Class', or a path 'folder/file.py:Class'.

  Returns:
    The class.

  Raises:
    ValueError: in one line, if the file or module cannot be imported or has no such layer.
  """
  place, _, name = word.rpartition(':')
  try:
    module = own_code.module_of(place)
  except ValueError as error:
    raise ValueError(f'{shown(word)}: {error}') from error
  layer = getattr(module, name, None)
  if isinstance(layer, type) and issubclass(layer, Layer):
    return layer
  if layer is None:
    raise ValueError(f'{shown(word)}: {place} has no class {name!r}')
  if isinstance(layer, types.FunctionType):
    raise ValueError(
      f'{shown(word)}: is a function, and a method is a class since version 0.2: write'
      f' class {name.capitalize()}(fedjax_syn.Layer) with hooks as methods (docs/compose.md)'
    )
  raise ValueError(
    f'{shown(word)}: is no subclass of fedjax_syn.Layer, which a method is (docs/compose.md)'
  )


def word_of(layer: type[Layer]) -> str:
  """Returns the word by which `load` imports a layer.

  Raises:
    ValueError: if no class statement of a file defines it.
  """
  module, name = layer.__module__, layer.__qualname__
  path = getattr(sys.modules.get(module), '__file__', None)
  if not path or '.' in name:
    raise ValueError(f'{name}: is written in no file from which it could be imported')
  by_file = module == '__main__' or module.startswith(own_code.PREFIX)
  return f'{path if by_file else module}:{name}'
