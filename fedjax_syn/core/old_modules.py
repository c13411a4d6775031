"""Modules of versions before 0.2: old checkpoints name them; an import of one says the new name."""

import importlib.abc
from collections.abc import Sequence
from types import ModuleType
from typing import Any

# New module by old one, without `fedjax_syn.`.
MOVED = {
  'algorithms.dynafed': 'algorithms.dynafed.dynafed',
  'algorithms.fedcog': 'algorithms.fedcog.fedcog',
  'algorithms.feddm': 'algorithms.set_sharing.feddm',
  'algorithms.feddualmatch': 'algorithms.set_sharing.feddualmatch',
  'api': 'runs.api',
  'background': 'core.background',
  'checkpoint': 'runs.checkpoint',
  'client.optimizers': 'core.optimizers',
  'contexts': 'core.contexts',
  'engine.sampling': 'core.sampling',
  'experiment': 'runs.experiment',
  'export': 'runs.export',
  'fields': 'core.fields',
  'figures': 'plotting.figures',
  'hosts': 'core.processes',
  'keys': 'core.keys',
  'loop': 'runs.loop',
  'losses': 'core.objectives',
  'method': 'core.contexts',
  'metrics': 'runs.metrics',
  'privacy': 'core.privacy',
  'results': 'runs.final_files',
  'schema': 'config.schema',
  'server.sets': 'algorithms.set_sharing.base',
  'synthesis': 'algorithms',
  'synthesis.class_sets': 'algorithms.set_sharing.class_sets',
  'synthesis.synthetic': 'algorithms.dynafed.synthetic_set',
  'synthesis.trajectory': 'algorithms.dynafed.unroll',
  'synthesis.virtual': 'algorithms.vhl',
  'trackers': 'runs.trackers',
  'typing': 'core.types',
}


def new_name(module: str) -> str:
  """Returns what a module is called now, of an older version's name or of today's."""
  package, _, name = module.partition('.')
  return f'{package}.{MOVED[name]}' if package == 'fedjax_syn' and name in MOVED else module


class MovedFinder(importlib.abc.MetaPathFinder):
  """The last finder of `sys.meta_path`: it is asked for modules that do not exist."""

  def find_spec(
    self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
  ) -> Any:
    """Refuses a module that was moved; returns None for every other one."""
    package, _, module = name.partition('.')
    if package == 'fedjax_syn' and module in MOVED:
      raise ImportError(f'{name} is {new_name(name)} now (CHANGELOG.md)', name=name)
    return None
