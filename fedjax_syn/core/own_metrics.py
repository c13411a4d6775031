"""Metrics of users, `package.module:function`: called with the labels and logits of a split."""

import numbers
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fedjax_syn.core import own_code
from fedjax_syn.core.fields import ConfigError
from fedjax_syn.core.texts import shown

TAKEN = ('accuracy', 'loss', 'top_prediction', 'domain')  # names of the library's own


def load(word: str) -> Callable[..., Any]:
  """Imports a function.

  Args:
    word: of `metrics`, `package.module:function`.

  Raises:
    ConfigError: if it cannot be imported, or has the name of a metric of the library.
  """
  if ':' not in word:
    raise ConfigError(f'metrics={shown(word)}: must be module:function or FILE.py:function')
  name = word.rpartition(':')[2]
  if name in TAKEN or name.startswith(('c_', 'o_')):
    raise ConfigError(f'metrics={shown(word)}: {name!r} is a metric of the library; rename it')
  return own_code.load(word, 'metrics')


def values(word: str, y: np.ndarray, logits: np.ndarray) -> dict[str, float]:
  """Returns what a function measures: by its own name, or by name in what it returns.

  Args:
    word: of `metrics`.
    y: labels, [rows] or multi-hot [rows, labels].
    logits: [rows, classes].

  Returns:
    Finite numbers: 'function', or 'function/name' if it returns several by name. Others are left
    out, as they would end the seed.

  Raises:
    ValueError: if the function fails or returns something else.
  """
  name = word.rpartition(':')[2]
  got = own_code.call(load(word), f'metrics={word!r}', y=y, logits=logits)
  several = {f'{name}/{k}': v for k, v in got.items()} if isinstance(got, Mapping) else {name: got}
  for value in several.values():
    if not (isinstance(value, numbers.Real) or np.ndim(value) == 0 and hasattr(value, 'dtype')):
      raise ValueError(
        f'metrics={word!r}: must return a number, or numbers by name, not a {type(value).__name__}'
      )
  floats = {key: float(value) for key, value in several.items()}
  return {key: value for key, value in floats.items() if np.isfinite(value)}
