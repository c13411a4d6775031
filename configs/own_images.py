"""Your own images, photos/CLIENT/CLASS/IMAGE: DynaFed, FedAvg and SCAFFOLD with a ConvNet.

python launch/main.py --config=configs/own_images.py --config.data.dir=photos
    --config.data.clients=<how many folders> --workdir=runs/photos

Measured on 400 held-out images of drawn shapes (six clients, 484 training images, four classes in
different shares, noise; SCAFFOLD, seed 0, mean of the last five rounds, per cent):

  constant rate 0.1, no augmentation, 40 rounds            94.0   46 s of one core
  constant rate 0.1, 'crop_flip', 80 rounds                96.1   65 s
  cosine from 0.1, 'crop_flip', 60 rounds                  92.5   35 s (programs were compiled)
  cosine from 0.2, 'crop_flip', 60 rounds                  95.3   45 s
  cosine from 0.2, 'dsa', 60 rounds                        95.3   47 s
  cosine from 0.2, 'crop_flip', 80 rounds                  96.8   59 s
"""

from fedjax_syn.config import get_default


def get_config():
  """Returns the config."""
  config = get_default()
  config.algorithm = 'dynafed'
  config.compare = 'fedavg,scaffold'
  config.rounds = 80
  config.targets = (0.8, 0.9)

  config.data.name = 'folder'
  config.data.size = 32  # pixels
  config.data.partition = 'natural'  # a client is a folder

  config.client.participation = 1.0  # of many clients a share is enough
  config.client.epochs = 2
  config.client.batch_size = 16
  config.client.optimizer = 'sgd'  # SCAFFOLD's corrections are those of SGD
  config.client.lr = 0.2
  config.client.schedule = 'cosine'
  config.client.augment = 'crop_flip'  # 'crop' where left and right differ, as in letters

  config.model.name = 'convnet'
  config.model.width = 16  # for a laptop; 32 takes three times as long

  # DynaFed's rule for data other than the papers' (docs/algorithms/dynafed.md): the trajectory is a
  # quarter of the rounds, the set is small, and fine-tuning stays at the code's rate, the least.
  config.dynafed.length = config.rounds // 4
  config.dynafed.segment = 3
  config.dynafed.iterations = 100
  config.dynafed.inner_steps = 10
  config.dynafed.images_per_class = 5
  config.dynafed.finetune_steps = 20
  config.dynafed.finetune_lr = 1e-4
  return config
