"""Federated learning on heterogeneous clients, with synthetic data, as pure JAX functions.

import fedjax_syn as fs

method = fs.chain(fs.FedProx(mu=0.01), fs.DynaFed(iterations=300))
result = fs.run(method, 'digits', 'mlp', rounds=60, clients=20, partition='dirichlet', participation=0.4)
"""

import importlib
import sys
from typing import Any

from fedjax_syn.core.moved import MovedFinder

__version__ = '0.2.0'

_METHODS = (
  'ABAVG',
  'Ditto',
  'DP',
  'DynaFed',
  'FedAvg',
  'FedAvgM',
  'FedBE',
  'FedCOG',
  'FedDecorr',
  'FedDF',
  'FedDM',
  'FedDualMatch',
  'FedDyn',
  'FedExP',
  'FedGen',
  'FedMix',
  'FedNova',
  'FedOpt',
  'FedProto',
  'FedProx',
  'FedReg',
  'FedRep',
  'FedSAM',
  'MOON',
  'SCAFFOLD',
  'ServerWarmUp',
  'VHL',
)
_MODULES = {
  **dict.fromkeys(_METHODS, 'fedjax_syn.algorithms'),
  'Chain': 'fedjax_syn.chains',
  'ClientContext': 'fedjax_syn.core.contexts',
  'Dataset': 'fedjax_syn.data.datasets',
  'Engine': 'fedjax_syn.engine',
  'Layer': 'fedjax_syn.layer',
  'Layout': 'fedjax_syn.engine',
  'Round': 'fedjax_syn.core.contexts',
  'Task': 'fedjax_syn.core.contexts',
  'chain': 'fedjax_syn.algorithms',
  'field': 'fedjax_syn.core.fields',
  'load': 'fedjax_syn.runs.api',
  'run': 'fedjax_syn.runs.api',
  'sweep': 'fedjax_syn.runs.side_by_side',
  'when': 'fedjax_syn.layer',
}
_RENAMED = {  # what versions before 0.2 had
  **{name.lower(): f'the class fs.{name} now: fs.chain(fs.{name}(...))' for name in _METHODS},
  'Method': 'fs.Chain now, which fs.chain(...) makes of layers',
  'build': 'the class fs.Engine now: fs.Engine(method, model, data)',
}
__all__ = [*sorted(_MODULES), '__version__']


if not any(isinstance(finder, MovedFinder) for finder in sys.meta_path):
  sys.meta_path.append(MovedFinder())


def __getattr__(name: str) -> Any:
  """Imports on first use, so that a refused command line does not wait for JAX."""
  if name in _MODULES:
    return getattr(importlib.import_module(_MODULES[name]), name)
  if name in _RENAMED:  # `from fedjax_syn import x` would hide the text of an AttributeError
    raise ImportError(f'{__name__}.{name} is {_RENAMED[name]} (docs/compose.md)')
  raise AttributeError(
    f'module {__name__!r} has no attribute {name!r}; it has {", ".join(__all__)}'
  )


def __dir__() -> list[str]:
  return __all__
