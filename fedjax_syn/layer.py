"""A layer is one part of a method: a frozen dataclass and pytree with hooks as methods.

A method is a chain of layers, `fedjax_syn.chain`. Hooks are pure and are traced, unless a docstring
says otherwise. They run in this order, each for the layers of the chain in turn:

- Before round 1: `setup` for every client, `server_init`, `client_init`.
- In a round, on the server: `broadcast` and `common`.
- On each sampled client: `receive`, `prepare`; in every local step `loss`, `grad`, then the
  optimizer, then `step`;
  after the last step `finish`, `postprocess_update`, `client_metrics`. `client_update` replaces all
  of these.
- On the server: `aggregate`, `server_update`, `server_metrics`.
- After a round: `server_work`, as often as `pending` is true.

A program contains the hooks that a layer overrides and no others. So the default of `broadcast`
sends nothing: a layer that sends its server state writes `def broadcast(self, state): return
state`.
"""

import dataclasses
import functools
import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar, dataclass_transform

import jax
import numpy as np

from fedjax_syn.core import layer_classes
from fedjax_syn.core.fields import check_range, coerce, field
from fedjax_syn.core.types import (
  Array,
  GradFn,
  KeyPath,
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

if TYPE_CHECKING:
  from fedjax_syn.core.contexts import ClientContext, Message, Round, Run, Task
  from fedjax_syn.core.privacy import Mechanism

__all__ = ['Layer', 'field', 'has', 'overrides', 'when']

Hook = TypeVar('Hook', bound=Callable[..., Any])
Numbers = dict[str, Array | Measured]  # scalars for the log, by name


class Phase(NamedTuple):
  """The part of a `Task` that a condition of `when` may read."""

  first_round: int

  def __getattr__(self, name: str) -> Any:
    raise AttributeError(
      f'fs.when: a condition may use static fields and task.first_round, and not task.{name}'
    )


def when(condition: Callable[[Any, Any], bool]) -> Callable[[Hook], Hook]:
  """Makes a hook exist only in a phase of a run or for an option.

  Args:
    condition: (self, task) -> bool, from static fields and `task.first_round`.

  Returns:
    A decorator for hooks that run in a round. A class with a condition on any other hook raises
    TypeError.
  """

  def mark(hook: Hook) -> Hook:
    @functools.wraps(hook)  # a new function, because `hook` may be a base class's
    def conditional(*args: Any) -> Any:
      return hook(*args)

    conditional.when = condition  # type: ignore[attr-defined]
    return conditional  # type: ignore[return-value]

  return mark


@dataclass_transform(field_specifiers=(field,), kw_only_default=True, frozen_default=True)
class Layer:
  """Base class of all layers: override the hooks of the part of a round that the method changes.

  A subclass becomes a frozen dataclass and a pytree. Fields of type float are its leaves, unless
  declared static: inside a program they are tracers, so that another value needs no new
  compilation. All other fields are static. `name`, the class name in lower case, is the key of the
  layer's config block, state, messages and logged numbers.
  """

  name: ClassVar[str] = ''
  # Backends where devices that no client needs share a client's work (`core.clients.in_group`).
  shares_on: ClassVar[tuple[str, ...]] = ()
  # Whether it changes no model while its server state began as zeros (`engine.round_programs`).
  idles: ClassVar[bool] = False

  def __init_subclass__(cls, **options: Any):
    super().__init_subclass__(**options)
    dataclasses.dataclass(frozen=True, kw_only=True, repr=False)(cls)
    cls.name = cls.__name__.lower()
    layer_classes.check(cls, {hook: vars(Layer)[hook] for hook in HOOKS})
    layer_classes.register(cls)

  def __post_init__(self) -> None:
    cls: Any = type(self)
    kinds, traced = layer_classes.kinds(cls), layer_classes.traced_fields(cls)
    for f in dataclasses.fields(cls):
      value, key = getattr(self, f.name), self._key(f.name)
      if f.name in traced and layer_classes.is_abstract(value):
        continue
      number = isinstance(value, jax.Array | np.ndarray | np.generic) and value.ndim == 0
      value = coerce(key, value.item() if number else value, kinds[f.name])
      check_range(key, value, f.metadata)
      object.__setattr__(self, f.name, value)

  def __repr__(self) -> str:
    changed = (f'{name}={value!r}' for name, value in self._changed().items())
    return f'{type(self).__name__}({", ".join(changed)})'

  def _changed(self) -> dict[str, Any]:
    """Returns the fields that differ from their defaults."""
    default = lambda value, f: type(value) is type(f.default) and value == f.default
    values = ((f, getattr(self, f.name)) for f in dataclasses.fields(self))  # type: ignore[arg-type]
    return {f.name: value for f, value in values if not default(value, f)}

  @classmethod
  def _key(cls, field_name: str) -> str:
    """Returns a field's key in a config."""
    return f'{cls.name}.{field_name}'

  # -- Declarations: read when a chain is built.

  def check(self) -> None:
    """Raises ValueError for fields that contradict each other."""

  def phases(self) -> tuple[int, ...]:
    """Returns the rounds after which the program, and `task.first_round`, change."""
    return ()

  def pauses(self) -> tuple[int, ...]:
    """Returns the rounds after which the server works (`pending`); the program stays the same."""
    return ()

  def provides(self) -> frozenset[str]:
    """Returns the traits of `fedjax_syn.chains.TRAITS` that the layer has."""
    return frozenset()

  def requires(self) -> frozenset[str]:
    """Returns the traits that the layers before this one, or the data, must have."""
    return frozenset()

  def conflicts(self) -> Mapping[str, str]:
    """Returns what this layer cannot be combined with.

    A key is a layer's name or a trait; 'a+b' means both together, 'a inside' a layer a that is
    earlier in the chain. A value says why, and what works instead.
    """
    return {}

  def inside_of(self) -> Mapping[str, str]:
    """Returns layers, by name or trait, that must come later in the chain, and why."""
    return {}

  def server_data(self) -> str:
    """Returns the server data that the layer needs: '', 'images' or 'labels' (with images)."""
    return ''

  def proximal(self) -> Array | float:
    """Returns mu of a term mu/2 ||w - w^t||^2 that the layer adds to the local loss; 0 for none."""
    return 0.0

  # -- What depends on the run.

  def resolve(self, run: 'Run', /) -> 'Layer':
    """Returns the layer with fields that follow from the run; may raise ValueError."""
    return self

  def privacy(self, task: 'Task | None', /) -> 'Mechanism | None':
    """Returns the mechanism whose epsilon is stated, or None; no `task` before data are read."""

  # -- Adaptations, before anything is traced.

  def model(self, model: Model, shape: tuple[int, ...], /) -> Model:
    """Returns the network with the layer's changes; `shape` is that of a row.

    Equal arguments must give the same Model (`functools.cache`), since compiled programs are looked
    up by it.
    """
    return model

  def local(self, local: Any, /) -> Any:
    """Returns the settings of local training, a FedAvg, with the layer's changes."""
    return local

  def private(self, model: Model, path: KeyPath, /) -> bool:
    """Returns whether a leaf of the parameters stays on the clients.

    `postprocess_update` must then send zeros for it.
    """
    return False

  # -- Clients.

  def client_init(self, task: 'Task', initial: Variables, shard: Shard, /) -> PyTree:
    """Returns this layer's per-client state at round 0."""

  def setup(self, task: 'Task', key: PRNGKey, shard: Shard, /) -> PyTree:
    """Returns what a client sends before round 1."""

  def receive(self, client: 'ClientContext', params: Params, /) -> Params:
    """Returns the global model as a client starts from it; `client.params` from here on."""
    return params

  def prepare(self, client: 'ClientContext', /) -> PyTree:
    """Returns what is computed once, before the local steps; `client.prepared` from here on."""

  def loss(
    self, client: 'ClientContext', loss_fn: LossFn, w: Params, step: Step, /
  ) -> tuple[Array, Any]:
    """Returns the local loss and the Output; `loss_fn(w, step)` is without this layer."""
    return loss_fn(w, step)

  def grad(
    self, client: 'ClientContext', grad_fn: GradFn, w: Params, step: Step, /
  ) -> tuple[Any, Params]:
    """Returns ((loss, Output), gradient); `grad_fn(w, step)` is the gradient without this layer."""
    return grad_fn(w, step)

  def step(
    self, client: 'ClientContext', old: Params, new: Params, grads: Params, step: Step, /
  ) -> Params:
    """Returns the parameters after a local step, `new` being what the optimizer made of `old`."""
    return new

  def finish(
    self, client: 'ClientContext', trained: Variables, steps: Array, /
  ) -> tuple[PyTree, PyTree]:
    """Returns this layer's part of the message (None for nothing) and its new per-client state."""
    return None, None

  def postprocess_update(
    self, client: 'ClientContext', payload: dict[str, PyTree], /
  ) -> dict[str, PyTree]:
    """Returns the payload as it is sent: clipped, for example."""
    return payload

  def client_metrics(self, client: 'ClientContext', trained: Variables, /) -> Numbers:
    """Returns numbers for the log, which are not sent."""
    return {}

  def personal(self, client: 'ClientContext', trained: Variables, /) -> Variables:
    """Returns what is evaluated as the client's own model."""
    return trained

  def client_update(self, client: 'ClientContext', /) -> 'tuple[Message, PyTree, Numbers]':
    """Replaces local training: returns message, new per-client state (or None) and numbers.

    'loss' and 'finite' must be among the numbers. The hooks of local training are not called;
    `client_init` and `setup` are.
    """
    raise NotImplementedError

  def message_bytes(self, task: 'Task', class_counts: np.ndarray, /) -> np.ndarray:
    """Returns bytes by client where shapes do not tell; class_counts [clients, classes]."""
    raise NotImplementedError

  # -- Server.

  def server_init(self, task: 'Task', key: PRNGKey, params: Params, messages: PyTree, /) -> PyTree:
    """Returns the server state at round 0; `messages` of `setup`, leaves [clients, ...]."""

  def broadcast(self, state: PyTree, /) -> PyTree:
    """Returns what the server sends beside the model: `client.broadcast` of the clients."""
    return state

  def common(self, task: 'Task', key: PRNGKey, round: Array, w: Variables, /) -> PyTree:
    """Returns what all clients compute alike: `client.broadcast`, which costs no bytes."""

  def aggregate(self, round: 'Round', /) -> tuple[Params, Numbers]:
    """Replaces the mean: returns the new global model and numbers for the log."""
    raise NotImplementedError

  def server_update(self, round: 'Round', new: Params, /) -> tuple[Params, PyTree]:
    """Returns the global model after this layer's step, and this layer's new state."""
    return new, round.state

  def server_metrics(self, state: PyTree, /) -> Numbers:
    """Returns numbers for the log from this layer's server state."""
    return {}

  def pending(self, state: PyTree, round: int, /) -> bool:
    """Returns whether work between rounds is unfinished; not traced."""
    return False

  def server_work(
    self, task: 'Task', key: PRNGKey, state: PyTree, w: Variables, seconds: float, /
  ) -> tuple[Params, PyTree, dict[str, Any]]:
    """Works for about `seconds`; returns global model, new state and numbers; not traced."""
    raise NotImplementedError

  def server_programs(
    self, task: 'Task', key: PRNGKey, state: PyTree, w: Variables, /
  ) -> dict[str, Callable[[], jax.stages.Lowered]]:
    """Returns what lowers the programs of `server_work`, by name, from shapes; not traced."""
    return {}

  def artifacts(self, task: 'Task', state: PyTree, /) -> dict[str, Any] | None:
    """Returns the learned set as numpy arrays, None before there is one; not traced."""

  def evaluate(self, task: 'Task', key: PRNGKey, state: PyTree, stats: Stats, /) -> dict[str, Any]:
    """Returns a diagnosis for a figure: cosine distances by label; not traced."""
    return {}


HOOKS = frozenset(
  name
  for name, value in vars(Layer).items()
  if isinstance(value, types.FunctionType) and not name.startswith('_')
)
# Hooks of a layer that changes local training, and of one that acts on the server.
LOCAL_HOOKS = (
  *('client_init', 'setup', 'receive', 'prepare', 'loss', 'grad', 'step', 'finish'),
  *('postprocess_update', 'client_metrics', 'personal'),
)
SERVER_HOOKS = (
  *('server_init', 'broadcast', 'common', 'server_update', 'server_metrics'),
  *('pending', 'server_work', 'server_programs', 'artifacts', 'evaluate'),
)


def overrides(layer: Layer, *hooks: str) -> bool:
  """Returns whether a layer has one of these hooks, whatever the phase."""
  return any(getattr(type(layer), hook) is not getattr(Layer, hook) for hook in hooks)


def has(layer: Layer, hook: str, task: 'Task') -> bool:
  """Returns whether a layer has a hook in the task's phase and for its own options."""
  condition = getattr(getattr(type(layer), hook), 'when', None)
  if not overrides(layer, hook):
    return False
  return condition is None or bool(condition(layer, Phase(task.first_round)))
