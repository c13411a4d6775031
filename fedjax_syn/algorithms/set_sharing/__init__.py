"""Methods whose clients send sets of images instead of models: FedDM and FedDualMatch."""

from fedjax_syn.algorithms.set_sharing.feddm import FedDM
from fedjax_syn.algorithms.set_sharing.feddualmatch import FedDualMatch

__all__ = ['FedDM', 'FedDualMatch']
