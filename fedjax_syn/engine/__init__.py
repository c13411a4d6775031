"""The engine: rounds as compiled programs, and how clients lie on devices."""

from fedjax_syn.engine.engine import Engine
from fedjax_syn.engine.layout import Layout
from fedjax_syn.losses import cross_entropy

__all__ = ['Engine', 'Layout', 'cross_entropy']
