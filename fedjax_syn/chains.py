"""A method is a chain of layers, from the inside out; combinations are checked here."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

import jax
import jax.numpy as jnp

from fedjax_syn.core.contexts import Run, Task
from fedjax_syn.core.privacy import Mechanism
from fedjax_syn.core.types import KeyPath, Model
from fedjax_syn.layer import LOCAL_HOOKS, SERVER_HOOKS, Layer, has, overrides

L = TypeVar('L', bound=Layer)

# What `Layer.provides`, `requires` and `conflicts` may name, and what an error says of it.
TRAITS = {
  'local training': 'clients that train locally',
  'sgd': 'SGD with momentum below 1 (client.optimizer=sgd)',
  'momentum': 'SGD with momentum',
  'persistent momentum': 'momentum that clients keep between rounds',
  'one class': 'one class per sample, and these data have several labels per sample',
  'pixels': 'images',
  'real values': 'rows of real values (images, a table or sequences)',
  'individual updates': "looks at each client's message by itself",
  'aggregate only': 'leaves only the sum of the updates to be used',
  'full history': 'records every round from the first one on',
  'private parameters': 'keeps a part of the model on the clients',
  'proximal term': 'adds a proximal term to the local loss',
}
DIRECT_HOOKS = ('client_init', 'setup')  # local hooks that a layer with `client_update` may have
UNCOMPOSED = ('one class', 'pixels', 'real values', 'full history')  # no other layer provides them
OF_LAYERS = ('aggregate only', 'private parameters', 'proximal term')  # what a layer does
SERVER_DATA = ('', 'images', 'labels')  # from the least that a layer can need to the most


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, repr=False)
class Chain:
  """A method: layers from the inside out, FedAvg first.

  A chain is a pytree and an argument of compiled programs.
  """

  layers: tuple[Layer, ...]

  def __repr__(self) -> str:
    return f'chain({", ".join(map(repr, self.layers))})'

  def __iter__(self) -> Iterator[Layer]:
    return iter(self.layers)

  def __len__(self) -> int:
    return len(self.layers)

  def __getitem__(self, kind: type[L]) -> L:
    """Returns the layer of a class; raises KeyError if there is none."""
    for layer in self.layers:
      if isinstance(layer, kind):
        return layer
    raise KeyError(kind.__name__)

  def __contains__(self, kind: type[Layer]) -> bool:
    return any(isinstance(layer, kind) for layer in self.layers)

  @property
  def name(self) -> str:
    """The layers' names from the inside out, 'scaffold+dynafed'; 'fedavg' by itself."""
    return '+'.join(layer.name for layer in self.layers[1:]) or self.layers[0].name

  @property
  def phases(self) -> tuple[int, ...]:
    """Rounds after which the program changes."""
    return tuple(sorted({phase for layer in self.layers for phase in layer.phases()}))

  @property
  def stops(self) -> tuple[int, ...]:
    """Rounds after which the program changes or the server works."""
    return tuple(sorted({*self.phases, *(p for layer in self.layers for p in layer.pauses())}))

  def first_round(self, done: int) -> int:
    """Returns the first round of the static phase that comes after `done` rounds."""
    return max((phase + 1 for phase in self.phases if phase <= done), default=1)

  def having(self, hook: str, task: Task) -> list[Layer]:
    """Returns the layers that have a hook in the task's phase."""
    return [layer for layer in self.layers if has(layer, hook, task)]

  @property
  def on_server(self) -> list[Layer]:
    """Layers that act on the server in some phase; their order numbers their random keys."""
    first_rounds = (1, *(phase + 1 for phase in self.phases))
    # All that a condition of `when` reads.
    tasks = [Task(self, None, first_round=first) for first in first_rounds]  # type: ignore[arg-type]
    acts = lambda layer: any(has(layer, hook, task) for hook in SERVER_HOOKS for task in tasks)
    return [layer for layer in self.layers if acts(layer)]

  def numbered(self, hook: str, task: Task) -> list[tuple[int, Layer]]:
    """Returns the layers that have a hook, each with its number in `on_server`."""
    return [(i, layer) for i, layer in enumerate(self.on_server) if has(layer, hook, task)]

  @property
  def local(self) -> Any:
    """The settings of local training, FedAvg's as the other layers' `local` changed them."""
    return functools.reduce(lambda local, layer: layer.local(local), self.layers, self.layers[0])

  @property
  def schedules(self) -> dict[str, str]:
    """The schedules over rounds, by key: fields of layers that are called so."""
    layers = (self.local, *self.layers[1:]) if self.trains_locally else self.layers[1:]
    return {
      layer._key('schedule'): layer.schedule for layer in layers if hasattr(layer, 'schedule')
    }

  @property
  def trains_locally(self) -> bool:
    """Whether clients train locally; otherwise one layer has `client_update`."""
    return self.client_update is None

  @property
  def client_update(self) -> Layer | None:
    """The layer that replaces local training, if there is one."""
    return next((layer for layer in self.layers if overrides(layer, 'client_update')), None)

  @property
  def requires(self) -> frozenset[str]:
    """What the layers require of each other and of the data."""
    return frozenset().union(*(layer.requires() for layer in self.layers))

  @property
  def server_data(self) -> str:
    """The server data that the layers need: '', 'images' or 'labels'."""
    return max((layer.server_data() for layer in self.layers), key=SERVER_DATA.index)

  @property
  def recording(self) -> tuple[str, ...]:
    """Layers whose server state needs every round: they cannot begin in the middle of a run."""
    return tuple(layer.name for layer in self.layers if 'full history' in layer.requires())

  def is_private(self, model: Model, path: KeyPath) -> bool:
    """Returns whether a leaf of the parameters stays on the clients: it is not sent or counted."""
    return any(layer.private(model, path) for layer in self.layers)

  def adapt(self, model: Model, shape: tuple[int, ...]) -> Model:
    """Returns the network as the layers change it; `shape` is that of a row."""
    return functools.reduce(lambda model, layer: layer.model(model, shape), self.layers, model)

  def mechanism(self, task: Task | None) -> Mechanism | None:
    """Returns the noise that epsilon accounts for; `task` is None before the data are read."""
    noise = (layer.privacy(task) for layer in reversed(self.layers))
    return next((mechanism for mechanism in noise if mechanism is not None), None)

  def resolve(self, run: Run) -> 'Chain':
    """Returns the chain with what follows from the run filled in.

    Raises:
      ValueError: if a layer does not fit the run, naming the key, the value and what would work.
    """
    return Chain(tuple(layer.resolve(run) for layer in self.layers))

  def replace(self, **fields: Mapping[str, Any]) -> 'Chain':
    """Returns the chain with other values: `chain.replace(fedprox={'mu': 0.1})`.

    Raises:
      ValueError: if there is no such layer, or a value is not allowed.
    """
    names = [layer.name for layer in self.layers]
    for name in fields:
      if name not in names:
        raise ValueError(f'{name!r} is no layer of {self.name!r}: {", ".join(names)}')
    replace: Callable[..., Layer] = dataclasses.replace
    changed = Chain(tuple(replace(layer, **fields.get(layer.name, {})) for layer in self.layers))
    check(changed)
    return changed

  def traced(self) -> 'Chain':
    """Returns the chain with arrays of one type: 0.1 and np.float32(0.1) are one program."""
    return jax.tree.map(lambda value: jnp.asarray(value, jnp.result_type(float)), self)


