"""From a checked config to data, model and engine: what a run needs before its first round."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from fedjax_syn import algorithms, models
from fedjax_syn.config import Resolved, compared
from fedjax_syn.core import privacy, processes
from fedjax_syn.core.types import Model
from fedjax_syn.data import datasets, facts, federated, label_noise
from fedjax_syn.data import partition as partition_lib
from fedjax_syn.data.features import size_text
from fedjax_syn.data.settings import Data
from fedjax_syn.data.split import Split
from fedjax_syn.engine import Engine, Layout, personal
from fedjax_syn.engine.evaluate import Evaluator
from fedjax_syn.engine.measures import Measure, of_rounds
from fedjax_syn.runs import descriptions, progress, resume, unseen, work_folder


class Problem(NamedTuple):
  """What all methods of a run share."""

  dataset: datasets.Dataset
  counts: np.ndarray
  """Samples, [clients, classes]."""
  data: federated.FederatedData
  model: Model
  test_owners: np.ndarray | None = None
  """The client of each test row, int32 [test rows], -1: none."""
  client_names: tuple[str, ...] = ()
  """Of the run's clients, by number; () where they have none."""
  validation_owners: np.ndarray | None = None
  """As `test_owners`, of the validation rows."""


class PlannedRun(NamedTuple):
  """One method, and where it is to be trained."""

  config: Resolved
  folder: Path
  label: str
  """See `config.compared.labels_of`."""


class Job(NamedTuple):
  """One method, to be trained into one folder."""

  config: Resolved
  folder: Path
  problem: Problem
  engine: Engine
  label: str = ''
  """See `config.compared.labels_of`."""
  beside: tuple[privacy.Mechanism, ...] = ()
  """Noise of the methods whose folders lie in this one."""


def read(resolved: Resolved) -> datasets.Dataset:
  """Loads the data set of a config; see `load`."""
  d = resolved.data
  return datasets.load(
    d.name,
    d.dir,
    normalisation=d.normalisation,
    validation=d.validation,
    seed=d.seed,
    proxy=d.proxy,
    proxy_share=d.proxy_share,
    size=d.size,
    trusted=d.trusted,
    placement=d.placement,
    unseen_clients=d.unseen_clients,
    choice=facts.Choice(*(getattr(d, key) for key in facts.Choice._fields)),
  )


def load(resolved: Resolved) -> Problem:
  """Loads, partitions and places the data of a config, and builds its model.

  Args:
    resolved: a checked config.

  Returns:
    What all methods share.

  Raises:
    ValueError: if data, partition and model do not fit together.
    FileNotFoundError: if the data set does not exist.
  """
  dataset = read(resolved)
  if resolved.personal_every:
    personal.check(dataset.train.y)
  build = lambda: build_model(resolved, dataset.shape, dataset.num_classes, dataset.kind)
  return problem_of(dataset, resolved.data, build)


def build_model(
  resolved: Resolved, shape: tuple[int, ...], num_classes: int, kind: str = ''
) -> Model:
  """Builds the network of a config, without the changes of its method.

  Args:
    resolved: a checked config.
    shape: of a row.
    num_classes: of the data set.
    kind: what rows are, see `models.create`.
  """
  settings = dataclasses.asdict(resolved.model)
  settings.pop('weights')  # see `runs.pretrained`
  settings |= {'shape': shape, 'num_classes': num_classes, 'kind': kind}
  return models.create(settings.pop('name'), **settings)


