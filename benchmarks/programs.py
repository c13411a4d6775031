"""The work of `launch/benchmark.py` as programs that are ready to be timed, with what they cost at least.

Bytes are those that no program can avoid: pixels read once; models, sets and moments read and written
once. Operations: see `benchmarks/operations.py`.
"""

import functools
import math
import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.operations import (
  forward_operations,
  matching_operations,
  parameter_count,
  training_operations,
)
from benchmarks.workloads import CLASSES, Rounds, Unroll, Variant, Work
from fedjax_syn import engine as engine_lib
from fedjax_syn import models
from fedjax_syn.algorithms.dynafed import synthetic_set, trajectory
from fedjax_syn.algorithms.fedavg import FedAvg
from fedjax_syn.core import microbatches, paths
from fedjax_syn.core.keys import Purpose, stream
from fedjax_syn.core.mesh import mesh_of, place, replicated
from fedjax_syn.core.optimizers import training_step
from fedjax_syn.core.sampling import SAMPLERS
from fedjax_syn.core.types import Model
from fedjax_syn.data import datasets, federated
from fedjax_syn.data import partition as partition_lib
from fedjax_syn.data.augment import dsa
from fedjax_syn.data.builders import arrays, prepared
from fedjax_syn.data.builders.sources import SOURCES
from fedjax_syn.models.classifier import as_model
from fedjax_syn.models.init import INITS
from fedjax_syn.models.layers import FORMS, Conv, Dense, max_pool

SEED, FLOAT = 0, 4


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
  home = data_dir or os.environ.get('TFDS_DATA_DIR') or '~/tensorflow_datasets'
  folder = paths.given(home, '--data_dir')
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
  method = FedAvg(lr=work.lr, optimizer=work.optimizer, batch_size=work.batch)
  model = make_model(work, variant.form)
  share = work.sampled / work.clients
  layout = engine_lib.Layout(lanes=variant.lanes)
  engine = engine_lib.Engine(method, model, data, participation=share, layout=layout)
  evaluate = engine.evaluator(*test) if work.eval_every else None
  seeds = range(SEED, SEED + work.seeds)

  def advance(states, rounds):
    done = 0
    while done < rounds:
      chunk = min(rounds - done, work.eval_every or rounds)
      new = []
      for first in range(0, work.seeds, variant.seeds):
        group = slice(first, first + variant.seeds)
        after, reports = engine.run_side_by_side(tuple(seeds[group]), states[group], chunk)
        if failed := max(report['diverged_round'] for report in reports):
          raise ValueError(f'diverged in round {failed:g}')
        new += after
      states = new
      for state in states if evaluate else ():
        evaluate(state.params, state.stats)
      done += chunk
    return states

  with jax.default_matmul_precision(variant.precision):
    states = advance([engine.init(seed) for seed in seeds], 1)
  compile_seconds = time.perf_counter() - began
  _, sample = SAMPLERS['fixed'](work.clients, share)
  draw = jax.jit(lambda seed, number: sample(stream(seed, Purpose.SAMPLE, number)))
  size = np.asarray(data.size)

  def cohorts(first, last):  # the engine's own draws
    units = range(first, last + 1)
    return [[int(c) for seed in seeds for c in draw(np.int32(seed), number)] for number in units]

  def cost(first, last):
    rounds = last - first + 1
    images = sum(int(size[clients].sum()) for clients in cohorts(first, last))
    tests = rounds // work.eval_every * work.seeds if work.eval_every else 0
    tested = tests * work.test_rows
    operations = images * training_operations(work) + tested * sum(forward_operations(work))
    weights = rounds * work.seeds * work.sampled * 2 * FLOAT * parameter_count(model)
    return operations, (images + tested) * math.prod(work.shape) + weights

  return Program(states, advance, compile_seconds, None, cohorts, cost)


def prepare_unroll(work: Unroll, variant: Variant, data_dir: str = '') -> Program:
  """Compiles outer iterations: gradients of the matching loss and Adam, many in one program."""
  del data_dir  # a synthetic set starts from noise
  began = time.perf_counter()
  model = make_model(work, variant.form)
  start, target = (model.init(jax.random.key(seed)) for seed in (SEED, SEED + 1))
  segment = trajectory.Segment(start.params, target.params)
  mesh = mesh_of(engine_lib.Layout(devices=jax.device_count()))
  batches = microbatches.synthetic_microbatches(variant.pieces, work.images, model, mesh, 'pieces')
  augment = functools.partial(dsa) if variant.augment else None
  loss = trajectory.inner_loss(model, start.stats, augment, *batches)
  labels = synthetic_set.SyntheticSet('x', 'y', 'step')
  rates = {'x': optax.adam(5e-2), 'y': optax.adam(5e-2), 'step': optax.adam(1e-2)}
  optimizer = optax.partition(rates, labels)
  syn = synthetic_set.noise(jax.random.key(SEED + 2), work.images, work.shape, CLASSES, 0.04)

  def iteration(number, carry, segment):
    syn, opt_state, _ = carry
    key = jax.random.fold_in(jax.random.key(SEED + 3), number)
    how = {'adjoint': variant.adjoint, 'together': variant.together}

    def distance(syn):
      end = trajectory.unroll(loss, segment.start, syn, key, work.steps, **how)
      return trajectory.squared_distance(end, segment.target, segment.start)

    (syn, opt_state), value = training_step(distance, optimizer)((syn, opt_state))
    return syn, opt_state, value

  everywhere = replicated(batches.mesh) if batches.mesh else None

  @functools.partial(jax.jit, donate_argnums=0, out_shardings=everywhere)
  def iterations(carry, segment, count):
    return jax.lax.fori_loop(0, count, lambda i, c: iteration(i, c, segment), carry)

  state = syn, optimizer.init(syn), jnp.zeros(())
  if everywhere:
    state, segment = place((state, segment), everywhere)
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
