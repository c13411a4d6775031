"""What hooks see: the task, a client in a round, a round on the server; and what clients send.

Rounds count from 1. w^c is the global model after round c, w^0 the initial one. Round c sends
w^{c-1} to the clients; papers write x, w^t or theta^t for it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp

from fedjax_syn.core.clients import Group
from fedjax_syn.core.objectives import Objective, single_label
from fedjax_syn.core.privacy import Sampling
from fedjax_syn.core.schedules import schedule
from fedjax_syn.core.types import Array, KeyPath, Model, Params, PRNGKey, PyTree, Shard, Stats

if TYPE_CHECKING:
  from fedjax_syn.algorithms.fedavg import FedAvg
  from fedjax_syn.chains import Chain


class Run(NamedTuple):
  """What `Layer.resolve` knows of a run before its data are read."""

  rounds: int
  sampling: Sampling  # clients, participation, sampler, seeds
  algorithms: tuple[str, ...]  # the method and those trained beside it, as 'scaffold+dynafed'

  def count(self, name: str) -> int:
    """Returns how many of the run's methods have a layer."""
    return sum(name in algorithm.split('+') for algorithm in self.algorithms)


class Task(NamedTuple):
  """The experiment as layers see it, inside a trace."""

  chain: Chain  # its float fields are tracers
  model: Model
  objective: Objective = single_label  # or multi_label: what logits and labels mean
  data: Any = None  # fedjax_syn.data.federated.FederatedData
  num_clients: int = 0
  num_classes: int = 0
  first_round: int = 1  # the first round of the phase that is traced; see `Layer.phases`
  cohort_size: int = 0  # sampled clients in a round, at most
  expected_cohort: float = 0.0  # their expected number
  rounds: int = 0  # of the whole run, given only if a schedule needs it; else 0
  mesh: jax.sharding.Mesh | None = None  # of the devices that share the server's work; None: one
  group: Group | None = None  # of the devices that run the same clients; None: one
  # Whether noise protects the clients: the server must then treat a round without clients like any
  # other.
  noised: bool = False
  platform: str = ''  # for which programs are compiled: 'cpu', 'gpu' or 'tpu'; '': JAX's default

  def loss(self, logits: Array, y: Array, mask: Array) -> Array:
    """Returns the mean loss []: logits [batch, classes], y [batch], mask [batch]."""
    return self.objective.loss(logits, y, mask)

  @property
  def local(self) -> FedAvg:
    """Local training as the chain's layers have changed it: rate, batch size, epochs."""
    local = self.chain.local
    if local.batch_size:
      return local
    return dataclasses.replace(local, batch_size=self.data.positions.shape[0])  # of all clients

  def learning_rate(self, round: Array | int) -> Array:
    """Returns eta, the clients' learning rate in a round, []."""
    return self.local.lr * schedule(self.local.schedule, self.rounds)(round)

  @property
  def backend(self) -> str:
    """Returns 'cpu', 'gpu' or 'tpu': what the programs are compiled for."""
    return self.platform or jax.default_backend()

  def shapes_of(self, f: Callable[..., PyTree]) -> PyTree:
    """Returns the shapes and types of f(variables, x), x one normalised sample [1, ...]."""
    variables = jax.eval_shape(self.model.init, jax.random.key(0))
    x = jax.ShapeDtypeStruct((1, *self.data.x.shape[1:]), self.data.mean.dtype)
    return jax.eval_shape(f, variables, x)

  def is_private(self, path: KeyPath) -> bool:
    """Returns whether a leaf of the parameters stays on the clients."""
    return self.chain.is_private(self.model, path)


class ClientContext(NamedTuple):
  """One client in one round, as one layer sees it.

  Inside the engine `broadcast`, `state` and `prepared` are dicts by layer, and `task` is None.
  """

  key: PRNGKey  # of the client in this round
  round: Array  # [], c
  params: Params  # the global model w^{c-1}, as `receive` left it
  stats: Stats  # its running statistics
  shard: Shard  # where this client's samples lie
  broadcast: PyTree = None  # what this layer's `broadcast` or `common` returned
  state: PyTree = None  # this layer's state of this client
  prepared: PyTree = None  # what this layer's `prepare` returned
  task: Task = None  # type: ignore[assignment]  # None in the engine, before a layer is known


class Message(NamedTuple):
  """What a client sends."""

  weight: Array  # []
  # {'params': w_i - w^{c-1}, 'stats': ..., '<layer>': what its `finish` returned}, w_i the trained
  # model
  payload: dict[str, PyTree]


class Messages(NamedTuple):
  """The messages of a round; a client without samples has weight zero and is in no sum."""

  weight: Array  # [cohort]
  weighted_sum: dict[str, PyTree]  # sum_i weight_i payload_i, leaves [...]
  unweighted_sum: dict[str, PyTree]  # over all clients with a sample, leaves [...]
  # leaves [cohort, ...]; only where a layer requires individual updates
  payload: dict[str, PyTree] | None

  def sum(self, name: str) -> PyTree:
    """Sums one part of the messages over the clients that have a sample; leaves [...]."""
    return _part(self.unweighted_sum, name)

  def mean(self, name: str) -> PyTree:
    """Averages one part of the messages by weight, leaves [...]; zeros if all weights are zero."""
    total = self.weight.sum()
    scale = jnp.where(total > 0, 1 / jnp.where(total > 0, total, 1), 0)
    exact = lambda leaf: leaf if jnp.issubdtype(leaf.dtype, jnp.inexact) else leaf.astype(float)
    return jax.tree.map(
      lambda leaf: scale.astype(leaf.dtype) * leaf,
      jax.tree.map(exact, _part(self.weighted_sum, name)),
    )


def _part(payload: dict[str, PyTree], name: str) -> PyTree:
  """Returns one part of messages; raises ValueError if there is no such part."""
  try:
    return payload[name]
  except KeyError:
    sent = ', '.join(map(repr, payload))
    raise ValueError(f'messages have no part {name!r}: the clients sent {sent}') from None


class Round(NamedTuple):
  """One round on the server, as one layer sees it."""

  task: Task
  key: PRNGKey
  round: Array  # [], c
  params: Params  # w^{c-1}, which the clients received
  stats: Stats
  messages: Messages
  state: PyTree = None  # this layer's server state


class State(NamedTuple):
  """All that a checkpoint holds; keys are recomputed from the seed."""

  round: Array  # [], rounds done
  params: Params
  stats: Stats
  server: dict[str, PyTree]  # by layer
  clients: dict[str, PyTree]  # by layer, leaves [clients, ...]
