"""The files of a finished run beside its checkpoints: of each seed, figures and summary.json."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fedjax_syn.core import own_metrics, privacy, processes, texts
from fedjax_syn.core.contexts import State
from fedjax_syn.core.objectives import precision_recall_f1
from fedjax_syn.engine import Engine
from fedjax_syn.engine.evaluate import Evaluator
from fedjax_syn.engine.measures import END, Measure, Values, take
from fedjax_syn.runs import (
  assemble,
  checkpoint,
  descriptions,
  early_stop,
  metrics,
  stored_files,
  work_folder,
)
from fedjax_syn.runs.assemble import Job
from fedjax_syn.runs.clock import Clock, peak_memory_bytes
from fedjax_syn.runs.recorder import Recorder

Say = Callable[[str], None]
RATIOS = ('precision', 'recall', 'f1')
CONFUSED = 200
"""With more classes, confusions are not kept."""


def measures(job: Job) -> tuple[Measure, ...]:
  """Returns what a run measures in evaluated rounds and at the end of a seed."""
  config, engine, problem, dataset = job.config, job.engine, job.problem, job.problem.dataset
  splits = {'test': dataset.test, 'validation': dataset.validation}
  splits |= {f'test/{name}': split for name, split in dataset.test_by_domain().items()}
  evaluators = assemble.evaluators(engine, splits)

  def of_clients(seed, state):
    """The global model's confusions, and its accuracy by class and for each client; see `write`."""
    model, evaluate = (state.params, state.stats), evaluators['test']
    if (confusion := evaluate.confusion(*model)) is None:
      return {}
    rows, right = confusion.sum(axis=1), confusion.diagonal()
    by_class = np.divide(right, rows, out=np.full(len(rows), np.nan), where=rows > 0)
    if problem.test_owners is None:
      own = own_accuracy(problem.counts, by_class)
    else:
      own = evaluate.by_owner(*model, problem.test_owners, len(problem.counts))
    few = {'confusion': confusion.astype(np.int32)} if len(rows) <= CONFUSED else {}
    ratios = precision_recall_f1(rows, confusion.sum(axis=0), right)
    few |= {f'class_{name}': ratio for name, ratio in zip(RATIOS, ratios, strict=True)}
    return {**few, 'class_accuracy': by_class, 'global_accuracy': own}

  def diagnosis(seed, state):
    return {'distances': engine.diagnose(seed, state) if seed == config.seeds[0] else {}}

  own = own_measures(evaluators, config.metrics)
  learned = lambda seed, state: {'set': engine.artifacts(state)}
  ends = {'clients': of_clients, 'learned': learned, 'diagnosis': diagnosis}
  return (
    *assemble.round_measures(engine, problem, evaluators, config.personal_every, config.rounds),
    *own,
    *(Measure(name, lambda moment: moment == END, of) for name, of in ends.items()),
  )


def own_measures(evaluators: Mapping[str, Evaluator], words: Sequence[str]) -> tuple[Measure, ...]:
  """Returns what metrics of a user's own measure in evaluated rounds, on test and held-out rows.

  Args:
    evaluators: by split.
    words: `metrics` of the config.
  """

  def of_own(name):
    evaluate = evaluators[name]

    def of(seed, state):
      logits = evaluate.logits(state.params, state.stats)
      found = [own_metrics.values(word, evaluate.y, logits) for word in words]
      return {f'{name}/{key}': value for one in found for key, value in one.items()}

    return Measure(f'{name}/own', lambda moment: moment < END, of)

  return tuple(of_own(name) for name in ('test', 'validation') if words and name in evaluators)


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


