"""The work of `launch/benchmark.py`: what is done, how many operations and bytes it needs, and how.

Operations are those of matrix products and convolutions, two for each multiplication, the work that
the definition asks for: what a program computes a second time to save memory counts once. Bytes are
those that no program can avoid: pixels read once; models, sets and moments read and written once.
"""

import dataclasses
import functools
import math
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedjax_syn import engine as engine_lib
from fedjax_syn import models
from fedjax_syn.algorithms.fedavg import fedavg
from fedjax_syn.data import datasets, federated
from fedjax_syn.data import partition as partition_lib
from fedjax_syn.data.augment import dsa
from fedjax_syn.data.builders import arrays, prepared
from fedjax_syn.data.builders.sources import SOURCES
from fedjax_syn.engine.sampling import SAMPLERS
from fedjax_syn.keys import Purpose, stream
from fedjax_syn.models.classifier import as_model
from fedjax_syn.models.init import INITS
from fedjax_syn.models.layers import FORMS, Conv, Dense, max_pool
from fedjax_syn.synthesis import synthetic, trajectory
from fedjax_syn.typing import Model

SEED, CLASSES, FLOAT = 0, 10, 4


@dataclasses.dataclass(frozen=True)
class Variant:
  """How the work is done; what a kind of work has no use for, it ignores."""

  precision: str = 'float32'
  form: str = 'auto'  # of the convolutions
  lanes: int = 0  # clients side by side; 0: the library's choice
  adjoint: str = 'jvp'
  together: int = 1  # inner steps compiled as one piece
  augment: bool = False  # DSA in every inner step

  def label(self) -> str:
    """Names what differs from the defaults, as in 'tensorfloat32/xla/lanes=32'."""
    parts = [self.precision if self.precision != 'float32' else '']
    parts += [self.form if self.form != 'auto' else '']
    parts += [f'lanes={self.lanes}' if self.lanes else '']
    parts += [self.adjoint if self.adjoint != 'jvp' else '']
    parts += [
      f'together={self.together}' if self.together > 1 else '',
      'dsa' if self.augment else '',
    ]
    return '/'.join(filter(None, parts))


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


class Program(NamedTuple):
  """Work that is ready to be timed."""

  state: Any
  advance: Callable[[Any, int], Any]  # (state, units) -> state, once it is there
  compile_seconds: float
  peak_bytes: int | None  # temporary arrays of the compiled program
  cohorts: Callable[[int, int], list[list[int]]]  # (first, last unit) -> clients of each unit
  cost: Callable[[int, int], tuple[float, float]]  # (first, last unit) -> operations, bytes of all


class Cnn(nn.Module):
  """pfl-research's CIFAR-10 network: two 3x3 convolutions without padding, 2x2 max pooling, a dense layer."""

  width: int
  form: str

  @nn.compact
  def __call__(self, x, train, mask):
    del train, mask
    form, weights = FORMS[self.form], INITS['torch']
    z = form.swap(x)
    for i in (1, 2):
      z = nn.relu(Conv(i * self.width, 3, form, weights, name=f'conv_{i}')(z))
    z = form.swap(max_pool(z)).reshape(x.shape[0], -1)
    return nn.relu(Dense(4 * self.width, weights, name='dense')(z))


def make_model(work: Work, form: str) -> Model:
  """Builds the network of some work with a form of the convolutions."""
  if work.model == 'cnn':
    form = models.FASTEST.get(jax.default_backend(), 'xla') if form == 'auto' else form
    return as_model('cnn', Cnn(work.width, form), work.shape, CLASSES, INITS['torch'])
  size = {'width': work.width, 'depth': work.depth, 'conv': form}
  return models.create(work.model, shape=work.shape, num_classes=CLASSES, **size)


def _mlp(work: Work) -> list[int]:
  sizes = [math.prod(work.shape), *[work.width] * work.depth, CLASSES]
  return [2 * a * b for a, b in zip(sizes, sizes[1:], strict=False)]