def problem_of(dataset: datasets.Dataset, data: Data, build: Callable[[], Model]) -> Problem:
  """Partitions a data set and places it on the devices, or leaves it in host memory.

  Args:
    dataset: the data set.
    data: settings of the partition.
    build: returns the model; called when the partition is known to be possible.

  Raises:
    ValueError: if no partition satisfies the settings.
  """
  clients = dataset.num_clients()
  unseen.check_clients(dataset, data)
  part = partition_lib.partition(
    data.partition,
    dataset.train.y,
    data.clients,
    alpha=data.alpha,
    seed=data.seed,
    num_classes=dataset.num_classes,
    min_size=data.min_size,
    labels=data.labels,
    client_ids=dataset.clients,
    natural_clients=clients,
  )
  model = build()
  # Rows go to clients by their true labels.
  noise = data.label_noise
  noisy = label_noise.add(dataset, noise, data.seed) if noise else dataset
  return Problem(
    dataclasses.replace(dataset, notes=noisy.notes),
    partition_lib.class_counts(part, noisy.train.y, dataset.num_classes),
    federated.from_partition(noisy, part, data.placement),
    model,
    partition_lib.owners_of(part, dataset.test_clients),
    partition_lib.names_of(part, dataset.client_names),
    partition_lib.owners_of(part, dataset.validation_clients),
  )


def evaluators(engine: Engine, splits: Mapping[str, Split | None]) -> dict[str, Evaluator]:
  """Returns the evaluators of the splits that have rows, by name."""
  return {name: engine.evaluator(*s) for name, s in splits.items() if s is not None and len(s.y)}


def round_measures(
  engine: Engine,
  problem: Problem,
  evaluators: Mapping[str, Evaluator],
  personal_every: int,
  rounds: int,
) -> tuple[Measure, ...]:
  """Returns what evaluated rounds measure; see `engine.measures.of_rounds`."""
  others = unseen.measures(engine, problem.dataset)
  if not personal_every:
    return *of_rounds(evaluators, None, 0, rounds), *others
  test, validation = problem.dataset.test, problem.dataset.validation
  of_clients = engine.personal(*test, problem.test_owners)
  held_out = validation and engine.personal(*validation, problem.validation_owners)
  return *of_rounds(evaluators, of_clients, personal_every, rounds, held_out), *others


def describe_data(resolved: Resolved, problem: Problem) -> str:
  """States in one line what was read and how it is partitioned."""
  dataset, d = problem.dataset, resolved.data
  shape = size_text(dataset.shape, dataset.kind)
  held = f', {len(dataset.validation.y)} held-out' if dataset.validation is not None else ''
  held += f', {len(dataset.unseen.y)} of unseen clients' if dataset.unseen is not None else ''
  line = (
    f'{dataset.title}: {len(dataset.train.y)} training{held} and {len(dataset.test.y)} test rows of'
    f' {shape}, {dataset.num_classes} classes; {d.clients} clients by {d.partition},'
    f' {descriptions.cohort(resolved)} a round'
  )
  if dataset.clients is not None and not partition_lib.is_natural(d.partition):
    line += "; the data say whose each row is, which only data.partition='natural' follows"
  if left := len(dataset.train.y) - len(problem.data.order):
    others = dataset.num_clients() - d.clients
    line += f'; {left} training rows of {others} clients who take no part are left out'
  if d.placement == 'host':
    line += '; the training rows stay in host memory'
  return line


def privacy_line(resolved: Resolved, jobs: Sequence[Job]) -> str:
  """States in one line what a run's epsilon covers and what it does not; '' without noise."""
  noise = _noise(jobs)
  if not noise:
    return ''
  epsilon = privacy.composed([(m, privacy.sampling_of(resolved)) for m in noise])
  return (
    f'epsilon {epsilon:.3f} at delta {noise[0].delta:g} covers all models of all rounds and seeds,'
    ' if the seeds are secret; not protected: config.json, metrics.jsonl, summary.json, clients/,'
    ' partition.npz, figures/, checkpoints/, trackers (docs/privacy.md says what may be published)'
  )


def _noise(jobs: Sequence[Job]) -> list[privacy.Mechanism]:
  mechanisms = (job.engine.mechanism for job in jobs)
  return [m for m in mechanisms if m is not None and privacy.promises(m)]


def planned_runs(resolved: Resolved, folder: Path) -> list[PlannedRun]:
  """Returns what to train and where.

  Args:
    resolved: a checked config.
    folder: the run's folder.

  Returns:
    The runs, in order: what the run is compared with comes first, one method in `compare`, several
    in `compare/<method>`.
  """
  others, runs = compared.configs(resolved), []
  for config, label, name in others:
    path = folder / work_folder.COMPARE / (name if len(others) > 1 else '')
    start = processes.on_process_0(functools.partial(resume.start_of_compared, config, path))
    runs.append(PlannedRun(dataclasses.replace(config, start_from=start), path, label))
  return [*runs, PlannedRun(resolved, folder, compared.labels_of(resolved)[0])]


