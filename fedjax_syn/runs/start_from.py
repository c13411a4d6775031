"""Starting a new run from another run's checkpoint (`start_from`): a branch, not a resumed run."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import jax

from fedjax_syn.config import Resolved
from fedjax_syn.core import paths, processes
from fedjax_syn.core.contexts import State
from fedjax_syn.core.types import PyTree, Variables
from fedjax_syn.engine import Engine
from fedjax_syn.runs import checkpoint


class Branch(NamedTuple):
  """A state to start from."""

  state: State
  dropped: list[str]
  """Parts of the checkpoint that the new method does not know."""
  initialised: list[str]
  """Parts of the new method that the checkpoint lacks, or has in another shape."""


def find(folder: Path, seeds: Sequence[int], rounds: int) -> dict[int, Path]:
  """Returns every seed's checkpoint in a folder such as W/checkpoints/50.

  Args:
    folder: the checkpoints of one round.
    seeds: the new run's.
    rounds: the new run's last round.

  Returns:
    By seed, the first checkpoint of this round: the one before any work between rounds.

  Raises:
    FileNotFoundError: if the folder or a seed is missing.
    ValueError: if the new run ends before it.
  """
  by_seed: dict[int, list[tuple[int, Path]]] = {}
  for path in folder.glob('seed_*'):
    if name := checkpoint.NAME.fullmatch(path.name):
      by_seed.setdefault(int(name[1]), []).append((int(name[2] or 0), path))
  if not by_seed or not folder.name.isdecimal():
    existing = sorted({int(p.parent.name) for p in checkpoint.list_unsorted(folder.parent)})
    kept = '; keep_checkpoints=phases keeps ends of phases too'
    hint = f'; rounds there: {", ".join(map(str, existing))}{kept}' if existing else ''
    raise FileNotFoundError(
      f'start_from={folder}: no checkpoints here, name W/checkpoints/<round>{hint}'
    )
  missing = [seed for seed in seeds if seed not in by_seed]
  if missing:
    have = ', '.join(map(str, sorted(by_seed)))
    raise FileNotFoundError(
      f'start_from={folder}: no checkpoint of seed {missing[0]}; seeds there: {have}'
    )
  if int(folder.name) >= rounds:
    raise ValueError(f'start_from={folder}: rounds={rounds} must be greater than {folder.name}')
  return {seed: min(by_seed[seed])[1] for seed in seeds}


def digests(start_from: str, seeds: Sequence[int], rounds: int) -> dict[str, str]:
  """Returns a checksum of every seed's checkpoint to start from; {} where they do not exist.

  Args:
    start_from: the folder of the checkpoints; '' is none.
    seeds: the run's.
    rounds: the run's last round.
  """
  if not start_from:
    return {}
  try:
    sources = find(paths.given(start_from), seeds, rounds)
    return {str(seed): paths.digest(p / checkpoint.CHECKSUMS) for seed, p in sources.items()}
  except (ValueError, OSError):
    return {}


def match(old: State | None, new: State, source: str, records: Sequence[str] = ()) -> Branch:
  """Carries a state over to another method, part by part, by the names of its layers.

  Args:
    old: the checkpoint's state; None is what a diverged seed leaves.
    new: the new method's state at round 0.
    source: the checkpoint, for messages.
    records: server parts that record every round from the first on (`Chain.recording`).

  Returns:
    The new state: round, parameters and statistics of the old one, and those of its parts that the
    new method has too; all others as in `new`.

  Raises:
    ValueError: if the models differ, or a record of the rounds before is needed and missing.
  """
  if old is None:
    raise ValueError(f'start_from={source}: this seed diverged; there is no state to begin from')
  for part in ('params', 'stats'):
    if (difference := _difference(getattr(old, part), getattr(new, part))) is not None:
      raise ValueError(f'start_from={source}: holds another model; {part}{difference}')
  dropped, initialised, parts = [], [], {}
  for side in ('server', 'clients'):
    had, wanted = getattr(old, side), getattr(new, side)
    fits = {k for k in wanted if k in had and _difference(had[k], wanted[k]) is None}
    dropped += [f'{side}.{k}' for k in sorted(set(had) - set(wanted))]
    initialised += [f'{side}.{k}' for k in sorted(set(wanted) - fits)]
    parts[side] = {k: had[k] if k in fits else v for k, v in wanted.items()}
  for name in records:
    if f'server.{name}' in initialised:
      raise ValueError(
        f'start_from={source}: {name!r} records every round from the first on, and this checkpoint'
        f' has no such record, or one of other sizes; begin anew, or at a checkpoint of a run with'
        f' {name!r} and the same settings'
      )
  state = old._replace(server=parts['server'], clients=parts['clients'])
  # The same leaves in the same order, in the new method's own containers.
  start = jax.tree.unflatten(jax.tree.structure(new), jax.tree.leaves(state))
  return Branch(checkpoint.to_device(start), dropped, initialised)


def _difference(old: PyTree, new: PyTree) -> str | None:
  """Describes the first leaf in which two trees differ; None if there is none."""

  def shapes(tree):
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {
      jax.tree_util.keystr(path): f'is {leaf.dtype}{list(leaf.shape)}' for path, leaf in leaves
    }

  a, b = shapes(old), shapes(new)
  for path in {**a, **b}:
    if a.get(path) != b.get(path):
      return f'{path} {a.get(path, "is absent")} there and {b.get(path, "is absent")} here'
  return None


def sources(config: Resolved, seeds: Sequence[int]) -> dict[str, str]:
  """Returns the checkpoints of another run that seeds start from, by seed; {} for new models."""
  if not config.start_from or not seeds:
    return {}
  folder = paths.given(config.start_from, 'start_from')
  return processes.on_process_0(
    lambda: {str(seed): str(p) for seed, p in find(folder, seeds, config.rounds).items()}
  )


def check(engine: Engine, config: Resolved, folder: Path) -> None:
  """Checks that the checkpoints to start from fit; a seed with its own needs none.

  Args:
    engine: the run's.
    config: the run's.
    folder: the run's.

  Raises:
    ValueError: if one does not fit; see `match`.
  """
  saved = processes.on_process_0(
    lambda: [checkpoint.seed_of(p) for p in checkpoint.list_unsorted(folder / 'checkpoints')]
  )
  branches(engine, sources(config, [s for s in config.seeds if s not in saved]), lambda _: None)


def branches(
  engine: Engine, sources: Mapping[str, str], say: Callable[[str], None]
) -> dict[int, State]:
  """Returns the states of another run's checkpoints, as far as they fit.

  Args:
    engine: of the new run.
    sources: the checkpoints by seed.
    say: told what was dropped and what is new.
  """
  records, states = engine.chain.recording, {}
  for seed, source in ((int(seed), source) for seed, source in sources.items()):
    old = processes.tree_from_process_0(lambda: checkpoint.read(Path(source)).tree)
    start = match(old, engine.init(seed), source, records)
    if start.initialised:  # from the old model: a client's own head, for instance
      begin = Variables(start.state.params, start.state.stats)
      start = match(old, engine.init(seed, begin), source, records)
    dropped, initialised = (', '.join(names) or 'nothing' for names in start[1:])
    say(f'seed {seed} starts from {source}; dropped: {dropped}; initialised: {initialised}')
    states[seed] = start.state
  return states
