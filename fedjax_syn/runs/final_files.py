"""The files of a finished run beside its checkpoints: what a seed leaves, and the figures."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedjax_syn.core import processes, texts
from fedjax_syn.core.contexts import State
from fedjax_syn.data.dataset import Dataset
from fedjax_syn.engine.measures import END, Measure, Values, take
from fedjax_syn.runs import assemble, checkpoint, metrics, stored_files, work_folder
from fedjax_syn.runs.assemble import Job, Problem

Say = Callable[[str], None]


def measures(job: Job, problem: Problem) -> tuple[Measure, ...]:
  """Returns what a run measures in evaluated rounds and at the end of a seed."""
  config, engine, dataset = job.config, job.engine, problem.dataset
  splits = {'test': dataset.test, 'validation': dataset.validation}
  splits |= {f'test/{name}': split for name, split in dataset.test_by_domain().items()}
  evaluators = assemble.evaluators(engine, splits)

  def of_clients(seed, state):
    """Test accuracy of the global model by class and for each client; see `write`."""
    model, evaluate = (state.params, state.stats), evaluators['test']
    if (by_class := evaluate.by_class(*model)) is None:
      return {}
    if problem.test_owners is None:
      own = own_accuracy(problem.counts, by_class)
    else:
      own = evaluate.by_owner(*model, problem.test_owners, len(problem.counts))
    return {'class_accuracy': by_class, 'global_accuracy': own}

  def diagnosis(seed, state):
    return {'distances': engine.diagnose(seed, state) if seed == config.seeds[0] else {}}

  learned = lambda seed, state: {'set': engine.artifacts(state)}
  ends = {'clients': of_clients, 'learned': learned, 'diagnosis': diagnosis}
  return (
    *assemble.round_measures(engine, problem, evaluators, config.personal_every, config.rounds),
    *(Measure(name, lambda moment: moment == END, of) for name, of in ends.items()),
  )


def own_accuracy(counts: np.ndarray, by_class: np.ndarray) -> np.ndarray:
  """Returns one model's accuracy for each client, on test rows weighted like the client's labels.

  Args:
    counts: samples, [clients, classes].
    by_class: the model's accuracy on each class's test rows, [classes]; nan for a class without.

  Returns:
    [clients], nan for a client without a sample of a class that the test split has. Source: FedCOG,
    A.4.
  """
  held = np.where(np.isnan(by_class), 0, counts)
  total = held.sum(axis=1)
  right = held @ np.nan_to_num(by_class)
  return np.divide(right, total, out=np.full(len(total), np.nan), where=total > 0)


def write(
  job: Job, problem: Problem, seed: int, measured: Mapping[str, Values], say: Say
) -> dict[str, str]:
  """Writes what a seed leaves after its last round.

  `clients/seed_<seed>.npz` has 'class_accuracy', the global model's test accuracy by class,
  [classes]; 'global_accuracy', its accuracy for each client, on the client's own test rows if the
  data name their owners, else `own_accuracy`, [clients]; 'personal_accuracy', that of the personal
  models, [clients]; nan where it cannot be measured. What was not measured is left out.

  Args:
    job: the run.
    problem: its data.
    seed: which.
    measured: its last state, by measure.
    say: told what cannot be drawn.

  Returns:
    Digests of the files by their path in the folder; see `work_folder.digests`.
  """
  folder, dataset, seeds = job.folder, problem.dataset, job.config.seeds
  arrays = {key: value for values in measured.values() for key, value in values.items()}
  clients = work_folder.clients_file(seed)
  kept = ('class_accuracy', 'global_accuracy', 'personal_accuracy')
  if own := {key: arrays[key] for key in kept if key in arrays}:
    names = {'client_names': np.array(problem.client_names)} if problem.client_names else {}
    stored_files.write_arrays(folder / clients, own | names)
  learned = Path(work_folder.set_file(seed, seeds))
  picture, copy = learned.with_suffix('.png'), Path(f'figures/{learned.stem}.png')
  if arrays['set'] is not None:
    normalisation = dataset.normalisation
    mean, std = (np.asarray(v, np.float32) for v in (normalisation.mean, normalisation.std))
    stored_files.write_arrays(folder / learned, {**arrays['set'], 'mean': mean, 'std': std})
    pictures = folder / picture, folder / copy
    attempt(say, _draw_set, dataset, seed, arrays['set'], *pictures)
  written = [clients, str(learned), str(picture), str(copy)]
  if seed == seeds[0]:
    attempt(say, _draw_dynamics, folder, dataset, seed, arrays['distances'])
    written.append('figures/dynamics.png')
  return work_folder.digests(folder, written)


def restore(
  job: Job,
  problem: Problem,
  measures: tuple[Measure, ...],
  summary: Mapping[str, Any],
  say: Say,
  writes: bool,
) -> dict[str, dict[str, str]]:
  """Writes the missing or damaged files of finished seeds again, from their last checkpoints.

  Args:
    job: the run.
    problem: its data.
    measures: of the run.
    summary: the run's; `files` has digests by seed, and none in an older version's.
    say: told what cannot be restored.
    writes: whether this process writes.

  Returns:
    The digests of all files by seed.
  """
  out = {key: dict(named) for key, named in summary.get('files', {}).items()}

  def incomplete(seed):
    ended = summary['status'][str(seed)]['status'] == 'finished'
    if 'files' in summary and ended and str(seed) not in out:
      return True  # a kill came before they were written
    return bool(work_folder.faults(job.folder, out.get(str(seed), {})))

  for seed in job.config.seeds:
    if not processes.on_process_0(lambda: incomplete(seed)):
      continue
    try:
      last = processes.tree_from_process_0(lambda: last_state(job.folder, seed, job.config.rounds))
    except ValueError as error:
      say(f'WARNING: {error}; nothing of seed {seed} can be made again from it')
      continue
    measured = take(measures, END, seed, checkpoint.to_device(last))
    if writes:
      out[str(seed)] = write(job, problem, seed, measured, say)
  return out


def last_state(folder: Path, seed: int, rounds: int) -> State:
  """Returns the state in a seed's last checkpoint of a run's last round.

  Args:
    folder: the run's.
    seed: which.
    rounds: the run's; the model of an earlier round would give other numbers.

  Raises:
    StoredError: if there is none, or it is damaged.
  """
  saved = checkpoint.list_sorted(folder / 'checkpoints', seed)
  saved = [path for path in saved if path.parent.name == str(rounds)]
  state = checkpoint.read(saved[-1]).tree if saved else None
  if state is None:
    raise stored_files.StoredError(f'{folder}: no checkpoint of seed {seed} holds the last model')
  return state


def write_partition(folder: Path, problem: Problem, say: Say) -> None:
  """Writes which client has what: `partition.npz` with 'counts', [clients, classes]; a figure."""
  counts = problem.counts.astype(np.int32)
  stored_files.write_arrays(folder / work_folder.PARTITION, {'counts': counts})
  attempt(say, draw_partition, folder, problem)


def attempt(say: Say, draw: Callable[..., None], *arguments: Any) -> None:
  """Draws; says in one line what cannot be drawn, because a run is worth more than its figures.

  Args:
    say: told why there is no figure.
    draw: writes a figure; matplotlib and its fonts, settings and folders may fail in any way.
    *arguments: of `draw`.
  """
  try:
    import matplotlib  # slow to import

    # A matplotlibrc in the current folder could start LaTeX.
    with matplotlib.rc_context({'text.usetex': False}):
      draw(*arguments)
  except Exception as error:
    reason = texts.shorten(texts.one_line(error), 300)
    say(f'WARNING: a figure is left out ({type(error).__name__}: {reason})')


def draw_partition(folder: Path, problem: Problem) -> None:
  """Draws how many samples of each class every client has, into figures/partition.png."""
  from fedjax_syn.plotting import figures  # matplotlib is slow to import

  dataset, counts, names = problem.dataset, problem.counts, problem.client_names
  title, path = f'{dataset.title}: {len(counts)} clients', folder / 'figures' / 'partition.png'
  figures.partition_bubbles(counts, path, title, dataset.class_names or None, names or None)


def draw_curves(
  folder: Path, dataset: Dataset, runs: Mapping[str, Path], mark_round: int | None
) -> None:
  """Draws the accuracy of a run and of those that it is compared with, into figures/accuracy.png.

  Args:
    folder: the run's.
    dataset: gives the title.
    runs: by label, the folders whose metrics.jsonl are drawn.
    mark_round: the round after which the data set was synthesised.
  """
  from fedjax_syn.plotting import figures

  histories = {label: metrics.read(run / 'metrics.jsonl') for label, run in runs.items()}
  figures.accuracy_curve(histories, folder / 'figures' / 'accuracy.png', mark_round, dataset.title)


def _draw_dynamics(folder: Path, dataset: Dataset, seed: int, distances: Mapping[str, Any]) -> None:
  """Draws cosine distances [draws] by label; nothing without any."""
  if not distances:
    return
  from fedjax_syn.plotting import figures

  title = f'{dataset.title}, seed {seed}: distance to later rounds'
  figures.cosine_distances(distances, folder / 'figures' / 'dynamics.png', title)


def _draw_set(
  dataset: Dataset, seed: int, learned: Mapping[str, Any], picture: Path, copy: Path
) -> None:
  from fedjax_syn.plotting import figures

  sets = learned['x'], learned['y'], learned['iterations']
  figures.synthetic_sets(*sets, dataset.normalisation, picture, f'{dataset.title}, seed {seed}')
  copy.parent.mkdir(exist_ok=True)
  shutil.copyfile(picture, copy)
