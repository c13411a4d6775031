"""Data sets from outside of the package: a function that `data.name` names."""

import dataclasses
import importlib
import traceback
from pathlib import Path

from fedjax_syn.core.texts import first_line
from fedjax_syn.data import checks, naming
from fedjax_syn.data.dataset import Dataset

_HERE = str(Path(__file__).parent)


def load(name: str) -> Dataset:
  """Calls a user's function.

  Args:
    name: `package.module:function`.

  Returns:
    The data set, after `checks.check`.

  Raises:
    ValueError: if it cannot be imported, fails, or returns something else.
    OSError: what it raises itself.
  """
  module, _, function = name.partition(':')
  try:
    make = getattr(importlib.import_module(module), function)
  except (ImportError, AttributeError, ValueError) as error:
    raise ValueError(
      f'data.name={name!r} cannot be imported ({first_line(error)}); '
      'it must be package.module:function'
    ) from error
  try:
    dataset = make() if callable(make) else make
  except OSError:
    raise
  except Exception as error:  # a user's own function
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if not frame.filename.startswith((_HERE, '<'))]
    last = (theirs or frames)[-1]  # the user's line, not that of a check here
    raise ValueError(
      f'data.name={name!r}: {type(error).__name__} in {last.filename}:{last.lineno}: '
      f'{first_line(error)}'
    ) from error
  where = f'data.name={name!r}'
  dataset = checks.check(dataset, where)
  if dataset.client_names or dataset.natural_clients:
    checks.check_clients(dataset, where)
  elif dataset.clients is not None:
    ids, sizes = (
      (dataset.clients, dataset.test_clients),
      (len(dataset.train.y), len(dataset.test.y)),
    )
    clients, notes = naming.number_clients(*ids, sizes, (where, where))
    dataset = dataclasses.replace(dataset, **clients._asdict(), notes=(*dataset.notes, *notes))
  return dataset
