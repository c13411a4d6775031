"""FedCOG on CIFAR-10: Table 1 of its paper, NIID-1 (default) or NIID-2; for an accelerator.

  python launch/main.py --config=configs/fedcog_cifar10.py
  python launch/main.py --config=configs/fedcog_cifar10.py --config.data.partition=labels_per_client

The setting is that of configs/fedcog_fashion_mnist.py (10 clients, all in every round, 400 local
steps, 70 rounds, generation from round 51 on); the same network has three channels. The paper
states in per cent, FedAvg and FedCOG: NIID-1 64.36 and 64.83, NIID-2 50.55 and 54.00. Its other
tables state up to three points less, and one states more, for the same setting.

Measured: not yet at full size.
"""

from fedjax_syn.configs import fedcog_fashion_mnist


def get_config():
  """Returns the config."""
  config = fedcog_fashion_mnist.get_config()
  config.targets = (0.5, 0.55, 0.6)
  config.data.name = 'cifar10'
  config.data.normalisation = 'cifar10'  # the code's constants; the paper does not state them
  return config
