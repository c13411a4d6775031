"""FedAvg: local training and a mean of the models (McMahan et al., 2017)."""

import dataclasses

import optax

from fedjax_syn.client.optimizers import optimizer as optimizer_by_name
from fedjax_syn.client.optimizers import schedule as schedule_by_name
from fedjax_syn.data.augment import Augment, resolve_augment
from fedjax_syn.fields import field
from fedjax_syn.layer import Layer
from fedjax_syn.typing import Array


@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalTraining:
  """The fields of local training: FedAvg's, and in a config those of the block `client`."""

  epochs: int = field(1, 'local passes; 0 if steps are given', low=0, high=10_000)
  steps: int = field(0, 'local steps, whatever the size; 0 if epochs are given', low=0, high=10**9)
  batch_size: int = field(32, 'local batch; the last of a pass may be partial', low=1, high=10**9)
  optimizer: str = field('adam', 'local optimizer, by its optax name')
  lr: float = field(1e-3, 'local learning rate', above=0)
  schedule: str = field('', "factor on lr by round: '' (1), 'cosine' or 'exponential(0.998)'")
  momentum: float = field(0.0, 'local momentum, for sgd', low=0, high=1, static=True)
  weight_decay: float = field(0.0, 'L2 added to the local gradient', low=0, static=True)
  persistent: bool = field(False, "keep a client's optimizer state between its visits")
  augment: str = field('none', 'augmentation of the local batches')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Averaging:
  """The field of the average: FedAvg's, and in a config that of the block `server`."""

  weighting: str = field(
    'uniform', 'weights of the clients in the mean', choices=('uniform', 'size')
  )


class FedAvg(Layer, LocalTraining, Averaging):
  """Clients train from the global model; the server averages their differences from it.

  The first layer of every chain. `weighting` 'uniform' is DynaFed, Algorithm 2, line 7; 'size' its Eq. 2. A schedule
  that ends with the run takes the number of rounds from the run.
  """

  def check(self):
    if bool(self.epochs) == bool(self.steps):
      raise ValueError(
        f'client.epochs={self.epochs}: exactly one of client.epochs and client.steps must be'
        f' non-zero, and client.steps={self.steps}'
      )
    optimizer_by_name(self.optimizer, momentum=self.momentum, weight_decay=self.weight_decay)
    schedule_by_name(self.schedule, 0)
    resolve_augment(self.augment)

  def provides(self):
    sgd = self.optimizer == 'sgd'
    traits = {'local training'} | ({'sgd'} if sgd and self.momentum < 1 else set())
    if sgd and self.momentum:
      traits |= {'momentum'} | ({'persistent momentum'} if self.persistent else set())
    return frozenset(traits)

  @classmethod
  def _key(cls, field_name):
    block = 'server' if field_name == 'weighting' else 'client'
    return f'{block}.{field_name}'

  def _optimizer(self, learning_rate: Array) -> optax.GradientTransformation:
    make = optimizer_by_name(self.optimizer, momentum=self.momentum, weight_decay=self.weight_decay)
    return make(learning_rate)

  def _augmentation(self) -> Augment | None:
    return resolve_augment(self.augment)
