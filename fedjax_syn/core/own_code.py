"""Functions of users, which a config names as `package.module:function`: imported and called."""

import difflib
import importlib
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedjax_syn.core.fields import ConfigError
from fedjax_syn.core.texts import first_line, shown

_PACKAGE = str(Path(__file__).parents[1])


def load(word: str, key: str) -> Callable[..., Any]:
  """Imports a function.

  Args:
    word: `package.module:function`.
    key: of the setting, for the error.

  Raises:
    ConfigError: if it cannot be imported.
  """
  module, _, name = word.rpartition(':')
  try:
    imported = importlib.import_module(module)
  except Exception as error:  # a user's module may fail in any way
    missing = isinstance(error, ModuleNotFoundError) and error.name
    own = missing in (module, module.partition('.')[0]) or not module
    reason = f'{error}' if own else f'inside it: {error}'
    wanted = f'write {module[:-3]}:{name}, without .py'
    hint = wanted if module.endswith('.py') else 'it must be package.module:function'
    raise ConfigError(f'{key}={shown(word)}: cannot be imported ({reason}); {hint}') from error
  function = getattr(imported, name, None)
  if not callable(function):
    near = difflib.get_close_matches(name, dir(imported), n=1)
    hint = f'; did you mean {near[0]!r}?' if near else ''
    raise ConfigError(f'{key}={shown(word)}: module {module} has no function {name!r}{hint}')
  return function


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
