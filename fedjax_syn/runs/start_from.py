"""Beginning a new run from another run's checkpoint: a branch, not a resume."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedjax_syn.core import paths
from fedjax_syn.core.contexts import State
from fedjax_syn.core.types import PyTree
from fedjax_syn.runs import checkpoint


class Branch(NamedTuple):
  """A state to begin from, and what became of the parts of the old one."""

  state: State
  dropped: list[str]  # in the checkpoint, unknown to the new method
  initialised: list[str]  # in the new method, not in the checkpoint (or of another shape)


def find(folder: Path, seeds: tuple[int, ...], rounds: int) -> dict[int, Path]:
  """Finds every seed's checkpoint in a folder like W/checkpoints/50.

  Args:
    folder: the checkpoints of one round.
    seeds: the new run's seeds.
    rounds: the new run's last round.

  Returns:
    The first checkpoint that each seed saved at this round: the one before any work between rounds.

  Raises:
    FileNotFoundError: if the folder or a seed is missing.
    ValueError: if the new run ends before it.
  """
  named = [(checkpoint.NAME.fullmatch(p.name), p) for p in folder.glob('seed_*')]
  by_seed: dict[int, list[tuple[int, Path]]] = {}
  for match, path in named:
    if match:
      by_seed.setdefault(int(match[1]), []).append((int(match[2] or 0), path))
  if not by_seed or not folder.name.isdecimal():
    rounds_there = sorted({int(p.parent.name) for p in checkpoint.found(folder.parent)})
    hint = f'; rounds there: {", ".join(map(str, rounds_there))}' if rounds_there else ''
    raise FileNotFoundError(
      f'start_from={folder}: no checkpoints here, W/checkpoints/<round> is wanted{hint}'
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


def digests(start_from: str, seeds: tuple[int, ...], rounds: int) -> dict[str, str]:
  """Returns a checksum of every seed's checkpoint in which a run begins; nothing where they are not there (any more).

  Args:
    start_from: the folder of the checkpoints, '' for none.
    seeds: the run's.
    rounds: the run's last round.
  """
  if not start_from:
    return {}
  try:
    sources = find(paths.given(start_from), seeds, rounds)
    return {
      str(seed): hashlib.sha256((path / checkpoint.CHECKSUMS).read_bytes()).hexdigest()
      for seed, path in sources.items()
    }
  except (ValueError, OSError):
    return {}


def match(old: State | None, new: State, source: str, records: Sequence[str] = ()) -> Branch:
  """Carries a state over to another method, part by part, by the names of its layers.

  Args:
    old: the checkpoint's state; None is what a diverged seed leaves.
    new: the new method's state at round 0.
    source: the checkpoint, for the message.
    records: server parts that record every round from the first on (`Chain.recording`).

  Returns:
    The new state: round, parameters and statistics of the old one, and of its parts those that the new
    method has too; all others as they were in `new`.

  Raises:
    ValueError: if the models differ, or there is no record of the rounds before where one is needed.
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
        f'start_from={source}: {name!r} records every round from the first on, and this checkpoint has no such'
        f' record, or one of other sizes; begin anew, or at a checkpoint of a run with {name!r} and the same settings'
      )
  state = old._replace(**parts)
  # The same leaves in the same order, in the new method's own containers.
  start = jax.tree.unflatten(jax.tree.structure(new), jax.tree.leaves(state))
  # Per-client state stays what it is, numpy or not: the engine puts it where it keeps it.
  moved = jax.tree.map(jnp.asarray, start._replace(clients={}))
  return Branch(moved._replace(clients=start.clients), dropped, initialised)


def _difference(old: PyTree, new: PyTree) -> str | None:
  """Names the first leaf that one tree has otherwise than the other, or returns None."""

  def shapes(tree: PyTree) -> dict[str, Any]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {
      jax.tree_util.keystr(path): (tuple(leaf.shape), str(leaf.dtype)) for path, leaf in leaves
    }

  a, b = shapes(old), shapes(new)
  differing = [path for path in {**a, **b} if a.get(path) != b.get(path)]
  if not differing:
    return None
  path = differing[0]
  show = lambda leaf: 'is absent' if leaf is None else f'is {leaf[1]}{list(leaf[0])}'
  return f'{path} {show(a.get(path))} there and {show(b.get(path))} here'
