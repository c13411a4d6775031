"""From a checked config to data, model and engine: everything that a run needs before its first round."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from fedjax_syn import algorithms, models
from fedjax_syn import config as config_lib
from fedjax_syn.config import identity
from fedjax_syn.core import privacy, processes
from fedjax_syn.core.types import Model
from fedjax_syn.data import datasets, federated
from fedjax_syn.data import partition as partition_lib
from fedjax_syn.engine import Engine, Layout, personal
from fedjax_syn.runs import continuation, progress, run_folder, start_from
from fedjax_syn.runs import work_folder as workdir_lib


class Problem(NamedTuple):
  """What all algorithms of a run share."""

  dataset: datasets.Dataset
  counts: np.ndarray  # [clients, classes]
  data: federated.FederatedData
  model: Model
  test_owners: np.ndarray | None = None  # int32 [test rows], whose each is, -1: nobody's
  client_names: tuple[str, ...] = ()  # of the run's clients, by number; () where they have none


class Job(NamedTuple):
  """One algorithm, to be trained into one folder."""

  config: config_lib.Resolved
  folder: Path
  engine: Engine
  beside: tuple[privacy.Mechanism, ...] = ()  # noise of the methods whose folders lie in this one


def read(resolved: config_lib.Resolved) -> datasets.Dataset:
  """Loads the data of a config; see `load`."""
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
  )


def load(resolved: config_lib.Resolved) -> Problem:
  """Loads, partitions and places the data of a config, and makes its model.

  Args:
    resolved: a checked config.

  Returns:
    What all algorithms share.

  Raises:
    ValueError: if data, partition and model do not fit together.
    FileNotFoundError: if the data set is not there.
  """
  d, m, dataset = resolved.data, resolved.model, read(resolved)
  if resolved.personal_every:
    personal.check(dataset.train.y)
  part = partition_lib.partition(
    d.partition,
    dataset.train.y,
    d.clients,
    alpha=d.alpha,
    seed=d.seed,
    num_classes=dataset.num_classes,
    min_size=d.min_size,
    labels=d.labels,
    client_ids=dataset.clients,
    natural_clients=dataset.num_clients(),
  )
  settings = {k: v for k, v in dataclasses.asdict(m).items() if k != 'name'}
  model = models.create(
    m.name, shape=dataset.train.x.shape[1:], num_classes=dataset.num_classes, **settings
  )
  counts = partition_lib.class_counts(part, dataset.train.y, dataset.num_classes)
  return Problem(
    dataset,
    counts,
    federated.from_partition(dataset, part),
    model,
    partition_lib.owners_of(part, dataset.test_clients, len(dataset.test.y)),
    partition_lib.names_of(part, dataset.client_names),
  )


def describe_data(resolved: config_lib.Resolved, problem: Problem) -> str:
  """Says in one line what was read and how it is dealt to clients."""
  dataset, d = problem.dataset, resolved.data
  shape = ' x '.join(map(str, dataset.shape))
  held = f', {len(dataset.validation.y)} held-out' if dataset.validation is not None else ''
  share = resolved.client.participation
  part = 'all' if share == 1 else f'{100 * share:g} %'
  line = (
    f'{dataset.title}: {len(dataset.train.y)} training{held} and {len(dataset.test.y)} test rows of {shape}, '
    f'{dataset.num_classes} classes; {d.clients} clients by {d.partition}, {part} of them a round'
  )
  if dataset.clients is not None and not partition_lib.is_natural(d.partition):
    line += "; the data say whose each row is, which only data.partition='natural' follows"
  if left := len(dataset.train.y) - len(problem.data.order):
    others = dataset.num_clients() - d.clients
    line += f'; {left} training rows of {others} clients who take no part are left out'
  return line


def privacy_line(resolved: config_lib.Resolved, jobs: Sequence[Job]) -> str:
  """Says in one line what a run's epsilon covers and what it does not; '' for a run without noise."""
  noise = [m for m in (job.engine.mechanism for job in jobs) if privacy.promises(m)]
  if not noise:
    return ''
  epsilon = privacy.composed([(m, privacy.sampling_of(resolved)) for m in noise])
  return (
    f'epsilon {epsilon:.3f} at delta {noise[0].delta:g} covers the models of all rounds and seeds and what is made of'
    ' them, for whoever does not know the seeds; not protected: config.json, metrics.jsonl, summary.json, partition.npz,'
    ' clients/, figures/, checkpoints/, what trackers are told. launch/export.py writes what may be given away'
    ' (docs/privacy.md)'
  )


def planned_runs(
  resolved: config_lib.Resolved, folder: Path
) -> list[tuple[config_lib.Resolved, Path]]:
  """Says what to train and where.

  Args:
    resolved: a checked config.
    folder: the run's folder.

  Returns:
    Configs and folders, in order: what the run is compared with comes first.
  """
  if not resolved.compare:
    return [(resolved, folder)]
  compare = folder / 'compare'
  other = dataclasses.replace(
    resolved,
    algorithm=resolved.compare,
    compare='',
    start_from=processes.on_process_0(lambda: continuation.start_of_compared(resolved, compare)),
  )
  return [(other, compare), (resolved, folder)]


