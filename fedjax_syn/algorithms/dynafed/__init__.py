"""DynaFed: a set distilled from the global trajectory refines later rounds (Pi et al., 2023)."""

from fedjax_syn.algorithms.dynafed.dynafed import DynaFed

__all__ = ['DynaFed']
