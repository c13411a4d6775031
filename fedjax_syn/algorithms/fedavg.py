"""FedAvg: local training and a mean of the models (McMahan et al., 2017)."""

import functools
from typing import Any

from fedjax_syn.client.optimizers import ENDING
from fedjax_syn.client.optimizers import optimizer as optimizer_by_name
from fedjax_syn.client.optimizers import schedule as schedule_by_name
from fedjax_syn.data.augment import resolve_augment
from fedjax_syn.method import LocalTraining, Method


def fedavg(
  lr: float = 1e-3,
  *,
  optimizer: str = 'adam',
  momentum: float = 0.0,
  weight_decay: float = 0.0,
  epochs: int = 1,
  steps: int = 0,
  batch_size: int = 32,
  persistent: bool = False,
  schedule: str = '',
  rounds: int = 0,
  augment: str = 'none',
  weighting: str = 'uniform',
) -> Method:
  """Clients train from the global model; the server averages what comes back.

  Args:
    lr: learning rate of the clients.
    optimizer: an optax optimizer, see `fedjax_syn.client.optimizers`.
    momentum: of sgd and rmsprop.
    weight_decay: coupled L2.
    epochs: passes over a client's data in a visit, or
    steps: local steps in a visit, whatever the client's size; exactly one of the two is non-zero.
    batch_size: samples in a step; the last batch of an epoch may be partial.
    persistent: keep each client's optimizer state between its visits (the authors of DynaFed did).
    schedule: factor on `lr` by round, see `fedjax_syn.client.optimizers.schedule`.
    rounds: rounds of the run, for a schedule that ends with it; 0: those of the run that it is used in.
    augment: augmentation of the clients' batches, see `fedjax_syn.data.augment`.
    weighting: 'uniform' (1 for a client with samples; DynaFed, Algorithm 2, line 7) or 'size' (Eq. 2).

  Returns:
    The method that all others are put around.

  Raises:
    ValueError: if epochs and steps are both zero or both set, or the weighting is unknown.
  """
  if bool(epochs) == bool(steps):
    raise ValueError(
      f'client.epochs={epochs} and client.steps={steps}: exactly one must be non-zero'
    )
  if weighting not in ('uniform', 'size'):
    raise ValueError(f"server.weighting={weighting!r} is unknown; known: 'uniform', 'size'")
  client = LocalTraining(
    optimizer=optimizer_by_name(optimizer, momentum=momentum, weight_decay=weight_decay),
    epochs=epochs,
    steps=steps,
    batch_size=batch_size,
    persistent=persistent,
    momentum=momentum if optimizer == 'sgd' else None,
    schedule=schedule_by_name(schedule, rounds),
    schedule_of=functools.partial(schedule_by_name, schedule) if schedule in ENDING else None,
    rounds=rounds,
    augment=resolve_augment(augment),
  )
  return Method(name='fedavg', client=client, weighting=weighting, hyper={'client': {'lr': lr}})


def from_config(config: Any) -> Method:
  """Builds FedAvg from the blocks `client` and `server` and the field `rounds` of a config."""
  c = config.client
  return fedavg(
    c.lr,
    optimizer=c.optimizer,
    momentum=c.momentum,
    weight_decay=c.weight_decay,
    epochs=c.epochs,
    steps=c.steps,
    batch_size=c.batch_size,
    persistent=c.persistent,
    schedule=c.schedule,
    rounds=config.rounds,
    augment=c.augment,
    weighting=config.server.weighting,
  )
