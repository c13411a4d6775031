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

from fedjax_syn import config as config_lib
from fedjax_syn.algorithms import chain
from fedjax_syn.algorithms.fedcog.fedcog import FedCOG, Generated
from fedjax_syn.chains import Chain
from fedjax_syn.client.local import bind, seen_by
from fedjax_syn.core.contexts import ClientContext, State, Task
from fedjax_syn.data import federated
from fedjax_syn.engine import Engine
from fedjax_syn.plotting import figures
from fedjax_syn.runs import assemble, restore

NAME = FedCOG.name
REPEATS = 5  # of a timed program; the median counts


class Subject(NamedTuple):
  """A finished run at the end of round T0, where generation begins."""

  config: config_lib.Resolved
  problem: assemble.Problem
  engine: Engine
  method: Chain  # the engine's, or with other fields of FedCOG
  state: State
  seed: int

  def task(self, data: federated.FederatedData) -> Task:
    """Returns the experiment in round T0 + 1, with the data as an argument of a program."""
    task = self.engine.task(int(self.state.round) + 1)
    return task._replace(chain=self.method, data=data)


def open_subject(folder: pathlib.Path, seed: int | None, trusted: bool = False) -> Subject:
  """Opens a run.

  Args:
    folder: with a config.json, and a checkpoint of round T0, which every run keeps.
    seed: which of its seeds; None: the first.
    trusted: whether code that the folder names may be imported and called.

  Raises:
    ValueError: if it is no run of FedCOG, has no such checkpoint, or its data set is not there.
  """
  opened = restore.read(folder, trusted)
  _check_generates(opened.config, str(folder))
  return _subject(restore.restore(opened, seed, opened.config.blocks[NAME].start))


def begin_subject(config: Any, seed: int | None = None) -> Subject:
  """Makes the subject of a config without a run: its initial model is used as that of round T0.

  Args:
    config: a config, checked or not.
    seed: of the initial model; None: the config's first.

  Raises:
    ValueError: if the config is refused or generates nothing, or its data set is not there.
  """
  config = config_lib.check(config)
  _check_generates(config, 'config')
  subject = _subject(restore.begin(config, seed))
  return subject._replace(state=subject.state._replace(round=jnp.int32(config.blocks[NAME].start)))


def _check_generates(config: config_lib.Resolved, where: str) -> None:
  if NAME not in config.algorithm.split('+'):
    raise ValueError(f'{where}: algorithm={config.algorithm!r} generates nothing')


def _subject(run: restore.Restored) -> Subject:
  return Subject(run.config, run.problem, run.engine, run.engine.chain, run.state, run.seed)


def with_fields(subject: Subject, **fields) -> Subject:
  """Returns the subject with other fields of FedCOG."""
  block = dataclasses.replace(subject.config.blocks[NAME], **fields)
  config = dataclasses.replace(subject.config, blocks={**subject.config.blocks, NAME: block})
  return subject._replace(config=config, method=subject.method.replace(**{NAME: fields}))


def context_of(subject: Subject, client: int) -> ClientContext:
  """Returns a client in round T0 + 1, as the run had it."""
  return subject.engine.client_context(subject.seed, subject.state, client)


def generator(
  subject: Subject,
) -> Callable[[ClientContext, federated.FederatedData], Generated]:
  """Returns what generates a client's data: (client, data) -> Generated, compiled at its first call."""
  layer = subject.method[FedCOG]

  def generate(client, data):
    return layer.prepare(seen_by(layer, client, subject.task(data))).generated

  return jax.jit(generate)


def distilling(subject: Subject) -> tuple[Callable, Callable, Callable]:
  """Returns local training with distillation in its parts, so that what is generated before it is left out.

  Args:
    subject: a run.

  Returns:
    Compiled (client, data) -> carry with generated data; (carry, data) -> carry after one step, to be compiled; and
    (client, data) -> the steps of a client.
  """
  bound = lambda data: bind(subject.task(data))
  begin = jax.jit(lambda client, data: bound(data).begin(client))
  step = lambda carry, data: bound(data).step(carry)
  return begin, step, lambda client, data: bound(data).steps(client.shard.size)


def training(subject: Subject) -> Callable[[ClientContext, federated.FederatedData], Any]:
  """Returns what runs a client's whole round without FedCOG."""
  others = chain(*(layer for layer in subject.method if not isinstance(layer, FedCOG)))
  alone = subject._replace(method=others)
  return jax.jit(lambda client, data: bind(alone.task(data)).update(client)[0])


def seconds(subject: Subject, samples: Sequence[int], client: int = 0) -> dict[str, float]:
  """Times one client, alone on the default device, compilation excluded.

  Args:
    subject: a run.
    samples: how many samples are generated, one program each.
    client: which client.

  Returns:
    Seconds by number of samples, as text, and of the client's local training under 'training'.
  """
  context, data = context_of(subject, client), subject.problem.data
  programs = {str(n): generator(with_fields(subject, samples=n)) for n in samples}
  measured = {}
  for name, program in {**programs, 'training': training(subject)}.items():
    jax.block_until_ready(program(context, data))
    taken = []
    for _ in range(REPEATS):
      begin = time.perf_counter()
      jax.block_until_ready(program(context, data))
      taken.append(time.perf_counter() - begin)
    measured[name] = statistics.median(taken)
  return measured


def draw(subject: Subject, steps: Sequence[int], path: pathlib.Path, client: int = 0) -> None:
  """Draws a client's data after several numbers of generation steps from the same noise, an image a class.

  Args:
    subject: a run.
    steps: of generation.
    path: where the picture goes.
    client: which client.
  """
  context, data = context_of(subject, client), subject.problem.data
  rows, labels = {}, []
  for count in steps:
    generated = jax.device_get(generator(with_fields(subject, steps=count))(context, data))
    labels, first = np.unique(generated.y, return_index=True)
    labels, first = labels[: figures.ACROSS], first[: figures.ACROSS]
    rows[f'{count} steps'] = generated.x[first]
  dataset = subject.problem.dataset
  title = (
    f'{dataset.title}, seed {subject.seed}: client {client} after round {int(subject.state.round)}'
  )
  figures.image_rows(rows, [str(label) for label in labels], dataset.normalisation, path, title)
