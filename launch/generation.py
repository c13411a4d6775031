"""What a finished run of FedCOG generates, again: its images after any number of steps, and how long it takes."""

import dataclasses
import pathlib
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from fedjax_syn.engine.visits import downlink, servers_of
from fedjax_syn.method import ClientTransform, Method, State, Task, Visit

from fedjax_syn import algorithms, assemble, checkpoint, figures, run_folder
from fedjax_syn import config as config_lib
from fedjax_syn import trusted as trust
from fedjax_syn.algorithms.fedcog import Generated
from fedjax_syn.client import local
from fedjax_syn.data import federated
from fedjax_syn.engine import Engine, Layout, build, clients
from fedjax_syn.keys import Purpose, fold, stream
from fedjax_syn.losses import objective_of
from fedjax_syn.typing import Model

NAME = 'fedcog'
REPEATS = 5  # of a timed program; the median counts


class Subject(NamedTuple):
  """A finished run at the end of round T0, where generation begins."""

  config: config_lib.Resolved
  problem: assemble.Problem
  method: Method
  model: Model  # with what the method adds to it
  state: State
  seed: int


def open_subject(folder: pathlib.Path, seed: int | None, trusted: bool = False) -> Subject:
  """Opens a run.

  Args:
    folder: with a config.json, and a checkpoint of round T0, which every run keeps.
    seed: which of its seeds; None: the first.
    trusted: whether code that the folder names may be imported and called.

  Raises:
    ValueError: if it is no run of FedCOG, has no such checkpoint, or its data set is not there.
  """
  stored = run_folder.config(folder)
  if stored is None:
    raise ValueError(f'{folder}: holds no config.json; name the folder of a run')
  config = trust.check(stored['config'], folder, trusted)
  _check_generates(config, str(folder))
  seed = config.seeds[0] if seed is None else seed
  path = folder / 'checkpoints' / str(config.blocks[NAME].start) / f'seed_{seed}'
  if not path.is_dir():
    raise ValueError(f'{folder}: no checkpoint {path.relative_to(folder)} to generate from')
  problem, method, engine = _build(config)
  if problem.dataset.checksum != stored['dataset']['checksum']:
    raise ValueError(f'data.name={config.data.name!r}: differs from the data set of the run')
  state = jax.tree.map(jnp.asarray, checkpoint.read(path).tree)
  return Subject(config, problem, method, engine.model, state, seed)


def begin_subject(config: Any, seed: int | None = None) -> Subject:
  """Makes the subject of a config without a run: its initial model in the place of that of round T0.

  Args:
    config: a config, checked or not.
    seed: of the initial model; None: the config's first.

  Raises:
    ValueError: if the config is refused or generates nothing, or its data set is not there.
  """
  config = config_lib.check(config)
  _check_generates(config, 'config')
  seed = config.seeds[0] if seed is None else seed
  problem, method, engine = _build(config)
  state = engine.init(seed)._replace(round=jnp.int32(config.blocks[NAME].start))
  return Subject(config, problem, method, engine.model, state, seed)


def _check_generates(config: config_lib.Resolved, where: str) -> None:
  if NAME not in config.algorithm.split('+'):
    raise ValueError(f'{where}: algorithm={config.algorithm!r} generates nothing')


def _build(config: config_lib.Resolved) -> tuple[assemble.Problem, Method, Engine]:
  try:
    problem = assemble.load(config)
  except OSError as error:
    raise ValueError(str(error)) from error
  method = algorithms.create(config.algorithm, config)
  classes = problem.dataset.num_classes
  layout = Layout(devices=1)
  engine = build(method, problem.model, problem.data, num_classes=classes, layout=layout)
  return problem, method, engine


def with_fields(subject: Subject, **fields) -> Subject:
  """Returns the subject with other fields of FedCOG."""
  block = dataclasses.replace(subject.config.blocks[NAME], **fields)
  config = dataclasses.replace(subject.config, blocks={**subject.config.blocks, NAME: block})
  return subject._replace(config=config, method=algorithms.create(config.algorithm, config))


