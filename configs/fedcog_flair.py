"""FedCOG on FLAIR, photographs with several labels each: Tables 2 and 3 of its paper; for an accelerator.

  python launch/main.py --config=configs/fedcog_flair.py --config.data.dir=DIR

200 of the data set's users, 10 in a round, 10 local steps, 400 rounds of FedAvg and 5 of FedCOG, ResNet-18, 17 labels.
The paper has, per cent: FedAvg C-F1 18.30, O-F1 44.53; FedCOG 20.89 and 51.35.

Measured: not yet run; the data set has to be fetched by hand.
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

  # PyTorch's network; the paper does not say whether its weights were those of ImageNet. Here they are not.
  config.model.name = 'resnet18'
  config.model.norm = 'batch'
  config.model.init = 'torchvision'

  config.fedcog.start = 400
  # The weights by what is lacking are for one class per sample (A.3.2); these are those of Section 4.2.
  config.fedcog.weights = 'fixed'
  config.fedcog.lambda_kd = 0.01
  return config
