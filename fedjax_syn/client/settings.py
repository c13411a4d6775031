"""Settings of local training and of the average: fields of FedAvg, blocks of a config."""

import dataclasses

from fedjax_syn.core.fields import field
from fedjax_syn.core.optimizers import OPTIMIZERS
from fedjax_syn.data.augment import AUGMENTATIONS


@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalTraining:
  """The fields of local training: FedAvg's, and in a config those of the block `client`."""

  epochs: int = field(1, 'local passes; 0 if steps are given', low=0, high=10_000)
  steps: int = field(0, 'local steps, for any size; 0 if epochs are given', low=0, high=10**9)
  batch_size: int = field(
    32,
    'local batch; the last of a pass may be partial; 0: all samples of a client',
    low=0,
    high=10**9,
  )
  optimizer: str = field('adam', 'local optimizer, by its optax name', choices=OPTIMIZERS)
  lr: float = field(1e-3, 'local learning rate', above=0)
  schedule: str = field(
    '',
    "factor on lr by round: '' (1), 'cosine', 'exponential(0.998)', 'step(30,0.1)', 'warmup(5)',"
    " 'warmup(5)+cosine', or module:function, FILE.py:function",
  )
  momentum: float = field(0.0, 'local momentum, for sgd', low=0, high=1, static=True)
  weight_decay: float = field(0.0, 'L2 added to the local gradient', low=0, static=True)
  clip_norm: float = field(
    0.0, 'bound on the norm of a local gradient; 0: none', low=0, static=True, added=True
  )
  dropouts: float = field(
    0.0, 'probability that a sampled client sends nothing', low=0, high=1, static=True, added=True
  )
  stragglers: float = field(
    0.0,
    'probability that a client takes only a part of its steps, uniform in 1, 2, ... all of them',
    low=0,
    high=1,
    static=True,
    added=True,
  )
  persistent: bool = field(False, "keep a client's optimizer state between rounds")
  augment: str = field('none', 'augmentation of the local batches', choices=tuple(AUGMENTATIONS))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Averaging:
  """The field of the average: FedAvg's, and in a config that of the block `server`."""

  weighting: str = field(
    'uniform', 'weights of the clients in the mean', choices=('uniform', 'size')
  )
