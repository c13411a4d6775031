"""Runs of seconds, to be damaged: one that ends, and one that is killed in its second seed."""

import contextlib
import pathlib
from typing import Any

SETTINGS = {
  'algorithm': 'dynafed',
  'rounds': 4,
  'seeds': (0, 1),
  'checkpoint_every': 1,
  'data.partition': 'iid',
  'data.clients': 4,
  'client.participation': 1.0,
  'layout.devices': 1,
  'model.name': 'mlp',
  'model.width': 8,
  'model.depth': 1,
  'dynafed.length': 2,
  'dynafed.segment': 1,
  'dynafed.iterations': 2,
  'dynafed.inner_steps': 1,
  'dynafed.images_per_class': 1,
}


class KilledError(BaseException):
  """Ends a run at once, as SIGKILL would: nothing catches it."""


def config() -> Any:
  """Returns the config of both runs."""
  from fedjax_syn import config as config_lib

  made = config_lib.get_default()
  for key, value in SETTINGS.items():
    section, _, name = key.rpartition('.')
    (made[section] if section else made)[name] = value
  return made


def run(folder: pathlib.Path) -> tuple[int, list[str]]:
  """Runs to the end, or goes on; returns the exit status, and what was said."""
  from fedjax_syn.runs import experiment, progress

  show, said = progress.Reporter(), []
  show.say = said.append
  return experiment.run_experiment(config(), folder, show=show), said


def killed_run(folder: pathlib.Path) -> None:
  """A run that ends in its second seed."""
  from fedjax_syn.runs import experiment, progress

  show, rounds = progress.Reporter(), []

  def ending(round, report):
    rounds.append(round)
    if SETTINGS['rounds'] in rounds and rounds[-1] == SETTINGS['rounds'] - 1:
      raise KilledError

  show.rounds = ending
  with contextlib.suppress(KilledError):
    experiment.run_experiment(config(), folder, show=show)
  if (folder / 'summary.json').exists():
    raise RuntimeError('the run was to be killed')
