"""The fields of a config that every method shares, and what a value may be.

Each algorithm's file adds a block of its own, in the same way.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import ml_collections

from fedjax_syn.client.settings import Averaging, LocalTraining
from fedjax_syn.config import method_list
from fedjax_syn.core.fields import field
from fedjax_syn.data.settings import Data

METHODS = ('algorithm', 'compare')  # fields that name methods: one, and any number


@dataclasses.dataclass(frozen=True, kw_only=True)
class Client(LocalTraining):
  """Local training, and which clients take part."""

  participation: float = field(0.4, 'share of the clients in a round, 1 for all', above=0, high=1)
  sampler: str = field(
    'fixed', "draw of the clients: 'fixed', 'poisson', module:function or FILE.py:function"
  )


@dataclasses.dataclass(frozen=True)
class Model:
  """The network."""

  name: str = field(
    'convnet',
    'network (--list=models), or module:function, FILE.py:function, or :Class of Flax modules',
  )
  width: int = field(0, "channels or hidden units; 0: the model's own default", low=0, high=10**5)
  depth: int = field(0, "blocks or hidden layers; 0: the model's own default", low=0, high=1000)
  norm: str = field('group', "'group' (per channel in the ConvNet), 'layer', 'batch' or 'none'")
  pooling: str = field('avg', "'avg', 'max' or 'none', of the ConvNet")
  init: str = field(
    'torch',
    "initialisation of the weights, 'torch', 'flax', or 'torchvision' (its ResNets' convolutions)",
  )
  weights: str = field(
    '',
    'weights to begin from, a file .safetensors or .npz; a head of another size is drawn anew',
    added=True,
  )
  conv: str = field(
    'auto', "form of the convolutions: 'xla', 'patches', 'chwn'; 'auto': the fastest"
  )
  dropout: float = field(
    0.0,
    'rate of the values that hidden layers drop in local training; of mlp, convnet1d and own'
    ' modules with such a field',
    low=0,
    high=0.99,
    static=True,
    added=True,
  )
  activations: str = field(
    'float32',
    "type of a network's activations; 'bfloat16' (half the bytes) with precision=bfloat16",
    choices=('float32', 'bfloat16'),
    added=True,
  )


@dataclasses.dataclass(frozen=True)
class Layout:
  """How clients and seeds are placed on devices."""

  lanes: int = field(
    0, 'clients in one vmapped block; 0: from the measured table', low=0, high=10**6
  )
  form: str = field(
    '', "'blocks' or 'loop'; '' from the measured table", choices=('', 'blocks', 'loop')
  )
  devices: int = field(0, 'devices to use; 0: all (on a CPU one per core)', low=0, high=10**6)
  seeds: int = field(1, 'seeds of a run trained side by side, under vmap', low=1, high=10_000)
  client_state_bytes: int = field(
    0,
    'bytes that per-client state may take on a device; if it is larger it stays in host memory,'
    " and a round gets its clients' rows; 0: no limit",
    low=0,
    high=2**60,
    identity=False,
  )


@dataclasses.dataclass(frozen=True)
class Resolved:
  """A checked config; `blocks` holds the algorithms' own dataclasses by name."""

  algorithm: str = field(
    'dynafed',
    "method (--list=algorithms, or your own: FILE.py:Class), or several joined inside out by '+'",
  )
  compare: str = field(
    '',
    "methods to train first, for the same figure and table: 'fedavg,scaffold'; with settings of"
    " their own: 'fedavg,scaffold(client.lr=0.05)'; '': none",
  )
  rounds: int = field(200, 'rounds of communication, 1..rounds', low=1, high=2**31 - 1)
  seeds: tuple[int, ...] = field(
    (0,),
    'seeds, trained one after the other (or side by side: layout.seeds)',
    low=0,
    high=2**31 - 1,
  )
  eval_every: int = field(
    1, 'rounds between evaluations; the last five always are', low=1, high=2**31 - 1
  )
  personal_every: int = field(
    0,
    "rounds between evaluations of the clients' own models, a multiple of eval_every; 0: never",
    low=0,
    high=2**31 - 1,
  )
  checkpoint_every: int = field(
    10,
    'rounds between checkpoints, fewer if these would take more than a tenth of the time; also'
    ' every 30 s, at ends of phases and at the end',
    low=1,
    high=2**31 - 1,
    identity=False,
  )
  keep_checkpoints: str = field(
    'last',
    "checkpoints of a finished seed that stay: the 'last' one, or also those at ends of 'phases',"
    ' from which another run may begin (start_from)',
    choices=('last', 'phases'),
    identity=False,
  )
  patience: int = field(
    0,
    'evaluations without a better accuracy on held-out rows after which a seed ends; 0: never',
    low=0,
    high=2**31 - 1,
    added=True,
  )
  keep_best: bool = field(
    False,
    'keep the model with the best accuracy on held-out rows, in W/best; patience keeps it too',
    identity=False,
  )
  targets: tuple[float, ...] = field((), 'accuracies for rounds_to_accuracy', above=0, high=1)
  start_from: str = field(
    '', "a checkpoint of another run to begin from, W/checkpoints/50; '': none"
  )
  precision: str = field(
    'float32', 'precision of the matrix units', choices=('float32', 'tensorfloat32', 'bfloat16')
  )
  metrics: tuple[str, ...] = field(
    (),
    'metrics of your own, module:function or FILE.py:function, of (y, logits), in every evaluation',
    identity=False,
  )
  trackers: tuple[str, ...] = field(
    (),
    "trackers that get the metrics too: 'wandb', 'mlflow', or both; TensorBoard always does",
    choices=('wandb', 'mlflow'),
    identity=False,
  )
  outside: tuple[str, ...] = field(
    (),
    'filled in automatically: your own layers in `algorithm` and `compare`, module:Class or'
    ' FILE.py:Class, so that the config has their blocks',
    identity=False,
  )
  data: Data = Data()
  client: Client = Client()
  server: Averaging = Averaging()
  model: Model = Model()
  layout: Layout = Layout()
  blocks: Mapping[str, Any] = dataclasses.field(default_factory=dict)

  def __getattr__(self, name: str) -> Any:
    """Returns an algorithm's block, so that `config.dynafed.length` reads like the other fields."""
    try:
      return self.__dict__['blocks'][name]
    except KeyError:
      raise AttributeError(f'no block {name!r}') from None

  @property
  def words(self) -> tuple[str, ...]:
    """The methods of the run, as in `algorithm` and `compare`."""
    return self.algorithm, *method_list.words_of('compare', self.compare)

  @property
  def parts(self) -> tuple[str, ...]:
    """The layers in use, each once."""
    return tuple(dict.fromkeys(part for word in self.words for part in word.split('+')))


