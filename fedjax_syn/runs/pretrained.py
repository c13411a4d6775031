"""The model that a run begins with, where a file gives it (`model.weights`)."""

from collections.abc import Sequence

import jax

from fedjax_syn.core import paths
from fedjax_syn.core.contexts import State
from fedjax_syn.core.types import Variables
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
  lines = _begin(job, job.config.seeds[0])[1]
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
  engine = job.engine
  if not job.config.model.weights:
    return {seed: engine.init(seed) for seed in seeds}
  return {seed: engine.init(seed, _begin(job, seed)[0]) for seed in seeds}


def _begin(job: Job, seed: int) -> tuple[Variables, list[str]]:
  name = job.config.model.weights
  state = jax.device_get(job.engine.init(seed)._replace(clients={}))
  drawn = Variables(state.params, state.stats)
  path, where = paths.given(name, 'model.weights'), f'model.weights={name!r}'
  arrays = weights.read(path)
  return weights.fill(job.engine.model, job.problem.model, arrays, drawn, where)
