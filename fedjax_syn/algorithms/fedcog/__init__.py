"""FedCOG: clients generate data that complement theirs and distil the global model on them (Ye et al., ICLR 2024)."""

from fedjax_syn.algorithms.fedcog.fedcog import FedCOG

__all__ = ['FedCOG']
