"""The files of a finished seed beside its checkpoints: written, and made again from the last checkpoint where they are damaged."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedjax_syn import checkpoint, hosts, recorder, results, run_folder, stored
from fedjax_syn.assemble import Job, Problem
from fedjax_syn.loop import Evaluators
from fedjax_syn.method import State
from fedjax_syn.typing import PyTree

Measure = Callable[[int, State], Any]  # (seed, state) -> the engine's `Personal`
Say = Callable[[str], None]


def measures(job: Job, problem: Problem) -> tuple[Evaluators, Measure | None]:
  """Returns what a run is measured by: evaluators by split, and what measures personal models, None if nobody asked."""
  config, engine, dataset = job.config, job.engine, problem.dataset
  splits = {'test': dataset.test, 'validation': dataset.validation}
  splits |= {f'test/{name}': split for name, split in dataset.test_by_domain().items()}
  evaluators = {
    k: engine.evaluator(s.x, s.y) for k, s in splits.items() if s is not None and len(s.y)
  }
  test = dataset.test
  personal = config.personal_every and engine.personal(test.x, test.y, problem.test_owners)
  return evaluators, personal or None


def of_clients(evaluators: Evaluators, problem: Problem, state: State) -> tuple[Any, Any]:
  """Returns what the global model comes to: by class, and for each client; see `results.save_clients`."""
  model, test = (state.params, state.stats), evaluators['test']
  by_class, owners = test.by_class(*model), problem.test_owners
  if owners is not None:
    return by_class, test.by_owner(*model, owners, len(problem.counts))
  return by_class, results.own_accuracy(problem.counts, by_class)


def write(
  job: Job,
  problem: Problem,
  seed: int,
  state: State,
  model: tuple[Any, Any],
  own: Any,
  say: Say,
) -> dict[str, str]:
  """Writes what a seed leaves in its last round.

  Args:
    job: the run.
    problem: its data.
    seed: which.
    state: its last.
    model: see `of_clients`.
    own: what personal models came to; None if it was not measured.
    say: told what cannot be drawn.

  Returns:
    Digests of the files by their path in the folder; see `run_folder.digests`.
  """
  folder, seeds = job.folder, job.config.seeds
  results.save_clients(folder, seed, *model, own, problem.client_names)
  first = seed == seeds[0]
  results.save_synthetic(folder, problem.dataset, seed, first, job.engine.synthetic(state), say)
  learned = Path(run_folder.set_file(seed, seeds))
  names = [run_folder.clients_file(seed), str(learned), str(learned.with_suffix('.png'))]
  names.append(f'figures/{learned.stem}.png')
  if first:
    distances = job.engine.diagnose(seed, state)
    results.attempt(say, results.draw_dynamics, folder, problem.dataset, seed, distances)
    names.append('figures/dynamics.png')
  return run_folder.digests(folder, names)


def again(
  job: Job,
  problem: Problem,
  measured: tuple[Evaluators, Measure | None],
  summary: Mapping[str, Any],
  say: Say,
  writes: bool,
) -> dict[str, dict[str, str]]:
  """Makes the files of finished seeds that are missing or damaged: a kill may have come before they were written.

  Args:
    job: the run.
    problem: its data.
    measured: see `measures`.
    summary: the run's; `files` has digests by seed, and none at all in an older version's.
    say: told what cannot be made again.
    writes: whether this process writes.

  Returns:
    The digests, those of what was made again now among them.
  """
  out = {key: dict(named) for key, named in summary.get('files', {}).items()}
  evaluators, personal = measured

  def incomplete(seed):
    ended = summary['status'][str(seed)]['status'] == 'finished'
    if 'files' in summary and ended and str(seed) not in out:
      return True
    return bool(run_folder.faults(job.folder, out.get(str(seed), {})))

  for seed in job.config.seeds:
    if not hosts.first(lambda seed=seed: incomplete(seed)):
      continue
    try:
      tree = hosts.first_tree(lambda seed=seed: last_tree(job.folder, seed, job.config.rounds))
    except ValueError as error:
      say(f'WARNING: {error}; nothing of seed {seed} can be made again from it')
      continue
    state = recorder.placed(tree)
    model = of_clients(evaluators, problem, state)
    own = personal(seed, state) if personal else None
    if writes:
      out[str(seed)] = write(job, problem, seed, state, model, own, say)
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
    raise stored.StoredError(f'{folder}: no checkpoint of seed {seed} holds the last model')
  return tree
