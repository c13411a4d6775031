"""The states that a run begins with: its own checkpoints', another run's, or new ones."""

from collections.abc import Sequence
from pathlib import Path

from fedjax_syn import config as config_lib
from fedjax_syn.core import paths, processes
from fedjax_syn.core.contexts import State
from fedjax_syn.core.types import Variables
from fedjax_syn.engine import Engine
from fedjax_syn.runs import checkpoint, progress, start_from
from fedjax_syn.runs.assemble import Job
from fedjax_syn.runs.recorder import Recorder


def _sources(config: config_lib.Resolved, seeds: Sequence[int]) -> dict[str, str]:
  """The checkpoints of another run that seeds begin at; none if they begin anew."""
  if not config.start_from or not seeds:
    return {}
  folder = paths.given(config.start_from, 'start_from')
  return processes.on_process_0(
    lambda: {
      str(s): str(p) for s, p in start_from.find(folder, tuple(seeds), config.rounds).items()
    }
  )


def try_branch(job: Job) -> None:
  """Refuses another run's checkpoint that does not fit; seeds that have one of their own need it no more."""
  saved = processes.on_process_0(
    lambda: [str(p) for p in checkpoint.found(job.folder / 'checkpoints')]
  )
  begun = {checkpoint.seed_of(Path(path)) for path in saved}
  sources = _sources(job.config, [seed for seed in job.config.seeds if seed not in begun])
  for seed, path in sources.items():
    _branch(job.engine, path, int(seed), progress.Reporter())


def begin(
  job: Job,
  recorder: Recorder,
  seeds: Sequence[int],
  show: progress.Reporter,
) -> tuple[dict[int, State], bool]:
  """The states to begin or to go on from, and which of the two it is."""
  if states := recorder.resume(seeds):
    return states, True
  if sources := _sources(job.config, seeds):
    return {seed: _branch(job.engine, sources[str(seed)], seed, show) for seed in seeds}, False
  return {seed: job.engine.init(seed) for seed in seeds}, False


def _branch(engine: Engine, source: str, seed: int, show: progress.Reporter) -> State:
  """The state of another run's checkpoint, as far as it fits."""
  old = processes.tree_from_process_0(lambda: checkpoint.read(Path(source)).tree)
  start = start_from.match(old, engine.init(seed), source, engine.chain.recording)
  if start.initialised:  # of the old model: a client's own head, say, or its own model
    begun = engine.init(seed, Variables(start.state.params, start.state.stats))
    start = start_from.match(old, begun, source, engine.chain.recording)
  dropped, initialised = (
    ', '.join(names) or 'nothing' for names in (start.dropped, start.initialised)
  )
  show.say(f'seed {seed} starts from {source}; dropped: {dropped}; initialised: {initialised}')
  return start.state
