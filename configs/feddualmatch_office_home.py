"""FedDualMatch on Office-Home, 65 classes in four domains, one client each: Table 2 of its paper.

  python launch/main.py --config=configs/feddualmatch_office_home.py --config.data.dir=DIR

DIR/OfficeHomeDataset_10072016.zip must be downloaded by hand (`--list=datasets`).
`test/domain/NAME/accuracy` is the accuracy on each domain. The table is illegible in the copy of
the paper that was read; the text states that FedDualMatch is 17 per cent above FedDM.

Measured: not yet.
"""

from fedjax_syn.configs import feddualmatch_mnist


def get_config():
  """Returns the config of feddualmatch_mnist.py with other data."""
  config = feddualmatch_mnist.get_config()
  config.targets = ()

  # 64 x 64 x 3, a fifth of each class for tests; the paper states neither.
  config.data.name = 'office_home'
  config.data.partition = 'natural'
  config.data.clients = 4

  config.client.batch_size = 10  # "10 or 64"
  return config
