"""What some figures need of a finished run besides its metrics: computed once, left in the run's folder."""

import os
import pathlib
import platform
from collections.abc import Callable, Mapping
from typing import Any

import jax

from fedjax_syn.runs import lock, stored_files, work_folder
from fedjax_syn.tables import measures
from fedjax_syn.tables.spec import Result, Scale

STEPS = {
  True: 1000,
  False: 20,
}  # of training from scratch, by whether the scale's numbers mean something
OWN = True  # the table's command named whatever code these runs name
CLIENTS = 3  # as many as the paper draws
SAMPLES = (16, 32, 64, 128, 256, 512, 1024)  # FedCOG's Table 8
GENERATION = {
  True: (0, 50, 100, 500, 1000),
  False: (0, 2, 5),
}  # steps of its Figure 5, by scale as above


def from_scratch(folder: pathlib.Path, seed: int, scale: Scale) -> None:
  """Trains a new network on the synthetic set alone; leaves from_scratch.json and its figure.

  Args:
    folder: of a finished run.
    seed: which of its seeds.
    scale: decides the steps.

  Raises:
    ValueError: if the run has no synthetic set, or its data set is not there.
  """
  from fedjax_syn.papers.dynafed import inspections

  def measure(subject):
    alone = subject._replace(sets={'synthetic': subject.sets['synthetic']})
    numbers, _ = inspections.from_scratch(alone, folder / 'figures', STEPS[scale.comparable])
    curve = numbers['sets']['synthetic']
    values = {name: curve[name].tolist() for name in ('steps', 'accuracy')}
    stored_files.write_json(folder / 'from_scratch.json', values)

  _once(folder, seed, folder / 'from_scratch.json', measure)


def client_losses(folder: pathlib.Path, seed: int, scale: Scale) -> None:
  """Draws a few clients' losses through the first fine-tuned round; see `from_scratch`."""
  from fedjax_syn.papers.dynafed import inspections

  measure = lambda subject: inspections.losses(subject, folder / 'figures', CLIENTS)
  _once(folder, seed, folder / 'figures' / 'client_losses.png', measure)


def generation_times(folder: pathlib.Path, seed: int, scale: Scale) -> None:
  """Times FedCOG's generation beside local training, on this machine; leaves generation.json.

  Args:
    folder: of a finished run of FedCOG.
    seed: which of its seeds.
    scale: unused: the run has its own settings.

  Raises:
    ValueError: if it is none, or its data set is not there.
  """
  from fedjax_syn.papers.fedcog import generation

  def measure(subject):
    device = jax.devices()[0]
    machine = (
      f'{device.platform} {device.device_kind}, {platform.machine()}, {os.cpu_count()} cores'
    )
    measured = {'seconds': generation.seconds(subject, SAMPLES), 'machine': machine}
    stored_files.write_json(folder / 'generation.json', measured)

  opened = lambda: generation.open_subject(folder, seed, OWN)
  _once(folder, seed, folder / 'generation.json', measure, opened)


def timed_on(results: Mapping[tuple[str, str, int], Result]) -> list[str]:
  """Says where `generation_times` was run."""
  known = [measures.left(r.folder / 'generation.json', {'machine': str}) for r in results.values()]
  return [f'timed on: {machine}' for machine in sorted({f['machine'] for f in known if f})]


def generated_images(folder: pathlib.Path, seed: int, scale: Scale) -> None:
  """Draws what FedCOG generates for one client after several numbers of steps; see `generation_times`."""
  from fedjax_syn.papers.fedcog import generation

  path = folder / 'figures' / 'generated.png'
  measure = lambda subject: generation.draw(subject, GENERATION[scale.comparable], path)
  _once(folder, seed, path, measure, lambda: generation.open_subject(folder, seed, OWN))


def client_sets(folder: pathlib.Path, seed: int, scale: Scale) -> None:
  """Measures and draws the sets that clients send; leaves client_sets.json and figures/client_set.png.

  Args:
    folder: of a finished run of FedDM or FedDualMatch.
    seed: which of its seeds.
    scale: unused: the run has its own settings.

  Raises:
    ValueError: if its clients send no sets, or its data set is not there.
  """
  from fedjax_syn.papers.feddualmatch import client_sets

  path = folder / 'client_sets.json'
  measure = lambda _: stored_files.write_json(path, client_sets.inspect(folder, seed, None, OWN))
  _once(folder, seed, path, measure, lambda: None)


def _whole(path: pathlib.Path) -> bool:
  """Says whether a file is there as it was left; a damaged one is made again."""
  try:
    if path.suffix == '.json':
      return stored_files.read_json(path, {}) is not None
    return work_folder.is_picture(stored_files.read_bytes(path) or b'')
  except stored_files.DamagedError:
    return False


def _once(
  folder: pathlib.Path,
  seed: int,
  path: pathlib.Path,
  measure: Callable[[Any], None],
  opened: Callable[[], Any] | None = None,
) -> None:
  """Measures a run unless that was done; `opened` is a run of DynaFed by default."""
  from fedjax_syn.papers.dynafed import finished_run

  with lock.hold(folder):
    if _whole(path):
      return
    config = work_folder.config(folder)['config']
    with jax.default_matmul_precision(config['precision']):
      if opened is None:
        run = finished_run.read_run(folder, seed, OWN)
        opened = lambda: finished_run.open_subject(run, None)
      measure(opened())
