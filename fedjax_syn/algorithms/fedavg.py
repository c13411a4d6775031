"""FedAvg: local training and a mean of the models (McMahan et al., 2017)."""

from collections.abc import Callable

import optax

from fedjax_syn.client.settings import Averaging, LocalTraining
from fedjax_syn.core.optimizers import optimizer as optimizer_by_name
from fedjax_syn.core.schedules import schedule as schedule_by_name
from fedjax_syn.core.types import Array
from fedjax_syn.data.augment import AUGMENTATIONS, Augment
from fedjax_syn.layer import Layer


class FedAvg(Layer, LocalTraining, Averaging):
  """Clients train from the global model; the server averages their differences from it.

  The first layer of every chain. weighting='uniform' is line 7 of DynaFed's Algorithm 2, 'size' its
  Eq. 2. A schedule that ends with the run reads the number of rounds from the run.
  """

  def check(self):
    if bool(self.epochs) == bool(self.steps):
      raise ValueError(
        f'client.epochs={self.epochs}: exactly one of client.epochs and client.steps must be'
        f' non-zero, and client.steps={self.steps}'
      )
    self._optimizer_by_rate()
    schedule_by_name(self.schedule, 0)

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
    return self._optimizer_by_rate()(learning_rate)

  def _optimizer_by_rate(self) -> Callable[[Array], optax.GradientTransformation]:
    return optimizer_by_name(
      self.optimizer,
      momentum=self.momentum,
      weight_decay=self.weight_decay,
      clip_norm=self.clip_norm,
    )

  def _augmentation(self) -> Augment | None:
    return AUGMENTATIONS[self.augment]