def check_privacy(resolved: config_lib.Resolved) -> None:
  """Refuses, before data are read, a run whose epsilon could not be stated or would not hold; see `privacy`."""
  words = filter(None, (resolved.algorithm, resolved.compare))
  mechanisms = {word: algorithms.create(word, resolved).mechanism(None) for word in words}
  privacy.check_config(resolved, mechanisms)


def jobs(
  resolved: config_lib.Resolved, folder: Path, problem: Problem, show: progress.Reporter
) -> list[Job]:
  """Closes all algorithms of a run over the problem, in the order of `planned_runs`.

  Args:
    resolved: a checked config.
    folder: the run's folder.
    problem: what all algorithms share.
    show: as in `job`.

  Returns:
    The jobs; the last one's folder holds the others'.

  Raises:
    ValueError: as `job`, and if no epsilon could be stated of what they give away together.
  """
  runs = planned_runs(resolved, folder)
  # The run itself is number 0: its draws do not depend on what it is compared with.
  closed = [job(c, f, problem, show, len(runs) - 1 - i) for i, (c, f) in enumerate(runs)]
  noise = [m for m in (job.engine.mechanism for job in closed) if privacy.promises(m)]
  if noise:
    privacy.check_data(noise[0], problem.dataset.normalisation.name)
    units = {'client': resolved.data.clients, 'example': len(problem.dataset.train.y)}
    privacy.check(noise, privacy.sampling_of(resolved), units[noise[0].unit])
  return [*closed[:-1], closed[-1]._replace(beside=tuple(noise[:-1]))]


def job(
  config: config_lib.Resolved,
  folder: Path,
  problem: Problem,
  show: progress.Reporter,
  number: int = 0,
) -> Job:
  """Closes one algorithm over the problem.

  Args:
    config: a checked config; its `compare` is not looked at.
    folder: the algorithm's folder; the layout that a run there began with is used again.
    problem: what all algorithms share.
    show: told if that layout cannot be had any more.
    number: of the algorithm in its run: methods that see the same clients must not share their noise.

  Returns:
    The job.

  Raises:
    ValueError: if method, model and layout do not fit together.
  """
  method = algorithms.create(config.algorithm, config)
  configured = Layout(**dataclasses.asdict(config.layout))
  stored = processes.on_process_0(lambda: continuation.stored_layout(folder))
  layout = configured
  if stored:  # where per-client state lies changes nothing
    try:
      layout = Layout(**stored)._replace(client_state_bytes=configured.client_state_bytes)
    except TypeError as error:
      raise ValueError(f'{folder / "config.json"}: its layout is of another version') from error
  if layout.devices > jax.device_count() and not configured.devices:
    show.say(
      f'WARNING: {folder} ran on {layout.devices} devices before; the last digits may differ from here on'
    )
    layout = configured
  engine = Engine(
    method,
    problem.model,
    problem.data,
    num_classes=problem.dataset.num_classes,
    participation=config.client.participation,
    sampler=config.client.sampler,
    layout=layout,
    rounds=config.rounds,
    noise_number=number,
  )
  return Job(config, folder, engine)


def _current(now: dict) -> dict:
  """What config.json says of a run that goes on: where its data lie and how many rounds it has, as they are now."""
  return {key: now[key] for key in ('hash', 'config', 'own_code')}


def write_config(job: Job, problem: Problem, config_name: str) -> None:
  """Writes config.json: what a resumed run finds there is what the run began with, and how many rounds it has now."""
  path = job.folder / 'config.json'
  d = problem.dataset
  now = {
    'hash': identity.hash8(job.config),
    'config': config_lib.to_dict(job.config),
    'own_code': identity.own_code(job.config),
    'data_digests': continuation.digests(d),
  }
  c = job.config
  if start := start_from.digests(c.start_from, c.seeds, c.rounds):
    now['start_digests'] = start
  if continuation.begun(job.folder) and (before := run_folder.config(job.folder)):
    if before != (written := {**now, **before, **_current(now)}):
      workdir_lib.write_json(path, written)
    return
  job.folder.mkdir(parents=True, exist_ok=True)
  described = {
    'name': d.name,
    'title': d.title,
    'checksum': d.checksum,
    'num_classes': d.num_classes,
    'class_names': list(d.class_names),
    'client_names': list(problem.client_names or d.client_names),
    'shape': list(d.train.x.shape[1:]),
    'rows': {'train': len(d.train.y), 'test': len(d.test.y)},
    'normalisation': {
      'name': d.normalisation.name,
      'mean': np.asarray(d.normalisation.mean, float).tolist(),
      'std': np.asarray(d.normalisation.std, float).tolist(),
    },
  }
  workdir_lib.write_json(
    path,
    {
      'config_name': config_name,
      **now,
      'dataset': described,
      'layout': job.engine.layout._asdict(),
      **workdir_lib.environment(),
    },
  )
