"""Early stopping and the best model, by the accuracy on held-out training rows alone."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fedjax_syn.core.contexts import State
from fedjax_syn.core.types import Variables
from fedjax_syn.runs import metrics, stored_files, work_folder

KEY = 'validation/accuracy'


def best_line(lines: Sequence[metrics.Line], seed: int) -> metrics.Line | None:
  """Returns a seed's line with the highest accuracy on held-out rows, the first of equal ones.

  Args:
    lines: metrics lines.
    seed: which.
  """
  return max(
    (m for m in lines if m['seed'] == seed and KEY in m), key=lambda m: m[KEY], default=None
  )


def is_over(lines: Sequence[metrics.Line], seed: int, patience: int) -> bool:
  """Returns whether so many evaluations of a seed have followed its best one.

  Args:
    lines: metrics lines, in the order of rounds.
    seed: which.
    patience: evaluations; 0: never over.
  """
  best = best_line(lines, seed)
  if not patience or best is None:
    return False
  return sum(m['seed'] == seed and m['round'] > best['round'] for m in lines) >= patience


def selected(lines: Sequence[metrics.Line], seeds: Sequence[int], diverged: Sequence[int]) -> Any:
  """Returns what the models reach that held-out rows select: `metrics.statistics` by name.

  Args:
    lines: metrics lines of all seeds.
    seeds: the run's, in order.
    diverged: seeds that have no result.
  """
  best = [None if seed in diverged else best_line(lines, seed) for seed in seeds]
  of = lambda key: metrics.statistics([None if m is None else m.get(key) for m in best])
  return {
    'round': of('round'),
    'test_accuracy': of('test/accuracy'),
    'validation_accuracy': of(KEY),
  }


def best_file(folder: Path, seed: int) -> Path:
  """Returns where a seed's best model is kept."""
  return folder / 'best' / f'seed_{seed}.npz'


def save_best(folder: Path, seed: int, line: metrics.Line, state: State) -> None:
  """Writes a model as arrays by path, 'params.body.dense_0.kernel', with 'round' and its accuracy.

  Args:
    folder: the run's.
    seed: which.
    line: of its evaluation.
    state: holds the model.
  """
  arrays = named_arrays(Variables(state.params, state.stats))
  path = best_file(folder, seed)
  path.parent.mkdir(exist_ok=True)
  about = {'round': np.int64(line['round']), 'validation_accuracy': np.float64(line[KEY])}
  stored_files.write_arrays(path, arrays | about)


def note_digests(
  folder: Path,
  seeds: Sequence[int],
  files: dict[str, dict[str, str]],
  say: Callable[[str], None],
) -> None:
  """Adds the digests of the best models to those of a finished run, unless they are known.

  Args:
    folder: the run's.
    seeds: its own.
    files: `files` of summary.json; changed in place.
    say: told which of them are missing or damaged.
  """
  paths = (best_file(folder, seed).relative_to(folder).as_posix() for seed in seeds)
  if known := files.get(work_folder.BEST) or work_folder.digests(folder, paths):
    files[work_folder.BEST] = known
    for line in work_folder.faults(folder, known):
      say(f'WARNING: {line}; no checkpoint holds this model')


def load_best(folder: Path, seed: int, shapes: Variables) -> Variables:
  """Reads what `save_best` wrote.

  Args:
    folder: the run's.
    seed: which.
    shapes: of the model's variables.

  Raises:
    FileNotFoundError: if it was not kept.
    DamagedError: if it is damaged, missing or another model's.
  """
  path = best_file(folder, seed)
  files = (work_folder.summary(folder) or {}).get('files', {}).get(work_folder.BEST, {})
  name = path.relative_to(folder).as_posix()
  for line in work_folder.faults(folder, {k: v for k, v in files.items() if k == name}):
    raise stored_files.DamagedError(line)
  arrays = stored_files.read_arrays(path)
  if not arrays:
    raise FileNotFoundError(
      f'{path}: no best model was kept; --config.keep_best=True with --config.data.validation=0.1'
      ' keeps it'
    )
  return from_named(shapes, arrays, str(path))


def named_arrays(variables: Variables) -> dict[str, np.ndarray]:
  """Returns the leaves of a model by their paths, 'params.body.dense_0.kernel'."""
  named = jax.tree_util.tree_leaves_with_path(variables)
  of = lambda path: jax.tree_util.keystr(path, simple=True, separator='.')
  return {of(path): np.asarray(leaf) for path, leaf in named}


def from_named(shapes: Variables, arrays: Mapping[str, np.ndarray], where: str) -> Variables:
  """Returns a model of arrays by their paths.

  Args:
    shapes: of the model's variables.
    arrays: as `named_arrays` returns them; others are ignored.
    where: the file, for the message.

  Raises:
    DamagedError: if one is missing or of another shape.
  """
  leaves = []
  for path, leaf in jax.tree_util.tree_leaves_with_path(shapes):
    name = jax.tree_util.keystr(path, simple=True, separator='.')
    if name not in arrays or arrays[name].shape != leaf.shape:
      raise stored_files.DamagedError(f'{where} is not a model of this run: {name} does not fit')
    leaves.append(arrays[name])
  return jax.tree.unflatten(jax.tree.structure(shapes), leaves)
