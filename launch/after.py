"""What some figures need of a finished run besides its metrics: computed once, left in the run's folder."""

import pathlib

import jax

from fedjax_syn import workdir as workdir_lib
from launch.spec import Scale

STEPS = {
  True: 1000,
  False: 20,
}  # of training from scratch, by whether the scale's numbers mean something
CLIENTS = 3  # as many as the paper draws


def from_scratch(folder: pathlib.Path, seed: int, scale: Scale) -> None:
  """Trains a new network on the synthetic set alone; leaves from_scratch.json and its figure.

  Args:
    folder: of a finished run.
    seed: which of its seeds.
    scale: decides the steps.

  Raises:
    ValueError: if the run has no synthetic set, or its data set is not there.
  """
  from launch import inspections

  def measure(subject):
    alone = subject._replace(sets={'synthetic': subject.sets['synthetic']})
    numbers, _ = inspections.from_scratch(alone, folder / 'figures', STEPS[scale.comparable])
    found = numbers['sets']['synthetic']
    values = {name: found[name].tolist() for name in ('steps', 'accuracy')}
    workdir_lib.write_json(folder / 'from_scratch.json', values)

  _once(folder, seed, folder / 'from_scratch.json', measure)


def client_losses(folder: pathlib.Path, seed: int, scale: Scale) -> None:
  """Draws a few clients' losses through the first fine-tuned round; see `from_scratch`."""
  from launch import inspections

  measure = lambda subject: inspections.losses(subject, folder / 'figures', CLIENTS)
  _once(folder, seed, folder / 'figures' / 'client_losses.png', measure)


def _once(folder: pathlib.Path, seed: int, made: pathlib.Path, measure) -> None:
  from launch import finished_run

  with workdir_lib.lock(folder):
    if made.exists():
      return
    run = finished_run.read_run(folder, seed)
    with jax.default_matmul_precision(run.config.precision):
      measure(finished_run.open_subject(run, None))
