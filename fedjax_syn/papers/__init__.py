"""The papers, one package each; a package exports ENTRIES, its tables and figures."""

import importlib
import pkgutil
from collections.abc import Mapping

from fedjax_syn.tables.spec import Entry


def entries() -> Mapping[str, Entry]:
  """Returns every table and figure by its name, papers in alphabetical order."""
  names = sorted(m.name for m in pkgutil.iter_modules(__path__) if m.ispkg)
  modules = [importlib.import_module(f'{__name__}.{name}') for name in names]
  return {entry.name: entry for module in modules for entry in module.ENTRIES}