def _convnet(work: Work) -> list[int]:
  height, width, channels = (32, 32, 1) if work.shape == (28, 28, 1) else work.shape
  layers = []
  for _ in range(work.depth):
    layers.append(2 * 9 * channels * work.width * height * width)
    height, width, channels = height // 2, width // 2, work.width
  return [*layers, 2 * height * width * channels * CLASSES]


def _cnn(work: Work) -> list[int]:
  height, width, channels = work.shape
  a, b, hidden = work.width, 2 * work.width, 4 * work.width
  pooled = (height - 4) // 2 * ((width - 4) // 2) * b
  first = 2 * 9 * channels * a * (height - 2) * (width - 2)
  second = 2 * 9 * a * b * (height - 4) * (width - 4)
  return [first, second, 2 * pooled * hidden, 2 * hidden * CLASSES]


LAYERS: dict[str, Callable[[Work], list[int]]] = {'mlp': _mlp, 'convnet': _convnet, 'cnn': _cnn}


def forward_operations(work: Work) -> list[int]:
  """Returns the operations of each layer for one image."""
  return LAYERS[work.model](work)


def training_operations(work: Work) -> int:
  """Returns the operations of one image in a training step.

  A layer y = W x is applied, then transposed twice, for W and for x: 3 products; the first layer's
  x needs no gradient.
  """
  layers = forward_operations(work)
  return 3 * sum(layers) - layers[0]


def matching_operations(work: Unroll) -> int:
  """Returns the operations of an outer iteration: inner steps, and their adjoint.

  A step has 3 products a layer (y = W x, W' dy, dy x'). Its adjoint differentiates each of the three
  in both factors: 6 more. The first layer: y = W x and dy x' in the step; in the adjoint one product
  for each of these, as the images are given, and both factors of W' dy, the gradient of the images.
  """
  layers = forward_operations(work)
  return work.images * work.steps * (9 * sum(layers) - 3 * layers[0])


def parameter_count(model: Model) -> int:
  """Returns how many parameters a model has."""
  shapes = jax.eval_shape(lambda: model.init(jax.random.key(0)).params)
  return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes))


def load_data(work: Rounds, data_dir: str) -> tuple[federated.FederatedData, datasets.Split, str]:
  """Returns clients' data, test images, and what they are: a data set found, else random pixels."""
  name = 'fashion_mnist' if work.shape[-1] == 1 else 'cifar10'
  dataset, note = _find(name, work, data_dir), f'{name} as found'
  if dataset is None:
    note = 'random pixels and labels; the speed does not depend on their values'
    rng = np.random.default_rng(SEED)
    draw = lambda rows: datasets.Split(
      rng.integers(0, 256, (rows, *work.shape), np.uint8),
      rng.integers(0, CLASSES, rows, np.int32),
    )
    scale = datasets.Normalisation('half', (0.5,) * work.shape[-1], (0.5,) * work.shape[-1])
    train, test = draw(work.rows), draw(work.test_rows)
    dataset = datasets.Dataset(name, name, train, test, None, CLASSES, scale, '', None)
  kind = {'alpha': work.alpha} if work.alpha else {}
  part = partition_lib.partition(
    'dirichlet' if work.alpha else 'iid', dataset.train.y, work.clients, num_classes=CLASSES, **kind
  )
  return federated.from_partition(dataset, part), dataset.test, note


def _find(name: str, work: Rounds, data_dir: str) -> datasets.Dataset | None:
  folder = Path(data_dir or os.environ.get('TFDS_DATA_DIR') or '~/tensorflow_datasets').expanduser()
  try:
    here = any(map(arrays.is_folder, (folder / name, folder)))
    # Looked for first, as `load` would go on to download what is nowhere.
    if not (here or prepared.find(SOURCES[name], folder) or prepared.locate(SOURCES[name], folder)):
      return None
    found = datasets.load(name, str(folder))
  except (ImportError, OSError, ValueError):
    return None
  fits = found.shape == work.shape and found.num_classes == CLASSES
  return found if fits and len(found.train.y) == work.rows else None