def visit_of(subject: Subject, client: int) -> Visit:
  """Returns a client's visit in round T0 + 1, as the run had it."""
  state, data = subject.state, subject.problem.data
  number = state.round + 1
  servers = servers_of(subject.method, _task(subject, data))
  sent, alike = downlink(servers, stream(subject.seed, Purpose.SHARED, number), number, state)
  return Visit(
    key=fold(stream(subject.seed, Purpose.CLIENT, number), client),
    round=number,
    params=state.params,
    stats=state.stats,
    broadcast=sent | alike,
    state=jax.tree.map(lambda leaf: leaf[client], state.clients),
    shard=federated.shard_of(data, jnp.int32(client)),
  )


def _task(subject: Subject, data: federated.FederatedData) -> Task:
  block = subject.config.blocks[NAME]
  num_clients, num_classes = data.class_counts.shape
  objective = objective_of(data.y)
  return Task(
    subject.model,
    objective.loss,
    data,
    num_clients,
    num_classes,
    subject.method.hyper,
    first_round=block.start + 1,
    cohort=subject.config.client.participation * num_clients,
    objective=objective,
  )


def generator(subject: Subject) -> Callable[[Visit, federated.FederatedData], Generated]:
  """Returns what generates a visit's data: (visit, data) -> Generated, compiled at its first call."""

  def generate(visit, data):
    transforms = [make(_task(subject, data)) for make in subject.method.client_transforms]
    own: ClientTransform = next(t for t in transforms if t.name == NAME)
    return own.prepare(visit)[1]

  return jax.jit(generate)


def distilling(subject: Subject) -> tuple[Callable, Callable, Callable]:
  """Returns local training with distillation in its parts, so that what is generated before it is left out.

  Args:
    subject: a run.

  Returns:
    Compiled (visit, data) -> carry with generated data; (carry, data) -> carry after one step, to be compiled; and
    (visit, data) -> the steps of a visit.
  """
  closed = lambda data: local.close(subject.method, _task(subject, data))
  begin = jax.jit(lambda visit, data: closed(data).begin(visit))
  step = lambda carry, data: closed(data).step(carry)
  return begin, step, lambda visit, data: closed(data).steps(visit.shard.size)


def training(subject: Subject) -> Callable[[Visit, federated.FederatedData], Any]:
  """Returns what runs a whole visit of the method that FedCOG is put around, without FedCOG."""
  parts = [part for part in subject.config.algorithm.split('+') if part != NAME]
  alone = subject._replace(method=algorithms.create('+'.join(parts) or 'fedavg', subject.config))
  run = lambda visit, data: clients.run_one(local.close(alone.method, _task(alone, data)), visit)[0]
  return jax.jit(run)


def seconds(subject: Subject, samples: Sequence[int], client: int = 0) -> dict[str, float]:
  """Times one client, alone on the default device, compilation excluded.

  Args:
    subject: a run.
    samples: how many samples are generated, one program each.
    client: which client.

  Returns:
    Seconds by number of samples, as text, and of a visit's local training under 'training'.
  """
  visit, data = visit_of(subject, client), subject.problem.data
  programs = {str(n): generator(with_fields(subject, samples=n)) for n in samples}
  found = {}
  for name, program in {**programs, 'training': training(subject)}.items():
    jax.block_until_ready(program(visit, data))
    taken = []
    for _ in range(REPEATS):
      begin = time.perf_counter()
      jax.block_until_ready(program(visit, data))
      taken.append(time.perf_counter() - begin)
    found[name] = statistics.median(taken)
  return found


def draw(subject: Subject, steps: Sequence[int], path: pathlib.Path, client: int = 0) -> None:
  """Draws a client's data after several numbers of generation steps from the same noise, an image a class.

  Args:
    subject: a run.
    steps: of generation.
    path: where the picture goes.
    client: which client.
  """
  visit, data = visit_of(subject, client), subject.problem.data
  rows, labels = {}, []
  for count in steps:
    made = jax.device_get(generator(with_fields(subject, steps=count))(visit, data))
    labels, first = np.unique(made.y, return_index=True)
    labels, first = labels[: figures.ACROSS], first[: figures.ACROSS]
    rows[f'{count} steps'] = made.x[first]
  dataset = subject.problem.dataset
  title = (
    f'{dataset.title}, seed {subject.seed}: client {client} after round {int(subject.state.round)}'
  )
  figures.image_rows(rows, [str(label) for label in labels], dataset.normalisation, path, title)
