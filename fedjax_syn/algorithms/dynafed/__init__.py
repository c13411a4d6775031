"""DynaFed: a data set distilled from the global model's trajectory refines every later round (Pi et al., CVPR 2023)."""

from fedjax_syn.algorithms.dynafed.dynafed import DynaFed

__all__ = ['DynaFed']
