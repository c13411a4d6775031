"""VHL: clients calibrate their features on a common data set of noise (Tang et al., 2022)."""

from fedjax_syn.algorithms.vhl.vhl import VHL

__all__ = ['VHL']
