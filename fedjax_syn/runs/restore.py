"""Opens a finished run for inspection: its config, data, engine and the states of a seed."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedjax_syn import config as config_lib
from fedjax_syn.config import trusted as trust
from fedjax_syn.core.contexts import State
from fedjax_syn.engine import Engine, Layout
from fedjax_syn.runs import assemble, checkpoint, work_folder


class Opened(NamedTuple):
  """A run's folder, as far as its config says."""

  folder: Path
  config: config_lib.Resolved
  stored: dict[str, Any]  # config.json

  def checkpoints(self, seed: int) -> list[Path]:
    """Returns a seed's checkpoints, oldest first."""
    return checkpoint.list_sorted(self.folder / 'checkpoints', seed)

  def last(self, seeds: Sequence[int], earlier: bool = False) -> tuple[int, State] | None:
    """Returns the first seed whose last checkpoint holds a model, and its state; None without one.

    Args:
      seeds: to look at, in order.
      earlier: whether to use checkpoints before the last, of a seed that diverged.
    """
    for seed in seeds:
      saved = self.checkpoints(seed)
      for path in reversed(saved if earlier else saved[-1:]):
        if (state := checkpoint.read(path).tree) is not None:
          return seed, state
    return None


class Restored(NamedTuple):
  """A run with its data, its engine on one device, and a state of a seed."""

  config: config_lib.Resolved
  problem: assemble.Problem
  engine: Engine
  seed: int
  state: State

  @property
  def title(self) -> str:
    """Stands above figures."""
    return f'{self.problem.dataset.title}, seed {self.seed}'


def read(folder: Path, trusted: bool = False) -> Opened:
  """Reads a run's config.

  Args:
    folder: the run's.
    trusted: whether code that it names may be imported and called.

  Raises:
    FileNotFoundError: if it is no run's folder.
    ValueError: if its config is damaged, or names code and is not trusted.
  """
  stored = work_folder.config(folder)
  if stored is None:
    raise FileNotFoundError(f'workdir={folder}: holds no config.json; name the folder of a run')
  return Opened(folder, trust.check(stored['config'], folder, trusted), stored)


def restore(
  folder: Path | Opened,
  seed: int | None = None,
  round: int | None = None,
  *,
  data_dir: str | None = None,
  trusted: bool = False,
) -> Restored:
  """Opens a run at the end of one of its rounds.

  Args:
    folder: the run's, or what `read` returned of it.
    seed: which of its seeds; None: the first that has a model.
    round: which of the rounds that have a checkpoint; None: the last.
    data_dir: where the data set lies; None: where it lay for the run.
    trusted: whether code that the folder names may be imported and called.

  Raises:
    ValueError: if it has no such checkpoint, or as `read`.
    FileNotFoundError: if it is no run's folder, or its data set does not exist.
  """
  opened = folder if isinstance(folder, Opened) else read(folder, trusted)
  seeds = opened.config.seeds if seed is None else (seed,)
  if round is None:
    last = opened.last(seeds)
    if last is None:
      which = 'any seed' if seed is None else f'seed {seed}'
      raise ValueError(f'{opened.folder}: no checkpoint of {which} holds a model')
    seed, state = last
  else:
    seed = seeds[0]
    path = opened.folder / 'checkpoints' / str(round) / f'seed_{seed}'
    if not path.is_dir():
      raise ValueError(
        f'{opened.folder}: no checkpoint {path.relative_to(opened.folder)};'
        ' --config.keep_checkpoints=phases keeps those at ends of phases'
      )
    state = checkpoint.read(path).tree
  return bind(opened, seed, state, data_dir)


def bind(opened: Opened, seed: int, state: State, data_dir: str | None = None) -> Restored:
  """Loads a run's data and binds its method to them.

  Args:
    opened: from `read`.
    seed: of the state.
    state: from one of the run's checkpoints.
    data_dir: where the data set lies; None: where it lay for the run.

  Raises:
    FileNotFoundError: if the data set does not exist.
    ValueError: if it is not the run's.
  """
  config = opened.config
  if data_dir is not None:
    config = dataclasses.replace(config, data=dataclasses.replace(config.data, dir=data_dir))
  problem = assemble.load(on_device(config))
  if problem.dataset.checksum != opened.stored['dataset']['checksum']:
    raise ValueError(f'data.name={config.data.name!r}: differs from the data set of the run')
  engine = assemble.bind(config, problem, Layout(devices=1))
  return Restored(opened.config, problem, engine, seed, jax.tree.map(jnp.asarray, state))


def on_device(config: config_lib.Resolved) -> config_lib.Resolved:
  """Returns a config whose rows are on the device, where whoever looks into a run reads them."""
  return dataclasses.replace(config, data=dataclasses.replace(config.data, placement='device'))


def begin(config: Any, seed: int | None = None) -> Restored:
  """Returns a config's run before its first round; reads the data only and writes nothing.

  Args:
    config: a config, checked or not.
    seed: of the initial model; None: the config's first.

  Raises:
    ValueError: if the config is refused.
    FileNotFoundError: if its data set does not exist.
  """
  config = config_lib.check(config)
  seed = config.seeds[0] if seed is None else seed
  problem = assemble.load(on_device(config))
  engine = assemble.bind(config, problem, Layout(devices=1))
  return Restored(config, problem, engine, seed, engine.init(seed))
