"""What a federated method is made of.

A `Method` is a value, like a chain of optax transforms: a description that wrappers extend, and that
`fedjax_syn.engine.build` closes into jitted rounds. Every function named here is pure and is traced;
what a transform needs of the experiment (model, data, hyper-parameters, phase) reaches it as a `Task`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_syn.losses import Objective, single_label
from fedjax_syn.privacy import Mechanism
from fedjax_syn.typing import (
  Array,
  GradFn,
  Hyper,
  LossFn,
  Measured,
  Model,
  Params,
  PRNGKey,
  PyTree,
  Shard,
  Stats,
  Step,
  Variables,
)


class Task(NamedTuple):
  """The experiment as the parts of a method see it, inside a trace."""

  model: Model
  loss: Callable[[Array, Array, Array], Array]  # (logits, y, mask) -> mean loss over the mask
  data: Any  # fedjax_syn.data.federated.FederatedData
  num_clients: int
  num_classes: int
  hyper: Hyper  # traced numbers: a sweep over them compiles once
  first_round: int  # the first round of the static phase that is being traced
  cohort: float = 0.0  # clients in a round, or their expected number
  objective: Objective = single_label  # single- or multi-label: what logits and labels mean
  mesh: jax.sharding.Mesh | None = None  # the run's devices, for work between rounds; None: one
  slots: int = 0  # messages that a round keeps at most, for servers that look at every one
  # For privacy: what the server does must not tell an empty round from another.
  noised: bool = False
  local: LocalTraining | None = (
    None  # how clients train; None if they do not, or where a Task is made by hand
  )
  pull: tuple[Callable[[Hyper], Array], ...] = ()  # the method's, see `Method.pull`


class Visit(NamedTuple):
  """One client in one round: all that it sees."""

  key: PRNGKey
  round: Array  # []
  params: Params  # the global model w^{c-1}
  stats: Stats
  broadcast: dict[str, PyTree]  # by server transform: what it sends, or what is `shared`
  state: dict[str, PyTree]  # this client's rows, by client transform
  shard: Shard


class Message(NamedTuple):
  """What a client sends: a weight and a tree for every part that has something to say."""

  weight: Array  # []
  body: dict[str, PyTree]  # {'params': w_i - w, 'stats': ..., 'scaffold': ...}


class Messages(NamedTuple):
  """The messages of a round; empty clients weigh zero and count for nothing."""

  weight: Array  # [slots]
  weighted: dict[str, PyTree]  # sum_i weight_i body_i, leaves [...]
  present: dict[str, PyTree]  # the sum of the bodies of all clients with a sample, leaves [...]
  body: dict[str, PyTree] | None  # leaves [slots, ...]; only for methods with `every_message`

  def sum(self, name: str) -> PyTree:
    """Sums one part of the messages over the clients that have a sample; leaves [...]."""
    return self.present[name]

  def mean(self, name: str) -> PyTree:
    """Averages one part of the messages by their weights; zeros if all weights are zero; leaves [...]."""
    total = self.weight.sum()
    scale = jnp.where(total > 0, 1 / jnp.where(total > 0, total, 1), 0)
    return jax.tree.map(lambda leaf: scale.astype(leaf.dtype) * leaf, self.weighted[name])


class ClientTransform(NamedTuple):
  """An addition to local training; every field but the name is optional; transforms act in order."""

  name: str
  init: Callable[[Variables, Shard], PyTree] | None = None  # per-client state at round 0
  enrol: Callable[[PRNGKey, Shard], PyTree] | None = None  # every client's message before round 1
  # the global model as this client has it: where local training begins, and `visit.params` from here on
  start: Callable[[Visit, Params], Params] | None = None
  prepare: Callable[[Visit], PyTree] | None = None  # -> ctx, once per visit
  loss: Callable[[PyTree, LossFn], LossFn] | None = None
  grad: Callable[[PyTree, GradFn], GradFn] | None = None
  # (ctx, old, new, grads, the batch that was stepped on) -> new, after the optimizer
  step: Callable[[PyTree, Params, Params, Params, Step], Params] | None = None
  # (ctx, visit, trained model, steps) -> (part of the message or None, state)
  finish: Callable[[PyTree, Visit, Variables, Array], tuple[PyTree, PyTree]] | None = None
  # (ctx, visit, trained model) -> numbers for the log (not sent: a simulation's view), under '<name>/'
  metrics: Callable[[PyTree, Visit, Variables], dict[str, Array | Measured]] | None = None
  seal: Callable[[PRNGKey, dict], dict] | None = None  # last word on the message's body
  # (ctx, visit, trained model) -> what is evaluated as this client's model; None: the trained model
  personal: Callable[[PyTree, Visit, Variables], Variables] | None = None


class LocalTraining(NamedTuple):
  """Local training by gradient steps; `optimizer(learning_rate)` is built inside the trace."""

  optimizer: Callable[[Any], optax.GradientTransformation]
  epochs: int = 1  # exactly one of epochs and steps is non-zero
  steps: int = 0  # local steps, whatever the client's size
  batch_size: int = 32  # the last batch of an epoch may be partial
  persistent: bool = False  # keep each client's optimizer state between its visits
  momentum: float | None = None  # heavy-ball momentum of SGD; None: not SGD
  schedule: Callable[[Array], Array] = lambda round: jnp.ones(
    ()
  )  # factor on hyper['client']['lr'] by round
  # the same by the rounds of the run, if it depends on them; `rounds` is what `schedule` was made for, 0: not known
  schedule_of: Callable[[int], Callable[[Array], Array]] | None = None
  rounds: int = 0
  augment: Callable[[PRNGKey, Array, Array], Array] | None = None  # (key, x, black) -> x


class Client(NamedTuple):
  """A client written directly, for methods that do not train locally; built from the Task."""

  init: Callable[[Variables, Shard], PyTree]
  # -> message, state, metrics [] by name: 'loss', 'finite' and others as '<method>/<name>'
  update: Callable[[Visit], tuple[Message, PyTree, dict]]
  # [clients, classes] samples -> bytes that each client sends, [clients]; None: the message's arrays
  bytes: Callable[[Array], Array] | None = None
  personal: Callable[[Visit], Variables] | None = None  # None: the global model


class ServerTransform(NamedTuple):
  """An addition to the server; every field but the name is optional; transforms act in order."""

  name: str
  # (key, params, enrolled) -> state
  init: Callable[[PRNGKey, Params, PyTree], PyTree] | None = None
  # state -> what goes down under this name
  broadcast: Callable[[PyTree], PyTree] | None = None
  # (key, round, w^{c-1}) -> what every client computes alike from the model and a common seed: no bytes
  shared: Callable[[PRNGKey, Array, Variables], PyTree] | None = None
  # (key, round, own state, State before, new params, messages) -> (new params, own state)
  update: Callable[..., tuple[Params, PyTree]] | None = None
  # (state, round) -> is work between rounds unfinished
  pending: Callable[[PyTree, int], bool] | None = None
  # (key, state, params, stats, seconds) -> (params, state, metrics); outside jit, a resumable chunk
  between: Callable[..., tuple[Params, PyTree, dict]] | None = None
  # state -> the learned set as numpy arrays
  synthetic: Callable[[PyTree], dict | None] | None = None
  # (key, state, stats) -> cosine distances by label, for a figure
  diagnose: Callable[..., dict] | None = None
  # state -> numbers for the log, under '<name>/'
  metrics: Callable[[PyTree], dict[str, Array | Measured]] | None = None


# (key, old params, messages) -> (new params, numbers for the log, as 'abavg/client_accuracy')
Aggregate = Callable[[PRNGKey, Params, Messages], tuple[Params, dict[str, Array]]]


def weighted_mean(key: PRNGKey, old: Params, messages: Messages) -> tuple[Params, dict[str, Array]]:
  """Adds the weighted mean of the clients' differences to the old model; all weights zero keep it.

  Args:
    key: unused.
    old: the global model before the round.
    messages: with a part 'params', the clients' differences.

  Returns:
    The new global model, and nothing for the log. Source: McMahan et al. (2017); DynaFed, Eq. 2 and
    Algorithm 2, line 7.
  """
  del key
  return jax.tree.map(jnp.add, old, messages.mean('params')), {}


PROXIES = ('', 'images', 'labels')  # from the least that a method can need to the most
# What a method can take for granted of the data, and how a refusal puts it.
NEEDS = {
  'one_class': 'one class per sample, and these data have several labels per sample',
  'pixels': 'images, and these data are tokens',
}


class Method(NamedTuple):
  """A federated method as a value; wrappers add to the tuples by `extend`."""

  name: str
  client: LocalTraining | Callable[[Task], Client]
  weighting: str = 'uniform'  # or 'size'
  client_transforms: tuple[Callable[[Task], ClientTransform], ...] = ()
  aggregate: Callable[[Task], Aggregate] | None = None  # None: weighted_mean
  server_transforms: tuple[Callable[[Task], ServerTransform], ...] = ()
  adapt: tuple[Callable[[Model, tuple[int, int, int]], Model], ...] = ()  # (model, image shape)
  phases: tuple[int, ...] = ()  # rounds after which the program changes
  every_message: bool = False  # keep all messages of a round, not only their sums: memory x clients
  sums_only: tuple[str, ...] = ()  # layers after which single messages must not be used
  proxy: str = ''  # the server data that it cannot do without: '', 'images' or 'labels'
  needs: tuple[str, ...] = ()  # of `NEEDS`: what its formulas take for granted
  records: tuple[str, ...] = ()  # layers whose server state records every round from the first
  # The noise that makes it differentially private; a function of the Task where the data decide what it protects.
  mechanism: Mechanism | Callable[[Task], Mechanism] | None = None
  # Hyper -> mu of a term mu/2 ||w - w^t||^2 in the local loss: what a gradient has moved decays, which FedNova counts.
  pull: tuple[Callable[[Hyper], Array], ...] = ()
  conflicts: Mapping[str, str] = {}  # 'a+b', layers that cannot be together -> why, and what works
  # (model, path of a leaf of its parameters) -> does the leaf stay on the clients
  private: tuple[Callable[[Model, tuple], bool], ...] = ()
  hyper: Hyper = {}

  def is_private(self, model: Model, path: tuple) -> bool:
    """Says whether a leaf of the model's parameters stays on the clients: it is neither sent nor counted."""
    return any(private(model, path) for private in self.private)

  def extend(
    self,
    name: str,
    *,
    client: Callable[[Task], ClientTransform] | None = None,
    server: Callable[[Task], ServerTransform] | None = None,
    aggregate: Callable[[Task], Aggregate] | None = None,
    adapt: Callable[[Model, tuple[int, int, int]], Model] | None = None,
    phases: tuple[int, ...] = (),
    every_message: bool = False,
    sums_only: bool = False,
    proxy: str = '',
    needs: tuple[str, ...] = (),
    records: bool = False,
    private: Callable[[Model, tuple], bool] | None = None,
    pull: Callable[[Hyper], Array] | None = None,
    conflicts: Mapping[str, str] | None = None,
    hyper: dict[str, Any] | None = None,
  ) -> Method:
    """Returns this method with one more layer around it.

    Args:
      name: the layer's name; also the key of its state, its messages and its hyper-parameters.
      client: builds a ClientTransform from the Task.
      server: builds a ServerTransform from the Task.
      aggregate: builds what takes the one aggregation slot from the Task.
      adapt: changes the model (an extra head, say), given the shape of an image.
      phases: rounds after which the traced program changes.
      every_message: whether the server looks at single messages, not only at `mean` and `sum`.
      sums_only: whether the layer changes messages so that the server must use their sums alone.
      proxy: the server data that the layer needs: '', 'images' or 'labels' (images with labels).
      needs: what the layer takes for granted, of `NEEDS`; data that are otherwise are refused.
      records: whether its server state records every round from the first on: a run cannot begin with it in the
        middle of another run that has no such record.
      private: (model, path of a leaf of its parameters) -> does it stay on the clients; the layer's `seal`
        must take it out of the messages.
      pull: hyper -> mu, if the layer adds mu/2 ||w - w^t||^2 to the local loss, w^t the model that a visit begins with.
      conflicts: other layers, 'a' or 'a+b', with all of which it means nothing, in any order -> why, and what works.
      hyper: numbers that change no shape, read as `task.hyper[name]`.

    Raises:
      ValueError: if the layer is there already, the aggregation slot is taken, or a client transform
        is put around a client that does not train locally, or the server is to look at single models where there are
        none: clients send data, leave sums only to be used, or keep a part to themselves.
    """
    layers = self.name.split('+')
    if name in layers:
      raise ValueError(f'{name!r} is already part of {self.name!r}: each layer can be used once')
    if aggregate is not None and self.aggregate is not None:
      raise ValueError(f'{name!r} cannot be put around {self.name!r}: both replace the aggregation')
    if client is not None and not isinstance(self.client, LocalTraining):
      raise ValueError(f'{name!r} changes local training, but {self.name!r} does not train locally')
    local, looks = isinstance(self.client, LocalTraining), self.every_message or every_message
    if every_message and not local:
      raise ValueError(f"{name!r} looks at each client's model, but {self.name!r} sends none")
    if looks and local and (self.private or private):
      raise ValueError(
        f"{name!r} and {self.name!r} do not go together: one looks at each client's model, of which the other keeps a"
        ' part on the client'
      )
    conflicts = {**self.conflicts, **{f'{name}+{k}': why for k, why in (conflicts or {}).items()}}
    for together, why in conflicts.items():
      if {*together.split('+')} <= {*layers, name}:
        raise ValueError(f'algorithm={f"{self.name}+{name}"!r}: {why}')
    sums = self.sums_only + ((name,) if sums_only else ())
    if sums and looks:
      other = self.name if sums_only else name
      raise ValueError(
        f"{sums[-1]!r} and {other!r} do not go together: this server looks at each client's model by itself, and"
        f' {sums[-1]!r} leaves only the sum of the updates to be used'
      )
    return self._replace(
      name=name if self.name == 'fedavg' else f'{self.name}+{name}',
      client_transforms=self.client_transforms + ((client,) if client else ()),
      server_transforms=self.server_transforms + ((server,) if server else ()),
      aggregate=aggregate or self.aggregate,
      adapt=self.adapt + ((adapt,) if adapt else ()),
      phases=tuple(sorted({*self.phases, *phases})),
      every_message=self.every_message or every_message,
      sums_only=sums,
      proxy=max(self.proxy, proxy, key=PROXIES.index),
      needs=tuple(sorted({*self.needs, *needs})),
      records=self.records + ((name,) if records else ()),
      private=self.private + ((private,) if private else ()),
      pull=self.pull + ((pull,) if pull else ()),
      conflicts=conflicts,
      hyper={**self.hyper, name: dict(hyper or {})},
    )


def for_rounds(method: Method, rounds: int) -> Method:
  """Gives a method the number of rounds of its run, on which a schedule of its learning rate may depend.

  Args:
    method: as the user wrote it.
    rounds: of the run.

  Returns:
    The method; itself if nothing depends on the rounds.

  Raises:
    ValueError: if it was made for another number of rounds.
  """
  local = method.client
  if not isinstance(local, LocalTraining) or local.schedule_of is None:
    return method
  if local.rounds not in (0, rounds):
    raise ValueError(
      f'rounds={rounds}: the schedule of {method.name!r} was made for rounds={local.rounds}; leave it out there, or'
      ' give the same number'
    )
  return method._replace(client=local._replace(schedule=local.schedule_of(rounds), rounds=rounds))


class State(NamedTuple):
  """All that a checkpoint holds; keys are recomputed from the seed."""

  round: Array  # [], rounds done
  params: Params
  stats: Stats
  server: dict[str, PyTree]  # by server transform
  clients: dict[str, PyTree]  # by client transform, leaves [clients, ...]
