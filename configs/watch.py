"""Shoulder exercises by a watch: eight people train, two never do; see docs/federations.md.

  python launch/main.py --config=configs/watch.py --config.data.dir=DIR

DIR has the wheel of the Python package seglearn, or the package is installed. Trains FedAvg, and
Ditto with a personal model for each person. test/accuracy is that of the global model on the test
rows of the eight, personal/test/accuracy that of their own models, and unseen/test/accuracy that of
the global model on the two others. Rates were chosen by `python -m tools.federations`.
"""

from fedjax_syn.config import get_default


def get_config():
  """Returns the config."""
  config = get_default()
  config.algorithm = 'ditto'
  config.compare = 'fedavg'
  config.rounds = 20
  config.eval_every = 5
  config.personal_every = 20
  config.targets = (0.7, 0.8)

  config.data.name = 'watch'
  config.data.partition = 'natural'
  config.data.unseen_clients = 0.2
  config.data.clients = 8  # of ten people

  config.client.participation = 1.0
  config.client.epochs = 1
  config.client.batch_size = 16
  config.client.optimizer = 'sgd'
  config.client.lr = 0.1

  config.model.name = 'convnet1d'
  config.model.width = 16
  config.model.depth = 3
  return config
