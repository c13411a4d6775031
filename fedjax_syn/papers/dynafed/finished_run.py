"""A finished run of DynaFed, opened again: its states, its data and its network."""

import pathlib
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedjax_syn import config as config_lib
from fedjax_syn.algorithms.dynafed.dynafed import DynaFed
from fedjax_syn.algorithms.dynafed.dynamics import real_and_noise
from fedjax_syn.algorithms.dynafed.synthetic_set import SyntheticSet
from fedjax_syn.core.contexts import State
from fedjax_syn.core.keys import Purpose, fold, stream
from fedjax_syn.core.types import PRNGKey
from fedjax_syn.data import federated
from fedjax_syn.engine import Engine
from fedjax_syn.runs import assemble, checkpoint, restore, work_folder


class Run(NamedTuple):
  """A finished run of DynaFed, as far as one seed goes."""

  opened: restore.Opened
  summary: dict
  seed: int
  states: list[State]  # of the checkpoints from the end of the synthesis on

  @property
  def config(self) -> config_lib.Resolved:
    """The run's."""
    return self.opened.config


def read_run(folder: pathlib.Path, seed: int | None, trusted: bool = False) -> Run:
  """Reads a run's folder.

  Args:
    folder: with a config.json.
    seed: which one; None is the first that did not diverge.
    trusted: whether code that the folder names may be imported and called.

  Returns:
    The run.

  Raises:
    ValueError: if it is not the folder of a finished run with a synthetic set, or the seed has none.
  """
  opened = restore.read(folder, trusted)
  config = opened.config
  summary = work_folder.summary(folder, config.seeds)
  if summary is None:
    raise ValueError(f'{folder}: is not finished; go on with launch/main.py --workdir={folder}')
  if DynaFed.name not in config.algorithm.split('+'):
    raise ValueError(f'{folder}: algorithm={config.algorithm!r} learns no synthetic set')
  finished = [s for s in config.seeds if summary['status'][str(s)]['status'] == 'finished']
  if not finished:
    raise ValueError(f'{folder}: no seed of the run finished, all diverged')
  if seed not in (None, *finished):
    have = ', '.join(map(str, finished))
    raise ValueError(
      f'{folder}: --seed={seed} did not finish or is none of the run; finished: {have}'
    )
  seed = finished[0] if seed is None else seed
  done = config.blocks[DynaFed.name].iterations
  by_round = {}  # of several checkpoints of a round the last: after the synthesis
  for path in opened.checkpoints(seed):
    state = checkpoint.read(path).tree
    if int(state.server[DynaFed.name].iteration) == done:
      by_round[int(state.round)] = state
  if not by_round:
    raise ValueError(f'{folder}: no checkpoint of seed {seed} holds a synthetic set')
  return Run(opened, summary, seed, [by_round[r] for r in sorted(by_round)])


class Subject(NamedTuple):
  """A run with its data and network, ready to be measured."""

  run: Run
  problem: assemble.Problem
  engine: Engine  # on one device
  title: str  # stands above the figures
  sets: dict[str, SyntheticSet]  # the learned set, and what it is compared with
  key: PRNGKey  # of everything that is drawn here


def open_subject(run: Run, data_dir: str | None) -> Subject:
  """Loads a run's data and makes what its synthetic set is compared with.

  Args:
    run: from `read_run`.
    data_dir: where the data set lies; None is where it lay for the run.

  Returns:
    The subject.

  Raises:
    ValueError: if the data set is not there, or not the run's.
  """
  restored = restore.bind(run.opened, run.seed, run.states[-1], data_dir)
  problem, data = restored.problem, restored.problem.data
  syn = jax.tree.map(jnp.asarray, restored.state.server[DynaFed.name].syn)
  key = stream(run.seed, Purpose.DIAGNOSE, 1)
  rows = jax.random.randint(fold(key, 0), (len(syn.x),), 0, len(data.y))
  x, y = federated.normalise(data, data.x[rows]), data.y[rows]
  others = real_and_noise(fold(key, 1), x, y, syn, problem.dataset.num_classes)
  return Subject(run, problem, restored.engine, restored.title, {'synthetic': syn, **others}, key)
