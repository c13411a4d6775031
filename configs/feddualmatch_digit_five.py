"""FedDualMatch on Digit-Five, digits of five domains, one client each: Table 2 of its paper.

  python launch/main.py --config=configs/feddualmatch_digit_five.py --config.data.dir=DIR

DIR/Digit-Five must be downloaded by hand (`--list=datasets`). A smaller data set of this kind is
`--config.data.name=digits_domains --config.data.clients=3` (MNIST, USPS, scikit-learn's digits).
`test/domain/NAME/accuracy` is the accuracy on each domain. The table is illegible in the copy of
the paper that was read; the text states that FedDualMatch is a quarter above FedDM, and 27.37
points on SVHN.

Measured: not yet.
"""

from fedjax_syn.configs import feddualmatch_mnist


def get_config():
  """Returns the config of feddualmatch_mnist.py with other data."""
  config = feddualmatch_mnist.get_config()
  config.targets = ()

  # 32 x 32 x 3; the paper states neither the size nor the number of rows.
  config.data.name = 'digit_five'
  config.data.partition = 'natural'
  config.data.clients = 5

  config.client.batch_size = 64  # "10 or 64"
  return config
