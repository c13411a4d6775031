"""Layers of a user's own, by 'module:Class' or 'FILE.py:Class'."""

import functools
import hashlib
import importlib
import importlib.util
import os
import sys
import types
from pathlib import Path

from fedjax_syn.core.texts import shown
from fedjax_syn.layer import Layer

_PREFIX = 'fedjax_syn_own_'


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
  path = path_of(place)
  if path and not os.path.isfile(path):
    raise ValueError(f'{shown(word)}: cannot be imported (there is no file {path})')
  try:
    module = _file(path) if path else importlib.import_module(place)
  except Exception as error:  # a user's module may fail in any way
    missing = place, place.partition('.')[0]
    own = not place or isinstance(error, ModuleNotFoundError) and error.name in missing
    reason = f'{error}' if own else f'inside it: {error}'
    raise ValueError(f'{shown(word)}: cannot be imported ({reason})') from error
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
  by_file = module == '__main__' or module.startswith(_PREFIX)
  return f'{path if by_file else module}:{name}'


def called(word: str) -> str:
  """Returns a word without the folders of its file, 'file.py:Class'; others as they are."""
  place, colon, name = word.rpartition(':')
  return f'{Path(place).name}{colon}{name}' if path_of(place) else word


def path_of(place: str) -> str:
  """Returns the path that the part of a word before ':Class' means; '' for a module."""
  return os.path.realpath(os.path.expanduser(place)) if place.endswith('.py') else ''


def module_name(place: str) -> str:
  """Returns what a layer's module is called in `sys.modules`, once it is imported."""
  path = path_of(place)
  return _file(path).__name__ if path else place


@functools.cache  # another import would make another class
def _file(path: str) -> types.ModuleType:
  """Imports a file under a name that follows from its content: files may have equal names."""
  content = Path(path).read_bytes()
  name = f'{_PREFIX}{Path(path).stem}_{hashlib.sha256(content).hexdigest()[:8]}'
  if name in sys.modules:
    return sys.modules[name]
  spec = importlib.util.spec_from_file_location(name, path)
  module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
  sys.modules[name] = module
  try:
    spec.loader.exec_module(module)  # type: ignore[union-attr]
  except BaseException:
    del sys.modules[name]
    raise
  return module
