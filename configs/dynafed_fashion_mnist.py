"""DynaFed on Fashion-MNIST with the MLP of the paper's Table 5.

  python launch/main.py --config=configs/dynafed_fashion_mnist.py

784-128-128-10, 80 clients, 40 % in a round, 200 rounds of one local epoch, alpha 0.01. The paper has
65.64 for FedAvg and 73.89 for DynaFed (mean of the last five rounds, per cent); for alpha 0.04
(`--config.data.alpha=0.04`) 73.26 and 83.54.

Measured (three seeds, jax 0.10.2, one core of a busy 2-core CPU machine, 9 minutes a seed for DynaFed and 2 for
FedAvg): alpha 0.01 FedAvg 64.38 +- 4.95, DynaFed 72.78 +- 1.09; alpha 0.04 78.96 +- 0.50, 82.24 +- 0.11.
"""

from fedjax_syn.config import get_default


def get_config():
  """Returns the config."""
  config = get_default()
  config.algorithm = 'dynafed'
  config.compare = 'fedavg'
  config.rounds = 200
  config.targets = (0.65, 0.7, 0.75)

  config.data.name = 'fashion_mnist'
  config.data.partition = 'balanced_dirichlet'
  config.data.alpha = 0.01
  config.data.clients = 80

  config.client.participation = 0.4
  config.client.epochs = 1
  config.client.batch_size = 32  # not in the paper; the authors' code
  config.client.optimizer = 'adam'
  config.client.lr = 1e-3
  # The code keeps one Adam per client for the whole run; the paper does not say so, and moments that
  # belong to a model long overwritten are hard to defend.
  config.client.persistent = False

  # Equation 2 weighs by size and Algorithm 2 does not; with this partition all clients are equal.
  config.server.weighting = 'uniform'

  config.model.name = 'mlp'
  config.model.width = 128
  config.model.depth = 2

  # |                            | paper            | code           | here                              |
  # |----------------------------|------------------|----------------|-----------------------------------|
  # | L, rounds of trajectory    | 20               | 24             | paper                             |
  # | w^0 in the trajectory      | no (t from 1)    | yes            | code: one more checkpoint, free   |
  # | s, segment                 | 5                | 3              | paper                             |
  # | checkpoints in the target  | 2, averaged      | 2 or 3         | paper                             |
  # | s', inner steps            | not stated       | 20             | 40: validation, below             |
  # | inner batch                | not stated       | all            | code                              |
  # | inner step size at first   | 1e-5             | 0.04           | code: 1e-5 is really the rate     |
  # |                            |                  |                | below; as a step it moves nothing |
  # | rate of the step size      | not stated       | Adam 1e-5      | Adam 1e-2 on its logarithm: stays |
  # |                            |                  |                | positive and can reach its value  |
  # | inner loss                 | cross-entropy    | divided by C   | plain mean: a step size means the |
  # |                            |                  |                | same for 10 and for 100 classes   |
  # | N, iterations              | 1000             | 3000           | paper                             |
  # | rate of the images         | Adam 5e-2        | Adam 5e-2      | both                              |
  # | rate of the labels         | Adam 5e-2        | Adam 1e-2      | paper                             |
  # | synthetic images           | 150              | 15 a class     | both                              |
  # | DSA, synthesis and tuning  | not stated       | on             | off: it was made for colour; grey |
  # |                            |                  |                | images, centred and of one scale, |
  # |                            |                  |                | it shifts, turns and covers       |
  # | fine-tuning in a round     | negligible time  | 20 passes,     | 20 passes, Adam 1e-3: validation, |
  # |                            |                  | Adam 1e-4      | below (the code has no script for |
  # |                            |                  | (CIFAR-10)     | Fashion-MNIST)                    |
  #
  # Chosen on a tenth of the training rows, held out (one seed, mean of the last five of 200 rounds, per
  # cent; two equal runs on different machines differ by up to 2.4 at alpha 0.01 and 0.8 at 0.04):
  # - alpha 0.04: s' 20 82.8, s' 40 83.7; w^{t+5} alone as target 83.5; s = 3 83.3; N = 3000 83.5;
  #   30 images a class 82.6; L = 24 82.7 (read at round 191); without w^0 83.1; images at rate 2e-2 82.8.
  # - fine-tuning (s' 20), alpha 0.01 / 0.04: 20 steps at 1e-4 71.3 / 82.8, at 3e-4 71.0 / 82.6, at 1e-3
  #   75.1 / 83.5, 60 steps at 1e-4 72.4 / 84.0; on the other machine 20 at 1e-4 73.7 / 83.6, 60 at 3e-4
  #   72.9 / 83.8, 60 at 1e-3 76.2 / 83.1.
  config.dynafed.length = 20
  config.dynafed.include_initial = True
  config.dynafed.segment = 5
  config.dynafed.targets = 2
  config.dynafed.inner_steps = 40
  config.dynafed.inner_batch = 0
  config.dynafed.inner_lr = 0.04
  config.dynafed.inner_lr_lr = 1e-2
  config.dynafed.iterations = 1000
  config.dynafed.image_lr = 5e-2
  config.dynafed.label_lr = 5e-2
  config.dynafed.images_per_class = 15
  config.dynafed.augment = ''
  config.dynafed.finetune_steps = 20
  config.dynafed.finetune_lr = 1e-3
  config.dynafed.finetune_augment = ''
  return config
