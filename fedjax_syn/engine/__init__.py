"""The engine: rounds as compiled programs, and how clients lie on devices (`placement`)."""

from fedjax_syn.core.objectives import cross_entropy
from fedjax_syn.engine.engine import Engine
from fedjax_syn.engine.layout import Layout

__all__ = ['Engine', 'Layout', 'cross_entropy']
