"""Every method has a numpy version: COVERS in each test file of this folder names its methods."""

import importlib
import pkgutil

from fedjax_syn import algorithms
from tests import float64


def test_every_method_is_covered():
  names = [f'{float64.__name__}.{m.name}' for m in pkgutil.iter_modules(float64.__path__)]
  covered = [c for name in names for c in getattr(importlib.import_module(name), 'COVERS', ())]
  methods = set(algorithms.names())
  missing = sorted(methods - set(covered))
  assert not missing, f'no numpy version in tests/float64/ of: {", ".join(missing)}'
  assert set(covered) == methods and len(covered) == len(methods)
