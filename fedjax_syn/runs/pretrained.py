"""The model that a run begins with, where a file gives it (`model.weights`)."""

from collections.abc import Sequence

import jax

from fedjax_syn.core import paths
from fedjax_syn.core.contexts import State
from fedjax_syn.core.types import Model, Variables
from fedjax_syn.engine import Engine
from fedjax_syn.models import weights
from fedjax_syn.runs.assemble import Job


def check(job: Job) -> list[str]:
  """Returns lines that say which array of the file is which; [] without a file.

  Arrays that have the network's own names are only counted.

  Raises:
    ValueError: if the file cannot be read or does not fit.
  """
  name = job.config.model.weights
  if not name:
    return []
  lines = _filled(job.engine, job.problem.model, name, job.config.seeds[0])[1]
  mapped = [line for line in lines if ' from ' in line]
  fresh = [line.partition(' ')[0] for line in lines if ' from ' not in line]
  said = f'model.weights={name!r}: {len(mapped)} arrays'
  said += f'; made anew for every seed: {", ".join(fresh)}' if fresh else ''
  renamed = [m for m in mapped if m.partition(' ')[0] != m.rpartition(' ')[2]]
  return [said, *renamed]


def init(job: Job, seeds: Sequence[int]) -> dict[int, State]:
  """Returns the states at round 0, by seed: from the file, or drawn.

  Args:
    job: the run.
    seeds: its own; a head that the file lacks is drawn for each.
  """
  name, model = job.config.model.weights, job.problem.model
  return {seed: begin(job.engine, model, name, seed) for seed in seeds}


def begin(engine: Engine, model: Model, name: str, seed: int) -> State:
  """Returns the state at round 0.

  Args:
    engine: of the method.
    model: the network, without the changes of the method.
    name: the file; '': none, and the weights are drawn.
    seed: of the run.

  Raises:
    ValueError: if the file cannot be read or does not fit.
  """
  return engine.init(seed, _filled(engine, model, name, seed)[0]) if name else engine.init(seed)


def _filled(engine: Engine, model: Model, name: str, seed: int) -> tuple[Variables, list[str]]:
  state = jax.device_get(engine.init(seed)._replace(clients={}))
  drawn = Variables(state.params, state.stats)
  path, where = paths.given(name, 'model.weights'), f'model.weights={name!r}'
  arrays = weights.read(path)
  return weights.fill(engine.model, model, arrays, drawn, where)
