"""DynaFed on the digits that come with scikit-learn: the default, with nothing to download.

  python launch/main.py --config=configs/dynafed_digits.py

20 clients, most with one or two of the ten classes (balanced Dirichlet, alpha 0.02), 40 % of them in
a round. FedAvg is trained first with the same seeds and drawn in the same figure.

Measured: (to be filled)
"""

from fedjax_syn.config import get_default


def get_config():
  """Returns the config."""
  config = get_default()
  config.algorithm = 'dynafed'
  config.compare = 'fedavg'
  config.rounds = 60
  config.targets = (0.8, 0.9)

  config.data.name = 'digits'
  config.data.partition = 'balanced_dirichlet'
  config.data.alpha = 0.02
  config.data.clients = 20

  config.client.participation = 0.4
  config.client.epochs = 1
  config.client.batch_size = 16
  config.client.optimizer = 'adam'
  config.client.lr = 1e-3

  config.model.name = 'mlp'
  config.model.width = 128
  config.model.depth = 2

  # The paper has no experiment on digits: its values, with fewer iterations, which is enough for
  # 8 x 8 pixels and keeps the synthesis under a minute on two cores.
  config.dynafed.length = 20
  config.dynafed.iterations = 300
  return config
