"""The work of `launch/benchmark.py`, its variants and their order."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

CLASSES = 10


@dataclasses.dataclass(frozen=True)
class Variant:
  """A way of doing the work; each kind of work ignores the fields of the other."""

  precision: str = 'float32'
  form: str = 'auto'  # of the convolutions
  lanes: int = 0  # clients in a vmapped block; 0: the library's choice
  seeds: int = 1  # seeds in a vmapped program
  adjoint: str = 'jvp'
  together: int = 1  # inner steps in one compiled piece
  dsa: bool = False  # augments the images in each inner step
  pieces: int = 0  # microbatches of the images in an inner step; 0: the library's choice

  def label(self) -> str:
    """Names the fields that differ from the defaults, as in 'tensorfloat32/xla/lanes=32'."""
    parts = []
    for field in dataclasses.fields(self):
      value = getattr(self, field.name)
      if value != field.default:
        named = f'{field.name}={value}' if field.type is int else field.name
        parts.append(value if isinstance(value, str) else named)
    return '/'.join(parts)


@dataclasses.dataclass(frozen=True)
class Rounds:
  """Federated rounds; a unit is one round."""

  shape: tuple[int, int, int]
  model: str
  width: int
  depth: int
  clients: int = 80
  sampled: int = 32
  rows: int = 60_000  # training images of all clients
  batch: int = 32
  optimizer: str = 'adam'
  lr: float = 1e-3
  epochs: int = 1
  alpha: float = 0.0  # of the Dirichlet split; 0: equal clients
  units: int = 1  # of the whole job
  eval_every: int = 0  # rounds; 0: never
  test_rows: int = 10_000
  seeds: int = 1  # runs of the same problem; a unit is a round of each


@dataclasses.dataclass(frozen=True)
class Unroll:
  """Trajectory matching; a unit is one outer iteration."""

  shape: tuple[int, int, int]
  model: str
  width: int
  depth: int
  images: int = 150
  steps: int = 20
  units: int = 1


@dataclasses.dataclass(frozen=True)
class Generation(Rounds):
  """Rounds of FedCOG after T0: generation, then local steps on real and generated samples."""

  samples: int = 256  # generated, of each client
  steps: int = 100  # of generation
  local_steps: int = 100


@dataclasses.dataclass(frozen=True)
class ClientMatching(Rounds):
  """Clients that match distributions; their server takes one step on one image."""

  method: str = 'feddualmatch'  # or 'feddm'
  images: int = 10  # of each class
  iterations: int = 20  # of each stage
  radius: float = 5.0


@dataclasses.dataclass(frozen=True)
class ServerMatching(Rounds):
  """A server that matches gradients at one model; its clients take one step on their sets."""

  images: int = 10  # of each class
  steps: int = 10


@dataclasses.dataclass(frozen=True)
class WholeRun:
  """A run of DynaFed in a process of its own, from its start to its end."""

  config: str = 'configs/dynafed_digits.py'
  rounds: int = 60
  length: int = 20  # L, rounds before synthesis
  iterations: int = 300  # N
  units: int = 1

  def arguments(self, folder: str) -> list[str]:
    """Returns the arguments of `launch/main.py`, which trains nothing beside it."""
    sizes = {'rounds': self.rounds, 'dynafed.length': self.length}
    sizes |= {'dynafed.iterations': self.iterations}
    set_ = [f'--config.{key}={value}' for key, value in sizes.items()]
    return [f'--config={self.config}', f'--workdir={folder}', '--config.compare=', *set_]


Work = Rounds | Unroll | WholeRun


class Job(NamedTuple):
  """Work, and its variants that are compared."""

  name: str
  work: Work
  variants: Sequence[Variant] = (Variant(),)
  whole: bool = False  # also times a complete run with compilation
  units: int = 1  # in one timed call
  peers: tuple[str, ...] = ('torch',)  # that know the work

  def label(self, variant: Variant) -> str:
    """Names the job with one of its variants."""
    return '/'.join(filter(None, (self.name, variant.label())))


FASHION = Rounds((28, 28, 1), 'mlp', 128, 2)
MATCHING = Unroll((28, 28, 1), 'mlp', 128, 2)
CIFAR_ROUND = Rounds((32, 32, 3), 'convnet', 128, 3, rows=50_000)
CIFAR_MATCHING = Unroll((32, 32, 3), 'convnet', 128, 3)
PFL = Rounds(
  (32, 32, 3), 'cnn', 32, 2, 1000, 50, 50_000, 10, 'sgd', 0.05, units=1500, eval_every=10
)
SIDE_BY_SIDE = [Variant(), Variant(seeds=3)]
# FedCOG's Fashion-MNIST network and rates, with a quarter of its 400 local steps.
COG = Generation(
  (28, 28, 1), 'lenet', 0, 0, clients=4, sampled=4, rows=6_000, batch=64, lr=0.01, alpha=0.1
)
MNIST = {'shape': (28, 28, 1), 'model': 'convnet', 'width': 32, 'depth': 3}
LDM = ClientMatching(**MNIST, clients=2, sampled=2, rows=1_200)
GGM = ServerMatching(**MNIST, clients=4, sampled=4, rows=400)
# What BlazeFL's authors compare with Flower (github.com/blazefl/benchmarks): the network of
# PyTorch's CIFAR-10 tutorial, every client in each round.
TUTORIAL = Rounds(
  (32, 32, 3), 'lenet', 0, 0, 100, 100, 50_000, batch=50, optimizer='sgd', lr=0.1, epochs=5
)


def _cpu() -> list[Job]:
  replace, both = dataclasses.replace, ('torch', 'flower')
  small = {'model': 'convnet', 'width': 32, 'depth': 3}
  return [
    Job('w1', FASHION, units=3, peers=both),
    Job('w2', replace(FASHION, **small), peers=both),
    Job('w3', replace(FASHION, alpha=0.1), units=3, peers=both),
    Job('w3x', replace(FASHION, alpha=0.01), units=3),
    Job('w4', MATCHING, [Variant(together=20)], units=10),
    Job('w4conv', replace(MATCHING, **small)),
    Job('w5', COG),
    Job('w6', LDM),
    Job('w6dm', replace(LDM, method='feddm', iterations=6)),
    Job('w7', GGM),
    Job('w8', WholeRun()),
    Job('tutorial', TUTORIAL, peers=('flower',)),
    Job('w4c', CIFAR_MATCHING),
    Job('seeds', replace(FASHION, seeds=3), SIDE_BY_SIDE, units=3),
  ]


def _gpu() -> list[Job]:
  """Returns the jobs, the most important first: a short budget omits the last ones."""
  g3 = dataclasses.replace(CIFAR_MATCHING, units=1000)
  rounds = lambda precision: [
    Variant(precision, form, lanes) for form in ('xla', 'patches', 'chwn') for lanes in (32, 8)
  ]
  first = lambda precision: [
    *(Variant(precision, form) for form in ('xla', 'patches', 'chwn')),
    # An activation of 30 images of width 128 has 16 MB and fits the second-level cache of a GPU.
    *(Variant(precision, form, pieces=5) for form in ('xla', 'patches')),
    Variant(precision, 'xla', adjoint='reverse'),
  ]
  rest = lambda precision: [
    *(Variant(precision, form, adjoint='reverse') for form in ('patches', 'chwn')),
    *(Variant(precision, form, dsa=True) for form in ('xla', 'patches')),
    Variant(precision, 'xla', adjoint='reverse', dsa=True),
  ]
  tf32, full = 'tensorfloat32', 'float32'
  return [
    Job('g1', CIFAR_ROUND, rounds(tf32), units=3),
    Job('g1', CIFAR_ROUND, rounds(full), units=3),
    Job('g3', g3, first(tf32), whole=True, units=5),
    Job('g3', g3, first(full), whole=True, units=5),
    Job('g2', PFL, [Variant(full, form, 50) for form in ('xla', 'patches')], whole=True, units=10),
    Job('seeds', dataclasses.replace(FASHION, seeds=3), SIDE_BY_SIDE, units=10),
    Job('g3', CIFAR_MATCHING, rest(tf32), units=5),
    Job('g3', CIFAR_MATCHING, rest(full), units=5),
  ]


SUITES: dict[str, Callable[[], list[Job]]] = {'cpu': _cpu, 'gpu': _gpu}


def smoke(job: Job) -> Job:
  """Returns a tiny version of a job, which shows only that it runs."""
  work = job.work
  if isinstance(work, WholeRun):
    return job._replace(work=dataclasses.replace(work, rounds=7, length=5, iterations=2))
  depth, units = min(work.depth, 2), min(work.units, 4)
  small = {'shape': (12, 12, work.shape[-1]), 'width': 4, 'depth': depth, 'units': units}
  if work.model == 'lenet':
    small['shape'] = (16, 16, work.shape[-1])
  if isinstance(work, Rounds):
    small |= {'clients': 8, 'sampled': 4, 'rows': 160, 'test_rows': 20, 'batch': 10}
    small |= {'eval_every': min(work.eval_every, 2)}
  else:
    small |= {'images': 10, 'steps': 2}
  if isinstance(work, Generation):
    small |= {'samples': 20, 'steps': 2, 'local_steps': 2}
  elif isinstance(work, ClientMatching):
    small |= {'rows': 1_600, 'images': 2, 'iterations': 1}
  elif isinstance(work, ServerMatching):
    small |= {'images': 2, 'steps': 2}
  work = dataclasses.replace(work, **small)
  return job._replace(work=work, variants=job.variants[:1], units=min(job.units, 2))
