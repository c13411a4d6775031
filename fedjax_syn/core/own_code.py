"""Functions of users, by `package.module:function` or `FILE.py:function`: imported and called."""

import difflib
import functools
import hashlib
import importlib
import importlib.util
import os
import sys
import traceback
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedjax_syn.core.fields import ConfigError
from fedjax_syn.core.texts import first_line, shown

PREFIX = 'fedjax_syn_own_'  # of the names of modules that are files
_PACKAGE = str(Path(__file__).parents[1])


def load(word: str, key: str) -> Callable[..., Any]:
  """Imports a function.

  Args:
    word: `package.module:function`, or a path, `folder/file.py:function`.
    key: of the setting, for the error.

  Raises:
    ConfigError: if it cannot be imported.
  """
  place, _, name = word.rpartition(':')
  try:
    imported = module_of(place)
  except ValueError as error:
    hint = '' if path_of(place) else '; it must be package.module:function or FILE.py:function'
    raise ConfigError(f'{key}={shown(word)}: {error}{hint}') from error
  function = getattr(imported, name, None)
  if not callable(function):
    near = difflib.get_close_matches(name, dir(imported), n=1)
    hint = f'; did you mean {near[0]!r}?' if near else ''
    what = 'file' if path_of(place) else 'module'
    raise ConfigError(f'{key}={shown(word)}: {what} {place} has no function {name!r}{hint}')
  return function


def module_of(place: str) -> types.ModuleType:
  """Imports what stands before the colon of a word: a module by its name or by its file.

  Raises:
    ValueError: in one line, if it cannot be imported.
  """
  path = path_of(place)
  if path and not os.path.isfile(path):
    raise ValueError(f'cannot be imported (there is no file {path})')
  try:
    return _file(path) if path else importlib.import_module(place)
  except Exception as error:  # a user's module may fail in any way
    missing = place, place.partition('.')[0]
    own = not place or isinstance(error, ModuleNotFoundError) and error.name in missing
    raise ValueError(f'cannot be imported ({"" if own else "inside it: "}{error})') from error


def called(word: str) -> str:
  """Returns a word without the folders of its file, 'file.py:Class'; others as they are."""
  place, colon, name = word.rpartition(':')
  return f'{Path(place).name}{colon}{name}' if path_of(place) else word


def path_of(place: str) -> str:
  """Returns the path that the part of a word before ':Class' means; '' for a module."""
  return os.path.realpath(os.path.expanduser(place)) if place.endswith('.py') else ''


def module_name(place: str) -> str:
  """Returns what a word's module is called in `sys.modules`, once it is imported."""
  path = path_of(place)
  return _file(path).__name__ if path else place


@functools.cache  # another import would make another class
def _file(path: str) -> types.ModuleType:
  """Imports a file under a name that follows from its content: files may have equal names."""
  content = Path(path).read_bytes()
  name = f'{PREFIX}{Path(path).stem}_{hashlib.sha256(content).hexdigest()[:8]}'
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


def call(
  function: Callable[..., Any], where: str, passes: tuple[type[Exception], ...] = (), **given: Any
) -> Any:
  """Calls a user's function.

  Args:
    function: from `load`.
    where: a message begins with it.
    passes: the errors that are raised as they are.
    **given: its arguments.

  Raises:
    ValueError: if it fails; the message names the user's last line.
  """
  try:
    return function(**given)
  except passes:
    raise
  except Exception as error:  # a user's function may fail in any way
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if not frame.filename.startswith((_PACKAGE, '<'))]
    last = (theirs or frames)[-1]  # not the line of a check here
    reason = f'{type(error).__name__} in {last.filename}:{last.lineno}: {first_line(error)}'
    raise ValueError(f'{where}: {reason}') from error
