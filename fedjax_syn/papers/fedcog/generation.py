"""Generates again what a finished run of FedCOG generated: after any number of steps, and timed."""

import copy
import pathlib
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

from fedjax_syn import config as config_lib
from fedjax_syn.algorithms import chain
from fedjax_syn.algorithms.fedcog.fedcog import FedCOG, Generated
from fedjax_syn.chains import Chain
from fedjax_syn.client.local import Carry, LocalClient, bind, seen_by
from fedjax_syn.core.contexts import ClientContext, Task
from fedjax_syn.core.types import Array
from fedjax_syn.data.federated import FederatedData
from fedjax_syn.plotting import figures
from fedjax_syn.runs import restore
from fedjax_syn.runs.restore import Restored

REPEATS = 5
"""Of a timed program; the median counts."""
IMAGES = 20
"""In a row of a figure, at most."""
Program = Callable[[ClientContext, FederatedData], Any]


def open_run(folder: pathlib.Path, seed: int | None, trusted: bool = False) -> Restored:
  """Opens a run at the end of round T0, where generation begins.

  Args:
    folder: with a config.json, and a checkpoint of round T0, which runs of tables keep, and others
      with keep_checkpoints=phases.
    seed: which of its seeds; None: the first.
    trusted: whether code that the folder names may be imported and called.

  Raises:
    ValueError: if it is no run of FedCOG, has no such checkpoint, or its data set is not there.
  """
  opened = restore.read(folder, trusted)
  _check_generates(opened.config, str(folder))
  return restore.restore(opened, seed, opened.config.blocks[FedCOG.name].start)


def begin_run(config: ml_collections.ConfigDict, seed: int | None = None) -> Restored:
  """Returns a config's run at round T0, with its initial model instead of a trained one.

  Args:
    config: a config, checked or not.
    seed: of the initial model; None: the config's first.

  Raises:
    ValueError: if the config is refused or generates nothing, or its data set is not there.
  """
  checked = config_lib.check(config)
  _check_generates(checked, 'config')
  run = restore.begin(checked, seed)
  round = jnp.int32(checked.blocks[FedCOG.name].start)
  return run._replace(state=run.state._replace(round=round))


def _check_generates(config: config_lib.Resolved, where: str) -> None:
  if FedCOG.name not in config.algorithm.split('+'):
    raise ValueError(f'{where}: algorithm={config.algorithm!r} generates nothing')


def with_chain(run: Restored, method: Chain) -> Restored:
  """Returns the run with another method on the same model, data and state."""
  engine = copy.copy(run.engine)
  engine.chain = method
  return run._replace(engine=engine)


def with_fields(run: Restored, **fields: Any) -> Restored:
  """Returns the run with other fields of FedCOG."""
  return with_chain(run, run.engine.chain.replace(**{FedCOG.name: fields}))


def context_of(run: Restored, client: int) -> ClientContext:
  """Returns a client in round T0 + 1, as the run had it."""
  return run.engine.client_context(run.seed, run.state, client)


def _task(run: Restored, data: FederatedData) -> Task:
  """The task of round T0 + 1, with the data as an argument of a program."""
  return run.engine.task(int(run.state.round) + 1)._replace(data=data)


def generator(run: Restored) -> Callable[[ClientContext, FederatedData], Generated]:
  """Returns the compiled function that generates a client's data."""
  layer = run.engine.chain[FedCOG]
  generate = lambda client, data: layer.prepare(seen_by(layer, client, _task(run, data))).generated
  return jax.jit(generate)


def distilling(
  run: Restored,
) -> tuple[
  Callable[[ClientContext, FederatedData], Carry],
  Callable[[Carry, FederatedData], Carry],
  Callable[[ClientContext, FederatedData], Array],
]:
  """Returns the parts of local training with distillation, without the generation before it.

  Returns:
    Compiled (client, data) -> carry with generated data; (carry, data) -> carry after one step, to
    be compiled; and (client, data) -> the steps of a client.
  """

  def bound(data: FederatedData) -> LocalClient:
    client = bind(_task(run, data))
    assert isinstance(client, LocalClient)
    return client

  begin = jax.jit(lambda client, data: bound(data).begin(client))
  step = lambda carry, data: bound(data).step(carry)
  return begin, step, lambda client, data: bound(data).steps(client.shard.size)


def training(run: Restored) -> Program:
  """Returns the compiled function that trains a client for a whole round without FedCOG."""
  others = chain(*(layer for layer in run.engine.chain if not isinstance(layer, FedCOG)))
  alone = with_chain(run, others)
  return jax.jit(lambda client, data: bind(_task(alone, data)).update(client)[0])


def seconds(run: Restored, samples: Sequence[int], client: int = 0) -> dict[str, float]:
  """Times one client, alone on the default device, without compilation.

  Args:
    run: a run.
    samples: how many samples are generated, one program each.
    client: which client.

  Returns:
    Seconds by number of samples, as text, and of the client's local training under 'training'.
  """
  context, data = context_of(run, client), run.problem.data
  programs: dict[str, Program]
  programs = {str(n): generator(with_fields(run, samples=n)) for n in samples}
  measured = {}
  for name, program in {**programs, 'training': training(run)}.items():
    jax.block_until_ready(program(context, data))
    times = []
    for _ in range(REPEATS):
      begin = time.perf_counter()
      jax.block_until_ready(program(context, data))
      times.append(time.perf_counter() - begin)
    measured[name] = statistics.median(times)
  return measured


def draw(run: Restored, steps: Sequence[int], path: pathlib.Path, client: int = 0) -> None:
  """Draws an image of each class of a client after numbers of generation steps from one noise.

  Args:
    run: a run.
    steps: of generation.
    path: of the picture.
    client: which client.
  """
  context, data = context_of(run, client), run.problem.data
  rows: dict[str, np.ndarray] = {}
  for count in steps:
    generated = jax.device_get(generator(with_fields(run, steps=count))(context, data))
    labels, first = np.unique(generated.y, return_index=True)
    labels, first = labels[:IMAGES], first[:IMAGES]
    rows[f'{count} steps'] = generated.x[first]
    names = [str(label) for label in labels]
  dataset = run.problem.dataset
  title = f'{run.title}: client {client} after round {int(run.state.round)}'
  figures.image_rows(rows, names, dataset.normalisation, path, title)
