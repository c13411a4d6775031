"""Federated learning on heterogeneous clients, with synthetic data, as pure JAX functions.

import fedjax_syn as fs
from fedjax_syn.algorithms.dynafed import dynafed

result = fs.run(dynafed(), 'digits', 'mlp', rounds=60, clients=20, partition='dirichlet', participation=0.4)
"""

import importlib
from typing import Any

__version__ = '0.1.0'

_HOMES = {
  'Dataset': 'fedjax_syn.data.datasets',
  'Engine': 'fedjax_syn.engine',
  'Layout': 'fedjax_syn.engine',
  'Method': 'fedjax_syn.method',
  'build': 'fedjax_syn.engine',
  'load': 'fedjax_syn.api',
  'run': 'fedjax_syn.api',
}
__all__ = ['Dataset', 'Engine', 'Layout', 'Method', '__version__', 'build', 'load', 'run']


def __getattr__(name: str) -> Any:
  """Imports on first use, so that a refused command line does not wait for JAX."""
  if name not in _HOMES:
    raise AttributeError(
      f'module {__name__!r} has no attribute {name!r}; it has {", ".join(__all__)}'
    )
  return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
  return __all__
