"""Federated learning on heterogeneous clients, with synthetic data, as pure JAX functions."""

__version__ = '0.1.0'