def prepare_rounds(work: Rounds, variant: Variant, data_dir: str = '') -> Program:
  """Builds the engine, and compiles it by running the first round."""
  data, test, _ = load_data(work, data_dir)
  began = time.perf_counter()
  method = fedavg(work.lr, optimizer=work.optimizer, batch_size=work.batch)
  model = make_model(work, variant.form)
  share = work.sampled / work.clients
  layout = engine_lib.Layout(lanes=variant.lanes)
  engine = engine_lib.build(method, model, data, participation=share, layout=layout)
  evaluate = engine.evaluator(*test) if work.eval_every else None

  def advance(state, rounds):
    done = 0
    while done < rounds:
      chunk = min(rounds - done, work.eval_every or rounds)
      state, report = engine.run(SEED, state, chunk)
      if report['diverged_round']:
        raise ValueError(f'diverged in round {report["diverged_round"]:g}')
      if evaluate:
        evaluate(state.params, state.stats)
      done += chunk
    return state

  with jax.default_matmul_precision(variant.precision):
    state = advance(engine.init(SEED), 1)
  compile_seconds = time.perf_counter() - began
  _, sample = SAMPLERS['fixed'](work.clients, share)
  draw = jax.jit(lambda number: sample(stream(jnp.int32(SEED), Purpose.SAMPLE, number)))
  size = np.asarray(data.size)

  def cohorts(first, last):  # the engine's own draws
    return [np.asarray(draw(number)).tolist() for number in range(first, last + 1)]

  def cost(first, last):
    rounds = last - first + 1
    images = sum(int(size[clients].sum()) for clients in cohorts(first, last))
    tested = rounds // work.eval_every * work.test_rows if work.eval_every else 0
    operations = images * training_operations(work) + tested * sum(forward_operations(work))
    weights = rounds * work.sampled * 2 * FLOAT * parameter_count(model)
    return operations, (images + tested) * math.prod(work.shape) + weights

  return Program(state, advance, compile_seconds, None, cohorts, cost)


def prepare_unroll(work: Unroll, variant: Variant, data_dir: str = '') -> Program:
  """Compiles outer iterations: gradients of the matching loss and Adam, many in one program."""
  del data_dir  # a synthetic set starts from noise
  began = time.perf_counter()
  model = make_model(work, variant.form)
  start, target = (model.init(jax.random.key(seed)) for seed in (SEED, SEED + 1))
  segment = trajectory.Segment(start.params, target.params)
  loss = trajectory.inner_loss(
    model, start.stats, functools.partial(dsa) if variant.augment else None
  )
  labels = synthetic.SyntheticSet('x', 'y', 'step')
  rates = {'x': optax.adam(5e-2), 'y': optax.adam(5e-2), 'step': optax.adam(1e-2)}
  optimizer = optax.partition(rates, labels)
  syn = synthetic.noise(jax.random.key(SEED + 2), work.images, work.shape, CLASSES, 0.04)

  def iteration(number, carry, segment):
    syn, opt_state, _ = carry
    key = jax.random.fold_in(jax.random.key(SEED + 3), number)
    value, grads = jax.value_and_grad(
      lambda syn: trajectory.matching_loss(
        loss,
        syn,
        segment,
        key,
        steps=work.steps,
        batch_size=0,
        distance='squared',
        adjoint=variant.adjoint,
        together=variant.together,
      )
    )(syn)
    updates, opt_state = optimizer.update(grads, opt_state, syn)
    return optax.apply_updates(syn, updates), opt_state, value

  @functools.partial(jax.jit, donate_argnums=0)
  def iterations(carry, segment, count):
    return jax.lax.fori_loop(0, count, lambda i, c: iteration(i, c, segment), carry)

  state = syn, optimizer.init(syn), jnp.zeros(())
  with jax.default_matmul_precision(variant.precision):
    program = iterations.lower(state, segment, jnp.int32(1)).compile()
  compile_seconds = time.perf_counter() - began
  memory = program.memory_analysis()

  def advance(state, count):
    state = program(state, segment, jnp.int32(count))
    if not math.isfinite(value := float(state[2])):
      raise ValueError(f'the matching loss is {value}')
    return state

  def cost(first, last):
    count = last - first + 1
    adam = 6 * work.images * (math.prod(work.shape) + CLASSES)  # value and two moments, both ways
    weights = 2 * work.steps * parameter_count(model)  # where each step starts, for the adjoint
    return count * matching_operations(work), count * FLOAT * (adam + weights)

  peak = getattr(memory, 'temp_size_in_bytes', None)
  # Warm, as the first round of `prepare_rounds` makes it.
  return Program(advance(state, 1), advance, compile_seconds, peak, lambda *_: [], cost)


