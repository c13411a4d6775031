"""The engine: rounds as jitted programs, and how clients lie on devices."""

from fedjax_syn.engine.interface import Engine
from fedjax_syn.engine.layout import Layout
from fedjax_syn.engine.rounds import build
from fedjax_syn.losses import cross_entropy

__all__ = ['Engine', 'Layout', 'build', 'cross_entropy']
