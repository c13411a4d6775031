"""The files of a finished seed beside its checkpoints: written, and made again from the last checkpoint where they are damaged."""

import collections
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedjax_syn.core import processes
from fedjax_syn.core.types import PyTree
from fedjax_syn.engine.measures import END, Measure, Values, of_rounds, take
from fedjax_syn.runs import checkpoint, recorder, run_folder, stored_files
from fedjax_syn.runs import summary as results
from fedjax_syn.runs.assemble import Job, Problem

Say = Callable[[str], None]


def measures(job: Job, problem: Problem) -> tuple[Measure, ...]:
  """Returns what a run is measured by."""
  config, engine, dataset = job.config, job.engine, problem.dataset
  test, owners, every = dataset.test, problem.test_owners, config.personal_every
  splits = {'test': test, 'validation': dataset.validation}
  splits |= {f'test/{name}': split for name, split in dataset.test_by_domain().items()}
  evaluators = {
    k: engine.evaluator(s.x, s.y) for k, s in splits.items() if s is not None and len(s.y)
  }

  def of_clients(seed, state):
    """What the global model comes to: by class, and for each client; see `results.save_clients`."""
    model, evaluate = (state.params, state.stats), evaluators['test']
    if (by_class := evaluate.by_class(*model)) is None:
      return {}
    if owners is None:
      own = results.own_accuracy(problem.counts, by_class)
    else:
      own = evaluate.by_owner(*model, owners, len(problem.counts))
    return {'class_accuracy': by_class, 'global_accuracy': own}

  def diagnosis(seed, state):
    return {'distances': engine.diagnose(seed, state) if seed == config.seeds[0] else {}}

  learned = lambda seed, state: {'set': engine.artifacts(state)}
  ends = {'clients': of_clients, 'learned': learned, 'diagnosis': diagnosis}
  personal = engine.personal(test.x, test.y, owners) if every else None
  return (
    *of_rounds(evaluators, personal, every, config.rounds),
    *(Measure(name, lambda moment: moment == END, of) for name, of in ends.items()),
  )


def write(
  job: Job, problem: Problem, seed: int, measured: Mapping[str, Values], say: Say
) -> dict[str, str]:
  """Writes what a seed leaves in its last round.

  Args:
    job: the run.
    problem: its data.
    seed: which.
    measured: its last state, by measure.
    say: told what cannot be drawn.

  Returns:
    Digests of the files by their path in the folder; see `run_folder.digests`.
  """
  folder, dataset, seeds = job.folder, problem.dataset, job.config.seeds
  first = seed == seeds[0]
  arrays = collections.ChainMap(*measured.values())
  results.save_clients(folder, seed, arrays, problem.client_names)
  results.save_synthetic(folder, dataset, seed, first, arrays['set'], say)
  learned = Path(run_folder.set_file(seed, seeds))
  names = [run_folder.clients_file(seed), str(learned), str(learned.with_suffix('.png'))]
  names.append(f'figures/{learned.stem}.png')
  if first:
    results.attempt(say, results.draw_dynamics, folder, dataset, seed, arrays['distances'])
    names.append('figures/dynamics.png')
  return run_folder.digests(folder, names)


def again(
  job: Job,
  problem: Problem,
  measures: tuple[Measure, ...],
  summary: Mapping[str, Any],
  say: Say,
  writes: bool,
) -> dict[str, dict[str, str]]:
  """Makes the files of finished seeds that are missing or damaged: a kill may have come before they were written.

  Args:
    job: the run.
    problem: its data.
    measures: of the run.
    summary: the run's; `files` has digests by seed, and none at all in an older version's.
    say: told what cannot be made again.
    writes: whether this process writes.

  Returns:
    The digests, those of what was made again now among them.
  """
  out = {key: dict(named) for key, named in summary.get('files', {}).items()}

  def incomplete(seed):
    ended = summary['status'][str(seed)]['status'] == 'finished'
    if 'files' in summary and ended and str(seed) not in out:
      return True
    return bool(run_folder.faults(job.folder, out.get(str(seed), {})))

  for seed in job.config.seeds:
    if not processes.on_process_0(lambda seed=seed: incomplete(seed)):
      continue
    try:
      tree = processes.tree_from_process_0(
        lambda seed=seed: last_tree(job.folder, seed, job.config.rounds)
      )
    except ValueError as error:
      say(f'WARNING: {error}; nothing of seed {seed} can be made again from it')
      continue
    state = recorder.placed(tree)
    measured = take(measures, END, seed, state)
    if writes:
      out[str(seed)] = write(job, problem, seed, measured, say)
  return out


def last_tree(folder: Path, seed: int, rounds: int) -> PyTree:
  """Returns the tree of a seed's last checkpoint of a run's last round.

  Args:
    folder: the run's.
    seed: which.
    rounds: the run's; the model of an earlier round would come to other numbers.

  Raises:
    StoredError: if there is none, or it is damaged.
  """
  there = [p for p in checkpoint.found(folder / 'checkpoints') if p.parent.name == str(rounds)]
  paths = [path for path in there if checkpoint.seed_of(path) == seed]
  tree = checkpoint.read(paths[-1]).tree if paths else None
  if tree is None:
    raise stored_files.StoredError(f'{folder}: no checkpoint of seed {seed} holds the last model')
  return tree
