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


Work = Rounds | Unroll


class Job(NamedTuple):
  """Work, and its variants that are compared."""

  name: str
  work: Work
  variants: Sequence[Variant] = (Variant(),)
  whole: bool = False  # also times a complete run with compilation
  units: int = 1  # in one timed call

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


def _cpu() -> list[Job]:
  replace = dataclasses.replace
  return [
    Job('w1', FASHION, units=3),
    Job('w2', replace(FASHION, model='convnet', width=32, depth=3)),
    Job('w3', replace(FASHION, alpha=0.1), units=3),
    Job('w3x', replace(FASHION, alpha=0.01), units=3),
    Job('w4', MATCHING, [Variant(together=20)], units=10),
    Job('w4conv', replace(MATCHING, model='convnet', width=32, depth=3)),
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
  work, shape = job.work, (12, 12, job.work.shape[-1])
  small = {'shape': shape, 'width': 4, 'depth': min(job.work.depth, 2), 'units': min(work.units, 4)}
  if isinstance(work, Rounds):
    small |= {'clients': 8, 'sampled': 4, 'rows': 160, 'test_rows': 20, 'batch': 10}
    small |= {'eval_every': min(work.eval_every, 2)}
  else:
    small |= {'images': 10, 'steps': 2}
  work = dataclasses.replace(work, **small)
  return job._replace(work=work, variants=job.variants[:1], units=min(job.units, 2))
