"""FedCOG: clients distil the global model on generated complementary data (Ye et al., 2024)."""

from fedjax_syn.algorithms.fedcog.fedcog import FedCOG

__all__ = ['FedCOG']
