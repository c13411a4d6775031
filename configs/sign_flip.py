"""Robust averages on digits: four of twenty clients send five times their update, reversed.

  python launch/main.py --config=configs/sign_flip.py --config.seeds=0,1,2

Trains FedAvg without an attack, then the mean, the trimmed mean, Krum, Multi-Krum and the median
under the attack, and draws all in one figure. results/sign_flip.json has what they reached;
docs/study.md shows the figure.
"""

from fedjax_syn.config import get_default


def get_config():
  """Returns the config."""
  config = get_default()
  config.algorithm = 'signflip+median'
  config.compare = 'fedavg,signflip,signflip+trimmedmean,signflip+krum,signflip+krum(krum.keep=12)'
  config.rounds = 40

  config.data.name = 'digits'
  config.data.partition = 'balanced_dirichlet'
  config.data.alpha = 1.0
  config.data.clients = 20

  config.client.participation = 1.0  # every round has exactly four attackers
  config.client.epochs = 1
  config.client.batch_size = 16
  config.client.optimizer = 'sgd'
  config.client.lr = 0.1

  config.model.name = 'mlp'
  config.model.width = 64
  config.model.depth = 2

  config.signflip.share = 0.2
  config.signflip.scale = 5.0  # the mean moves by 0.8 - 0.2 * 5 = -0.2 of an honest update
  return config