PREPARE: dict[type, Callable[..., Program]] = {Rounds: prepare_rounds, Unroll: prepare_unroll}


class Job(NamedTuple):
  """One line of the suite: work, and the ways of doing it that are compared."""

  name: str
  work: Work
  variants: Sequence[Variant] = (Variant(),)
  whole: bool = False  # also from nothing to the last unit, compilation included
  units: int = 1  # in one timed call


FASHION = Rounds((28, 28, 1), 'mlp', 128, 2)
MATCHING = Unroll((28, 28, 1), 'mlp', 128, 2)
CIFAR_ROUND = Rounds((32, 32, 3), 'convnet', 128, 3, rows=50_000)
CIFAR_MATCHING = Unroll((32, 32, 3), 'convnet', 128, 3)
PFL = Rounds(
  (32, 32, 3), 'cnn', 32, 2, 1000, 50, 50_000, 10, 'sgd', 0.05, units=1500, eval_every=10
)


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
  ]


def _gpu() -> list[Job]:
  """Most important first; the last jobs are those that a short budget leaves out."""
  g3 = dataclasses.replace(CIFAR_MATCHING, units=1000)
  rounds = lambda precision: [
    Variant(precision, form, lanes) for form in ('xla', 'patches', 'chwn') for lanes in (32, 8)
  ]
  first = lambda precision: [
    *(Variant(precision, form) for form in ('xla', 'patches', 'chwn')),
    Variant(precision, 'xla', adjoint='reverse'),
  ]
  rest = lambda precision: [
    *(Variant(precision, form, adjoint='reverse') for form in ('patches', 'chwn')),
    *(Variant(precision, form, augment=True) for form in ('xla', 'patches')),
    Variant(precision, 'xla', adjoint='reverse', augment=True),
  ]
  tf32, full = 'tensorfloat32', 'float32'
  return [
    Job('g1', CIFAR_ROUND, rounds(tf32), units=3),
    Job('g1', CIFAR_ROUND, rounds(full), units=3),
    Job('g3', g3, first(tf32), whole=True, units=5),
    Job('g3', g3, first(full), whole=True, units=5),
    Job('g2', PFL, [Variant(full, form, 50) for form in ('xla', 'patches')], whole=True, units=10),
    Job('g3', CIFAR_MATCHING, rest(tf32), units=5),
    Job('g3', CIFAR_MATCHING, rest(full), units=5),
  ]


SUITES: dict[str, Callable[[], list[Job]]] = {'cpu': _cpu, 'gpu': _gpu}


def smoke(job: Job) -> Job:
  """Shrinks a job until it shows only that everything runs; the numbers then mean nothing."""
  work, shape = job.work, (12, 12, job.work.shape[-1])
  small = {'shape': shape, 'width': 4, 'depth': min(job.work.depth, 2), 'units': min(work.units, 4)}
  if isinstance(work, Rounds):
    small |= {'clients': 8, 'sampled': 4, 'rows': 160, 'test_rows': 20, 'batch': 10}
    small |= {'eval_every': min(work.eval_every, 2)}
  else:
    small |= {'images': 10, 'steps': 2}
  work = dataclasses.replace(work, **small)
  return job._replace(work=work, variants=job.variants[:1], units=min(job.units, 2))