def check_privacy(resolved: Resolved) -> None:
  """Checks, before data are read, that a run's epsilon could be stated and would hold."""
  configs = [resolved, *(other.config for other in compared.configs(resolved))]
  mechanisms = {
    label: algorithms.create(config.algorithm, config).mechanism(None)
    for label, config in zip(compared.labels_of(resolved), configs, strict=True)
  }
  privacy.check_config(resolved, mechanisms)


def check_noise(
  noise: Sequence[privacy.Mechanism], problem: Problem, sampling: privacy.Sampling
) -> None:
  """Checks that the epsilon of one or more methods covers everything that they reveal.

  Args:
    noise: the methods' mechanisms.
    problem: their data.
    sampling: who is sampled, over all seeds and rounds.

  Raises:
    ValueError: naming the key and what would work.
  """
  if noise:
    dataset = problem.dataset
    privacy.check_data(noise[0], dataset.normalisation.name, dataset.filled)
    units = {'client': sampling.clients, 'example': len(problem.dataset.train.y)}
    privacy.check(noise, sampling, units[noise[0].unit])


def jobs(resolved: Resolved, folder: Path, problem: Problem, show: progress.Reporter) -> list[Job]:
  """Binds all methods of a run to the problem, in the order of `planned_runs`.

  Args:
    resolved: a checked config.
    folder: the run's folder.
    problem: what all methods share.
    show: as in `job`.

  Returns:
    The jobs; the last one's folder holds the others'.

  Raises:
    ValueError: as `job`, and if no epsilon could be stated of what they reveal together.
  """
  runs, bound = planned_runs(resolved, folder), []
  for i, run in enumerate(runs):
    # The run itself is number 0, the others count from 1: draws do not depend on what follows.
    one = job(run.config, run.folder, problem, show, (i + 1) % len(runs))
    problem = problem._replace(data=one.engine.data)  # all methods use the same arrays on devices
    bound.append(one._replace(label=run.label, problem=problem))
  noise = _noise(bound)
  check_noise(noise, problem, privacy.sampling_of(resolved))
  for one in bound:
    one.engine.share_programs([other.engine for other in bound])
  return [*bound[:-1], bound[-1]._replace(beside=tuple(noise[:-1]))]


def job(
  config: Resolved, folder: Path, problem: Problem, show: progress.Reporter, number: int = 0
) -> Job:
  """Binds one method to the problem.

  Args:
    config: a checked config; its `compare` is ignored.
    folder: the method's folder; the layout that a run there began with is used again.
    problem: what all methods share.
    show: told if that layout is no longer possible.
    number: of the method in its run: methods that see the same clients must not share their noise.

  Returns:
    The job.

  Raises:
    ValueError: if method, model and layout do not fit together.
  """
  configured = Layout(**dataclasses.asdict(config.layout))
  stored = processes.on_process_0(lambda: resume.stored_layout(folder))
  layout = configured
  if stored:  # where per-client state lies changes nothing
    try:
      layout = Layout(**stored)._replace(client_state_bytes=configured.client_state_bytes)
    except TypeError as error:
      raise ValueError(f'{folder / "config.json"}: its layout is of another version') from error
  if layout.devices > jax.device_count() and not configured.devices:
    show.say(
      f'WARNING: {folder} ran on {layout.devices} devices before; the last digits may differ from'
      ' here on'
    )
    layout = configured
  return Job(config, folder, problem, bind(config, problem, layout, number))


def bind(config: Resolved, problem: Problem, layout: Layout, number: int = 0) -> Engine:
  """Returns the engine of a config's method; see `job`."""
  return Engine(
    algorithms.create(config.algorithm, config),
    problem.model,
    problem.data,
    participation=config.client.participation,
    sampler=config.client.sampler,
    layout=layout,
    rounds=config.rounds,
    noise_number=number,
  )
