"""Data sets from outside of the package: a function that `data.name` names."""

import dataclasses

from fedjax_syn.core import own_code
from fedjax_syn.data import checks, naming
from fedjax_syn.data.dataset import Dataset


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
  where = f'data.name={name!r}'
  dataset = own_code.call(own_code.load(name, 'data.name'), where, passes=(OSError,))
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
