"""FedDualMatch on Digit-Five, five origins of digits and a client each: Table 2 of its paper.

  python launch/main.py --config=configs/feddualmatch_digit_five.py --config.data.dir=DIR

DIR/Digit-Five has to be fetched by hand (`--list=datasets`). The same on data that are smaller: `--config.data.name=digits_domains
--config.data.clients=3` (MNIST, USPS and scikit-learn's digits). `test/domain/NAME/accuracy` is that of each origin. The copy
of the paper that was read has no legible table; it says that FedDualMatch is a quarter above FedDM, and 27.37 points on SVHN.

Measured: not yet run; the data set has to be fetched by hand.
"""

from fedjax_syn.configs import feddualmatch_mnist


def get_config():
  """Returns the config; what is not set here is as in feddualmatch_mnist.py."""
  config = feddualmatch_mnist.get_config()
  config.targets = ()

  config.data.name = (
    'digit_five'  # 32 x 32 x 3; the paper does not state its size, nor how many rows it takes
  )
  config.data.partition = 'natural'
  config.data.clients = 5

  config.client.batch_size = 64  # "10 or 64"
  return config