SECTIONS = {'data': Data, 'client': Client, 'server': Averaging, 'model': Model, 'layout': Layout}


def plain(value: Any) -> Any:
  """Returns a ConfigDict, a dataclass or a nest of them as plain dicts, with lists for tuples."""
  if value is None or isinstance(value, str | int | float):  # most values
    return value
  if isinstance(value, ml_collections.ConfigDict):
    value = value.to_dict()
  if dataclasses.is_dataclass(value):
    value = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
  if isinstance(value, Mapping):
    return {key: plain(item) for key, item in value.items()}
  return [plain(item) for item in value] if isinstance(value, tuple | list) else value


def to_dict(config: Any) -> dict[str, Any]:
  """Returns a ConfigDict, a nested mapping or a Resolved as plain dicts, with lists for tuples."""
  fields = plain(config)
  layers = fields.pop('blocks') if isinstance(config, Resolved) else {}
  return fields | {name: block for name, block in layers.items() if block}


def flatten(tree: Mapping[str, Any], prefix: str = '') -> dict[str, Any]:
  """Returns the leaves of nested dicts by dotted key."""
  out: dict[str, Any] = {}
  for key, value in tree.items():
    out |= (
      flatten(value, f'{prefix}{key}.') if isinstance(value, Mapping) else {f'{prefix}{key}': value}
    )
  return out
