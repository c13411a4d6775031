"""Fields of the config's frozen dataclasses: a default, one line of help and the values that are allowed."""

import dataclasses
from typing import Any


def field(
  default: Any,
  help: str,
  *,
  low: float | None = None,
  high: float | None = None,
  above: float | None = None,
  choices: tuple | None = None,
  identity: bool = True,
) -> Any:
  """Declares one config field; `fedjax_syn.config.check` enforces what is said here.

  Args:
    default: the default; its type is the field's type.
    help: one line: what it is, in which unit, where the default comes from.
    low: smallest allowed number.
    high: largest allowed number.
    above: the number must be strictly greater than this.
    choices: the only allowed values.
    identity: whether another value makes another run; False for what changes no result, as where data lie or how
      often a run is saved.

  Returns:
    A `dataclasses.field` that carries the rest as metadata.
  """
  metadata = {'help': help, 'low': low, 'high': high, 'above': above, 'choices': choices}
  metadata |= {'identity': identity}
  return dataclasses.field(default=default, metadata=metadata)
