"""Federated learning on heterogeneous clients, with synthetic data, as pure JAX functions.

import fedjax_syn as fs

method = fs.chain(fs.FedProx(mu=0.01), fs.DynaFed(iterations=300))
result = fs.run(method, 'digits', 'mlp', rounds=60, clients=20, participation=0.4)
"""

import importlib
import sys
from typing import TYPE_CHECKING, Any

from fedjax_syn.core.old_modules import MovedFinder

if TYPE_CHECKING:  # what `__getattr__` finds
  from fedjax_syn.algorithms import ABAVG as ABAVG
  from fedjax_syn.algorithms import DP as DP
  from fedjax_syn.algorithms import MOON as MOON
  from fedjax_syn.algorithms import SCAFFOLD as SCAFFOLD
  from fedjax_syn.algorithms import VHL as VHL
  from fedjax_syn.algorithms import Ditto as Ditto
  from fedjax_syn.algorithms import DynaFed as DynaFed
  from fedjax_syn.algorithms import FedAvg as FedAvg
  from fedjax_syn.algorithms import FedAvgM as FedAvgM
  from fedjax_syn.algorithms import FedBE as FedBE
  from fedjax_syn.algorithms import FedCOG as FedCOG
  from fedjax_syn.algorithms import FedDecorr as FedDecorr
  from fedjax_syn.algorithms import FedDF as FedDF
  from fedjax_syn.algorithms import FedDM as FedDM
  from fedjax_syn.algorithms import FedDualMatch as FedDualMatch
  from fedjax_syn.algorithms import FedDyn as FedDyn
  from fedjax_syn.algorithms import FedExP as FedExP
  from fedjax_syn.algorithms import FedGen as FedGen
  from fedjax_syn.algorithms import FedMix as FedMix
  from fedjax_syn.algorithms import FedNova as FedNova
  from fedjax_syn.algorithms import FedOpt as FedOpt
  from fedjax_syn.algorithms import FedProto as FedProto
  from fedjax_syn.algorithms import FedProx as FedProx
  from fedjax_syn.algorithms import FedReg as FedReg
  from fedjax_syn.algorithms import FedRep as FedRep
  from fedjax_syn.algorithms import FedSAM as FedSAM
  from fedjax_syn.algorithms import Krum as Krum
  from fedjax_syn.algorithms import LabelFlip as LabelFlip
  from fedjax_syn.algorithms import Median as Median
  from fedjax_syn.algorithms import ServerRate as ServerRate
  from fedjax_syn.algorithms import ServerWarmUp as ServerWarmUp
  from fedjax_syn.algorithms import SignFlip as SignFlip
  from fedjax_syn.algorithms import TrimmedMean as TrimmedMean
  from fedjax_syn.algorithms import chain as chain
  from fedjax_syn.chains import Chain as Chain
  from fedjax_syn.core.contexts import ClientContext as ClientContext
  from fedjax_syn.core.contexts import Round as Round
  from fedjax_syn.core.contexts import Task as Task
  from fedjax_syn.core.fields import field as field
  from fedjax_syn.data.datasets import Dataset as Dataset
  from fedjax_syn.engine import Engine as Engine
  from fedjax_syn.engine import Layout as Layout
  from fedjax_syn.layer import Layer as Layer
  from fedjax_syn.layer import when as when
  from fedjax_syn.runs.api import load as load
  from fedjax_syn.runs.api import run as run
  from fedjax_syn.runs.side_by_side import sweep as sweep

__version__ = '0.2.0'

# fmt: off
_METHODS = (
  'ABAVG', 'Ditto', 'DP', 'DynaFed', 'FedAvg', 'FedAvgM', 'FedBE', 'FedCOG', 'FedDecorr', 'FedDF',
  'FedDM', 'FedDualMatch', 'FedDyn', 'FedExP', 'FedGen', 'FedMix', 'FedNova', 'FedOpt',
  'FedProto', 'FedProx', 'FedReg', 'FedRep', 'FedSAM', 'Krum', 'LabelFlip', 'Median', 'MOON',
  'SCAFFOLD', 'ServerRate', 'ServerWarmUp', 'SignFlip', 'TrimmedMean', 'VHL',
)
# fmt: on
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


def _imported(module: str) -> Any:
  """Imports a module; a notebook shows that it waits."""
  if module in sys.modules or 'ipykernel' not in sys.modules:
    return importlib.import_module(module)
  from fedjax_syn.runs import display

  with display.loading():
    return importlib.import_module(module)


def __getattr__(name: str) -> Any:
  """Imports on first use, so that a refused command line does not wait for JAX."""
  if name in _MODULES:
    return getattr(_imported(_MODULES[name]), name)
  if name in _RENAMED:  # `from fedjax_syn import x` would hide the text of an AttributeError
    raise ImportError(f'{__name__}.{name} is {_RENAMED[name]} (docs/compose.md)')
  raise AttributeError(
    f'module {__name__!r} has no attribute {name!r}; it has {", ".join(__all__)}'
  )


def __dir__() -> list[str]:
  return __all__
