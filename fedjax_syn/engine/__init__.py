"""The engine: rounds as compiled programs, and how clients lie on devices."""

from typing import Any

from fedjax_syn.core.objectives import cross_entropy
from fedjax_syn.engine.engine import Engine
from fedjax_syn.engine.layout import Layout

__all__ = ['Engine', 'Layout', 'cross_entropy']


def __getattr__(name: str) -> Any:
  if name == 'build':  # of versions before 0.2; an AttributeError would not be shown
    raise ImportError(
      f'{__name__}.build is the class fedjax_syn.Engine now: fs.Engine(method, model, data)'
    )
  raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