def write(job: Job, seed: int, measured: Mapping[str, Values], say: Say) -> dict[str, str]:
  """Writes what a seed leaves after its last round.

  `clients/seed_<seed>.npz` has 'confusion', the test rows by true and by predicted class of the
  global model, [classes, classes]; 'class_accuracy', its accuracy by class, [classes];
  'class_precision', 'class_recall' and 'class_f1', [classes], 0 where a ratio has no denominator;
  'global_accuracy', its accuracy for each client, on the client's own test rows if the data name
  their owners, else `own_accuracy`, [clients]; 'personal_accuracy', that of the personal models,
  [clients]; nan where it cannot be measured. What was not measured is left out.

  Args:
    job: the run.
    seed: which.
    measured: its last state, by measure.
    say: told what cannot be drawn.

  Returns:
    Digests of the files by their path in the folder; see `work_folder.digests`.
  """
  folder, problem, dataset, seeds = job.folder, job.problem, job.problem.dataset, job.config.seeds
  arrays = {key: value for values in measured.values() for key, value in values.items()}
  clients = work_folder.clients_file(seed)
  kept = ('confusion', 'class_accuracy', 'global_accuracy', 'personal_accuracy')
  by_class = (f'class_{name}' for name in RATIOS)
  if own := {key: arrays[key] for key in (*kept, *by_class) if key in arrays}:
    names = {'client_names': np.array(problem.client_names)} if problem.client_names else {}
    stored_files.write_arrays(folder / clients, own | names)
  learned = Path(work_folder.set_file(seed, seeds))
  picture, copy = learned.with_suffix('.png'), Path(f'figures/{learned.stem}.png')
  if (own_set := arrays['set']) is not None:
    normalisation = dataset.normalisation
    mean, std = (np.asarray(v, np.float32) for v in (normalisation.mean, normalisation.std))
    stored_files.write_arrays(folder / learned, {**own_set, 'mean': mean, 'std': std})

    def draw_set(figures):
      sets = [own_set[key] for key in ('x', 'y', 'iterations')]
      title = f'{dataset.title}, seed {seed}'
      names = dataset.class_names
      (folder / copy).parent.mkdir(exist_ok=True)
      figures.synthetic_sets(*sets, normalisation, folder / copy, title, class_names=names)
      shutil.copyfile(folder / copy, folder / picture)

    draw(say, draw_set)
  written = [clients, str(learned), str(picture), str(copy)]
  if seed == seeds[0]:
    dynamics = 'figures/dynamics.png'
    title = f'{dataset.title}, seed {seed}: distance to later rounds'
    if distances := arrays['distances']:  # cosine, [draws] by label
      draw(say, lambda figures: figures.cosine_distances(distances, folder / dynamics, title))
    written.append(dynamics)
  return work_folder.digests(folder, written)


def restore(
  job: Job, measures: tuple[Measure, ...], summary: Mapping[str, Any], say: Say
) -> dict[str, dict[str, str]]:
  """Writes the missing or damaged files of finished seeds again, from their last checkpoints.

  Args:
    job: the run.
    measures: of the run.
    summary: the run's; `files` has digests by seed, and none in an older version's.
    say: told what cannot be restored.

  Returns:
    The digests of all files by seed.
  """
  out = {key: dict(named) for key, named in summary.get('files', {}).items()}

  def incomplete(seed):
    ended = summary['status'][str(seed)]['status'] != 'diverged'
    if 'files' in summary and ended and str(seed) not in out:
      return True  # a kill came before they were written
    return bool(work_folder.faults(job.folder, out.get(str(seed), {})))

  for seed in job.config.seeds:
    if not processes.on_process_0(lambda: incomplete(seed)):
      continue
    try:
      end = metrics.ends_of(summary['status']).get(seed, job.config.rounds)
      last = processes.tree_from_process_0(lambda: last_state(job.folder, seed, end))
    except ValueError as error:
      say(f'WARNING: {error}; nothing of seed {seed} can be made again from it')
      continue
    measured = take(measures, END, seed, checkpoint.to_device(last))
    if jax.process_index() == 0:
      out[str(seed)] = write(job, seed, measured, say)
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


def write_partition(job: Job) -> None:
  """Writes which client has what: `partition.npz` with 'counts', [clients, classes]."""
  counts = job.problem.counts.astype(np.int32)
  stored_files.write_arrays(job.folder / work_folder.PARTITION, {'counts': counts})


def draw_partition(job: Job, say: Say) -> None:
  """Draws which client has what into `figures/partition.png`."""
  dataset, names, counts = job.problem.dataset, job.problem.client_names, job.problem.counts
  title, path = f'{dataset.title}: {len(counts)} clients', job.folder / 'figures' / 'partition.png'
  classes = dataset.class_names or None
  draw(say, lambda figures: figures.partition_bubbles(counts, path, title, classes, names or None))


def draw_curves(job: Job, runs: Mapping[str, Path], mark_round: int | None, say: Say) -> None:
  """Draws the accuracy of a run and of those that it is compared with, into figures/accuracy.png.

  Args:
    job: the run.
    runs: by label, the folders whose metrics.jsonl are drawn.
    mark_round: the round after which the data set was synthesised.
    say: told why there is no figure.
  """
  path, title = job.folder / 'figures' / 'accuracy.png', job.problem.dataset.title
  read = lambda: {label: metrics.read(run / 'metrics.jsonl') for label, run in runs.items()}
  draw(say, lambda figures: figures.accuracy_curve(read(), path, mark_round, title))


