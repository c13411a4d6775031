"""Layers of a user's own, by 'module:Class' or 'FILE.py:Class'."""

import functools
import hashlib
import importlib
import importlib.util
import sys
from pathlib import Path

from fedjax_syn.layer import Layer
from fedjax_syn.texts import shown


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
    module = (
      _file(str(Path(place).resolve())) if place.endswith('.py') else importlib.import_module(place)
    )
  except Exception as error:  # a user's module may fail in any way
    raise ValueError(f'{shown(word)}: cannot be imported ({error})') from error
  layer = getattr(module, name, None)
  if isinstance(layer, type) and issubclass(layer, Layer):
    return layer
  if layer is None:
    raise ValueError(f'{shown(word)}: {place} has no class {name!r}')
  raise ValueError(
    f'{shown(word)}: is no subclass of fedjax_syn.Layer, which a method is (docs/compose.md)'
  )


@functools.cache  # another import would make another class
def _file(path: str):
  """Imports a file under a name that depends on its path alone, so that two files may have one name."""
  name = f'fedjax_syn_own_{Path(path).stem}_{hashlib.sha256(path.encode()).hexdigest()[:8]}'
  spec = importlib.util.spec_from_file_location(name, path)
  module = importlib.util.module_from_spec(spec)
  sys.modules[name] = module
  try:
    spec.loader.exec_module(module)
  except BaseException:
    del sys.modules[name]
    raise
  return module
