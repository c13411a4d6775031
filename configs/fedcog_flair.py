"""FedCOG on FLAIR, photographs with several labels each: Tables 2 and 3 of its paper.

  python launch/main.py --config=configs/fedcog_flair.py --config.data.dir=DIR

This config is for an accelerator: 200 of the data set's users, 10 in a round, 10 local steps, 400
rounds of FedAvg and 5 of FedCOG, ResNet-18, 17 labels. The paper states in per cent, C-F1 and O-F1:
FedAvg 18.30 and 44.53, FedCOG 20.89 and 51.35. The data set must be downloaded by hand.

The clients' models take 8.3 GiB of each device; --config.layout.client_state_bytes=4000000000 keeps
them in host memory.

Measured: not yet.
"""

from fedjax_syn.configs import fedcog_cifar10


def get_config():
  """Returns the config."""
  config = fedcog_cifar10.get_config()
  config.rounds = 405
  config.eval_every = 5
  config.targets = ()

  config.data.name = 'flair'  # 64 pixels a side; the paper does not state its size
  config.data.normalisation = ''
  config.data.partition = 'natural_sample'
  config.data.clients = 200
  config.client.participation = 0.05
  config.client.steps = 10
  config.client.batch_size = 64

  # PyTorch's network without ImageNet's weights; the paper does not say whether it has them.
  config.model.name = 'resnet18'
  config.model.norm = 'batch'
  config.model.init = 'torchvision'

  config.fedcog.start = 400
  # The weights of A.3.2 require one class per sample; these are the weights of Section 4.2.
  config.fedcog.weights = 'fixed'
  config.fedcog.lambda_kd = 0.01
  return config