def draw(say: Say, figure: Callable[[Any], object]) -> None:
  """Draws; says in one line what cannot be drawn, because a run is worth more than its figures.

  Args:
    say: told why there is no figure.
    figure: called with `plotting.figures`; matplotlib and its fonts, settings and folders may fail
      in any way.
  """
  try:
    import matplotlib  # slow to import

    from fedjax_syn.plotting import figures

    # A matplotlibrc in the current folder could start LaTeX.
    with matplotlib.rc_context({'text.usetex': False}):
      figure(figures)
  except Exception as error:
    reason = texts.shorten(texts.one_line(error), 300)
    say(f'WARNING: a figure is left out ({type(error).__name__}: {reason})')


def summarise(job: Job, recorder: Recorder, clock: Clock) -> dict[str, Any]:
  """Makes the content of summary.json.

  Args:
    job: the run.
    recorder: holds the metrics lines and the seeds' status.
    clock: holds the seconds.

  Returns:
    JSON values. `selected`: what the rounds reach that held-out rows select.
    `empty_rounds`: by seed, the rounds in which nobody with a sample took part.
    `bytes_up`, `bytes_down`: per seed over all rounds, with `bytes_before` round 1 in those up.
    `client_state_bytes`: of all clients at any time, on every device or in host memory. `epsilon`:
    of all seeds, finished or not, and of the methods beside this one; `epsilon_per_seed`: of one
    seed of this method alone; `privacy`: delta, what is protected by what noise, what neighbours
    differ in, what is counted; null without noise. `metrics_sha256`: the digest of metrics.jsonl.
    `files`: digests of the content of the npz files.
  """
  config, engine = job.config, job.engine
  down, by_seed = engine.bytes_per_round()[1], metrics.ends_of(recorder.status)
  ends = [by_seed.get(seed, config.rounds) for seed in config.seeds]
  up = [engine.bytes_up(seed, end) for seed, end in zip(config.seeds, ends, strict=True)]
  summary = metrics.summarise(recorder.lines, config, recorder.status)
  if 'validation_accuracy' in summary:
    diverged = [s for s in config.seeds if recorder.status[str(s)]['status'] == 'diverged']
    summary['selected'] = early_stop.selected(recorder.lines, config.seeds, diverged)
  return {
    'algorithm': config.algorithm,
    'dataset': job.problem.dataset.name,
    'rounds': config.rounds,
    'seeds': list(config.seeds),
    'parameters': descriptions.parameters_of(engine.model),
    **summary,
    'empty_rounds': [_empty_rounds(engine, recorder, seed) for seed in config.seeds],
    'seconds': clock.seconds(),
    'bytes_up': engine.bytes_before + round(float(np.mean(up))),
    'bytes_before': engine.bytes_before,
    'bytes_down': round(down * float(np.mean(ends))),
    'client_state_bytes': engine.client_state_bytes,
    'client_state_place': engine.client_state_place,
    **_privacy(job),
    'peak_memory_bytes': max(recorder.peak, peak_memory_bytes()),
    'metrics_sha256': recorder.digest.hexdigest(),
    'files': recorder.files,
  }


def _empty_rounds(engine: Engine, recorder: Recorder, seed: int) -> int:
  """Rounds of a seed, from where the run began, in which nobody with a sample took part."""
  begun = min((line['round'] for line in recorder.lines if line['seed'] == seed), default=0)
  return engine.empty_rounds(seed, begun, recorder.status[str(seed)]['round'])


def _privacy(job: Job) -> dict[str, Any]:
  """What is stated of noise: nulls without it."""
  mechanism, beside = job.engine.mechanism, job.beside
  if mechanism is None or not privacy.promises(mechanism):
    return dict.fromkeys(('epsilon', 'epsilon_per_seed', 'privacy'))
  sampling = privacy.sampling_of(job.config)
  return {
    'epsilon': privacy.composed([(m, sampling) for m in (mechanism, *beside)]),
    'epsilon_per_seed': privacy.epsilon(mechanism, sampling._replace(seeds=1)),
    'privacy': {
      **{key: getattr(mechanism, key) for key in ('noise_multiplier', 'delta', 'unit', 'releases')},
      'neighbours': privacy.neighbours(mechanism, sampling),
      'seeds': sampling.seeds,
      'methods': 1 + len(beside),
    },
  }
