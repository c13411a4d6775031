"""The work of `launch/benchmark.py` as compiled programs, with their least cost.

Bytes are those that no program can avoid: pixels are read once; models, sets and moments are read
and written once. Operations: see `benchmarks/operations.py`.
"""

import functools
import math
import time

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.operations import (
  forward_operations,
  matching_operations,
  parameter_count,
  round_operations,
)
from benchmarks.timing import Program
from benchmarks.workloads import (
  CLASSES,
  ClientMatching,
  Generation,
  Rounds,
  ServerMatching,
  Unroll,
  Variant,
  Work,
)
from fedjax_syn import engine as engine_lib
from fedjax_syn import models
from fedjax_syn.algorithms import FedAvg, FedCOG, FedDM, FedDualMatch, chain
from fedjax_syn.algorithms.dynafed import synthetic_set, unroll
from fedjax_syn.chains import Chain
from fedjax_syn.core import microbatches
from fedjax_syn.core.keys import Purpose, stream
from fedjax_syn.core.mesh import mesh_of, place, replicated
from fedjax_syn.core.optimizers import training_step
from fedjax_syn.core.sampling import SAMPLERS
from fedjax_syn.core.types import Array, Model
from fedjax_syn.data import datasets, federated
from fedjax_syn.data import partition as partition_lib
from fedjax_syn.data.augment import dsa
from fedjax_syn.models.classifier import as_model
from fedjax_syn.models.init import INITS
from fedjax_syn.models.network_layers import FORMS, Conv, Dense, max_pool

SEED, FLOAT = 0, 4


class Cnn(nn.Module):
  """pfl-research's CIFAR-10 network: two unpadded 3x3 convolutions, max pooling, a dense layer."""

  width: int
  form: str

  @nn.compact
  def __call__(self, x: Array, train: bool, mask: Array | None) -> Array:
    """Returns the features, [batch, 4 width]."""
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


def make_data(work: Rounds) -> tuple[federated.FederatedData, datasets.Split]:
  """Returns the clients' data and the test rows: random pixels and labels."""
  rng = np.random.default_rng(SEED)
  draw = lambda rows: datasets.Split(
    rng.integers(0, 256, (rows, *work.shape), np.uint8), rng.integers(0, CLASSES, rows, np.int32)
  )
  scale = datasets.Normalisation('half', (0.5,) * work.shape[-1], (0.5,) * work.shape[-1])
  train, test = draw(work.rows), draw(work.test_rows)
  dataset = datasets.Dataset('random', 'random', train, test, None, CLASSES, scale, '', None)
  kind = {'alpha': work.alpha} if work.alpha else {}
  part = partition_lib.partition(
    'dirichlet' if work.alpha else 'iid', train.y, work.clients, num_classes=CLASSES, **kind
  )
  return federated.from_partition(dataset, part), test


def make_method(work: Rounds) -> Chain:
  """Builds the method of some rounds."""
  if isinstance(work, ClientMatching):
    server = {'server_steps': 1, 'server_batch': 1}
    sizes = {'iterations': work.iterations, 'images_per_class': work.images} | server
    if work.method == 'feddm':
      return chain(FedDM(radius=work.radius, **sizes))
    return chain(FedDualMatch(radius=work.radius, radius_lr=0.0, matches=0, **sizes))
  if isinstance(work, ServerMatching):
    client = {'iterations': 1, 'per_stage': False, 'images_per_class': work.images}
    server = {'matches': 1, 'match_steps': work.steps, 'server_steps': 1, 'server_batch': 1}
    return chain(FedDualMatch(**client, **server))
  if isinstance(work, Generation):
    rates = {'optimizer': 'sgd', 'lr': work.lr, 'momentum': 0.9, 'weight_decay': 1e-5}
    local = FedAvg(epochs=0, steps=work.local_steps, batch_size=work.batch, **rates)
    return chain(local, FedCOG(start=0, samples=work.samples, steps=work.steps))
  local = FedAvg(lr=work.lr, optimizer=work.optimizer, batch_size=work.batch, epochs=work.epochs)
  return chain(local)


def prepare_rounds(work: Rounds, variant: Variant) -> Program:
  """Builds the engine, and compiles it by running the first round."""
  data, test = make_data(work)
  began = time.perf_counter()
  method = make_method(work)
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
  counts = np.asarray(data.class_counts)

  def cohorts(first, last):  # the engine's own draws
    units = range(first, last + 1)
    return [[int(c) for seed in seeds for c in draw(np.int32(seed), number)] for number in units]

  def cost(first, last):
    rounds = last - first + 1
    chosen = [counts[clients] for clients in cohorts(first, last)]
    images = sum(int(clients.sum()) for clients in chosen)
    tests = rounds // work.eval_every * work.seeds if work.eval_every else 0
    tested = tests * work.test_rows
    operations = sum(round_operations(work, clients) for clients in chosen)
    operations += tested * sum(forward_operations(work))
    weights = rounds * work.seeds * work.sampled * 2 * FLOAT * parameter_count(model)
    return operations, (images + tested) * math.prod(work.shape) + weights

  return Program(states, advance, compile_seconds, None, cohorts, cost)


def prepare_unroll(work: Unroll, variant: Variant) -> Program:
  """Compiles outer iterations: gradients of the matching loss and Adam, many in one program."""
  began = time.perf_counter()
  model = make_model(work, variant.form)
  start, target = (model.init(jax.random.key(seed)) for seed in (SEED, SEED + 1))
  segment = unroll.Segment(start.params, target.params)
  mesh = mesh_of(jax.device_count())
  batches = microbatches.Microbatches(variant.pieces)
  if not variant.pieces:
    batches = microbatches.synthetic_microbatches(work.images, model, mesh)
  augment = dsa if variant.dsa else None
  loss = unroll.inner_loss(model, start.stats, augment, *batches)
  labels = synthetic_set.SyntheticSet('x', 'y', 'step')
  rates = {'x': optax.adam(5e-2), 'y': optax.adam(5e-2), 'step': optax.adam(1e-2)}
  optimizer = optax.partition(rates, labels)
  syn = synthetic_set.noise(jax.random.key(SEED + 2), work.images, work.shape, CLASSES, 0.04)

  def iteration(number, carry, segment):
    syn, opt_state, _ = carry
    key = jax.random.fold_in(jax.random.key(SEED + 3), number)
    how = {'adjoint': variant.adjoint, 'scan_unroll': variant.together}

    def distance(syn):
      end = unroll.unroll(loss, segment.start, syn, key, work.steps, **how)
      return unroll.squared_distance(end, segment.target, segment.start)

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

  peak = getattr(program.memory_analysis(), 'temp_size_in_bytes', None)
  # Warm after its first unit, as in `prepare_rounds`.
  return Program(advance(state, 1), advance, compile_seconds, peak, lambda *_: [], cost)


def prepare(work: Rounds | Unroll, variant: Variant) -> Program:
  """Compiles some work."""
  return (prepare_unroll if isinstance(work, Unroll) else prepare_rounds)(work, variant)