def check(chain: Chain) -> None:
  """Raises ValueError for layers that cannot be combined."""
  names = [layer.name for layer in chain.layers]

  def fail(text: str) -> NoReturn:
    raise ValueError(f'algorithm={chain.name!r}: {text}')

  rules = [layer.name for layer in chain.layers if overrides(layer, 'aggregate')]
  if len(rules) > 1 and len({*names}) == len(names):
    fail(f'{rules[1]!r} cannot come after {rules[0]!r}: both replace the aggregation')
  for position, layer in enumerate(chain.layers):
    inner, others = chain.layers[:position], [o for o in chain.layers if o is not layer]
    inside = '+'.join(n for n in names[1:position]) or names[0]
    if names.count(layer.name) > 1:
      fail(f'{layer.name!r} is given twice; each layer can be used once')
    trains = all(not overrides(o, 'client_update') for o in inner)
    if overrides(layer, 'client_update') and len(inner) > 1:
      fail(f'{layer.name!r} cannot come after {inside!r}: its clients send data and train no model')
    if overrides(layer, 'client_update') and (
      idle := [hook for hook in LOCAL_HOOKS if hook not in DIRECT_HOOKS and overrides(layer, hook)]
    ):
      fail(
        f'{layer.name!r} replaces local training by client_update, so that its {idle[0]} is not'
        ' called'
      )
    if position and overrides(layer, *LOCAL_HOOKS) and not trains:
      fail(f'{layer.name!r} changes local training, but {inside!r} does not train locally')
    for trait in sorted(layer.requires()):
      _check_required(layer, trait, inner, chain, fail)
    present = {o.name for o in others} | set().union(*(traits(o) for o in others))
    present |= {f'{key} inside' for o in inner for key in {o.name} | traits(o)}
    for key, reason in layer.conflicts().items():
      if {*key.split('+')} <= present:
        fail(reason or f'{layer.name!r} and {key!r} do not go together')
    for key, reason in layer.inside_of().items():
      for name in (o.name for o in inner if key in {o.name} | traits(o)):
        fail(
          f'{layer.name!r} cannot come after {name!r}{reason and ", " + reason};'
          f' use {layer.name}+{name}'
        )
    layer.check()


def _check_required(
  layer: Layer,
  trait: str,
  inner: Sequence[Layer],
  chain: Chain,
  fail: Callable[[str], NoReturn],
) -> None:
  if trait == 'individual updates':
    sender = chain.client_update
    if sender is not None and not overrides(layer, 'client_update'):
      fail(f"{layer.name!r} looks at each client's model, but {sender.name!r} sends none")
    for other in chain.layers:
      for barred in {'aggregate only', 'private parameters'} & traits(other):
        fail(
          f"{layer.name!r} and {other.name!r} do not go together: one looks at each client's"
          f' message by itself, and the other {TRAITS[barred]}'
        )
  elif trait not in TRAITS:
    fail(f'{layer.name!r} requires {trait!r}, which is none of {", ".join(TRAITS)}')
  elif trait not in UNCOMPOSED and not any(trait in traits(o) for o in inner):
    what = f'a layer before it that {TRAITS[trait]}' if trait in OF_LAYERS else TRAITS[trait]
    fail(f'{layer.name!r} needs {what}')


def traits(layer: Layer) -> frozenset[str]:
  """Returns what a layer provides, by what it says and by the hooks that it has."""
  own = {'private parameters'} if overrides(layer, 'private') else set()
  own |= {'proximal term'} if overrides(layer, 'proximal') else set()
  return layer.provides() | own
