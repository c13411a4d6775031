"""Where metrics go besides metrics.jsonl: TensorBoard; Weights & Biases and MLflow if asked for.

A tracker is a class with three methods (`Tracker`). Nothing is imported, and nothing leaves the
machine, unless `trackers` names it; the tool's own environment variables say where it goes
(WANDB_MODE, WANDB_PROJECT, MLFLOW_TRACKING_URI ...).
"""

import functools
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from fedjax_syn.runs import stored_files
from fedjax_syn.runs.metrics import Line

Settings = Mapping[str, Any]  # the fields in use by dotted key
PROJECT = 'fedjax_syn'
NOTE = 'trackers.json'  # in the run's folder: what a resumed run is called by each tool


class Tracker(Protocol):
  """What a tracker does."""

  def write(self, lines: Sequence[Line]) -> None:
    """Takes metrics lines of evaluated rounds."""

  def results(self, values: Mapping[str, float], pictures: Sequence[Path]) -> None:
    """Takes what a finished run came to, and its figures (PNG files)."""

  def close(self) -> None:
    """Sends what is waiting."""


def scalars(line: Line) -> dict[str, float]:
  """Returns the numbers of a line as trackers show them, under `seed_<seed>/<name>`."""
  numbers = {k: v for k, v in line.items() if isinstance(v, int | float)}
  return {f'seed_{line["seed"]}/{k}': v for k, v in numbers.items() if k not in ('round', 'seed')}


class TensorBoard:
  """TensorBoard events of lines, settings, results and figures; rewritten when a run resumes."""

  def __init__(self, folder: Path, settings: Settings):
    """Opens the folder's one event file, and removes those of earlier sessions."""
    from tensorboardX import SummaryWriter  # slow to import, and only this tracker needs it

    for old in folder.glob('events.out.*'):
      old.unlink()
    shutil.rmtree(folder / 'hparams', ignore_errors=True)
    self.writer = SummaryWriter(str(folder))
    self.settings = settings

  def write(self, lines: Sequence[Line]) -> None:
    for line in lines:
      for name, value in scalars(line).items():
        self.writer.add_scalar(name, value, line['round'])

  def results(self, values: Mapping[str, float], pictures: Sequence[Path]) -> None:
    import numpy as np
    from PIL import Image

    for path in pictures:
      with Image.open(path, formats=['PNG']) as image:
        pixels = np.asarray(image.convert('RGB'))
      self.writer.add_image(f'figures/{path.stem}', pixels, dataformats='HWC')
    plain = {
      k: v if isinstance(v, bool | int | float | str) else str(v) for k, v in self.settings.items()
    }
    # A subfolder with this name, whose events the page HPARAMS reads.
    self.writer.add_hparams(plain, {f'results/{k}': v for k, v in values.items()}, name='hparams')

  def close(self) -> None:
    self.writer.close()


class WandB:
  """A run of Weights & Biases; WANDB_MODE=offline keeps it in the folder until `wandb sync`."""

  def __init__(self, folder: Path, settings: Settings, known: str):
    """Begins a run, or continues with the one `known`."""
    import wandb

    self.wandb = wandb
    self.run = wandb.init(
      project=os.environ.get('WANDB_PROJECT', PROJECT),
      name=folder.name,
      id=known or None,
      resume='allow',
      config=dict(settings),
      dir=str(folder),
    )
    # Seeds follow each other and rounds begin again: an axis, not the tool's own step.
    self.run.define_metric('round')
    self.run.define_metric('*', step_metric='round')
    self.id = self.run.id

  def write(self, lines: Sequence[Line]) -> None:
    for line in lines:
      self.run.log({'round': line['round'], **scalars(line)})

  def results(self, values: Mapping[str, float], pictures: Sequence[Path]) -> None:
    self.run.summary.update({f'results/{k}': v for k, v in values.items()})
    if pictures:
      self.run.log({f'figures/{path.stem}': self.wandb.Image(str(path)) for path in pictures})

  def close(self) -> None:
    self.run.finish()


class MLflow:
  """A run of MLflow, in the store that MLFLOW_TRACKING_URI names."""

  def __init__(self, folder: Path, settings: Settings, known: str):
    """Begins a run, or continues with the one `known`."""
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param

    self.metric, self.client = Metric, MlflowClient()
    self.id = known
    if not known:
      name = os.environ.get('MLFLOW_EXPERIMENT_NAME', PROJECT)
      known_as = self.client.get_experiment_by_name(name)
      experiment = known_as.experiment_id if known_as else self.client.create_experiment(name)
      self.id = self.client.create_run(experiment, run_name=folder.name).info.run_id
      params = [Param(k, str(v)) for k, v in settings.items()]
      self._in_parts(params, 100, 'params')
    self.client.update_run(self.id, status='RUNNING')

  def _in_parts(self, items: Sequence[Any], most: int, kind: str) -> None:
    """A call takes so many at most."""
    for first in range(0, len(items), most):
      self.client.log_batch(self.id, **{kind: items[first : first + most]})

  def write(self, lines: Sequence[Line]) -> None:
    now = int(1000 * time.time())
    numbers = [
      self.metric(k, v, now, line['round']) for line in lines for k, v in scalars(line).items()
    ]
    self._in_parts(numbers, 1000, 'metrics')

  def results(self, values: Mapping[str, float], pictures: Sequence[Path]) -> None:
    now = int(1000 * time.time())
    self._in_parts(
      [self.metric(f'results/{k}', v, now, 0) for k, v in values.items()], 1000, 'metrics'
    )
    for path in pictures:
      self.client.log_artifact(self.id, str(path), 'figures')
    self.client.set_terminated(self.id)

  def close(self) -> None:
    """Nothing waits; a run that was interrupted stays RUNNING until it is finished."""


REMOTE: dict[str, Callable[[Path, Settings, str], Any]] = {'wandb': WandB, 'mlflow': MLflow}


class Trackers:
  """All trackers of a run. One that fails is named once and left out from then on."""

  def __init__(
    self,
    folder: Path,
    names: Sequence[str],
    settings: Settings,
    lines: Sequence[Line],
    say: Callable[[str], None],
  ):
    """Opens TensorBoard and the trackers that are asked for.

    Args:
      folder: the run's folder.
      names: of `REMOTE`.
      settings: the fields in use by dotted key.
      lines: metrics lines of the run so far; a tracker that knows the run has them.
      say: told which tracker failed.
    """
    self.say = say
    self.open: dict[str, Tracker] = {}
    note = folder / NOTE
    try:
      known = stored_files.read_json(note, {str: str}) or {}
    except stored_files.DamagedError as error:
      say(f'WARNING: {error}; trackers={list(names)} begin anew')
      known = {}
    self._open('tensorboard', lambda: TensorBoard(folder, settings), lines)
    for name in names:
      build = functools.partial(REMOTE[name], folder, settings, known.get(name, ''))
      if tracker := self._open(name, build, () if name in known else lines):
        known.setdefault(name, tracker.id)
    if known:
      stored_files.write_json(note, known)

  def write(self, line: Line) -> None:
    """Passes one line on."""
    self._each(lambda tracker: tracker.write([line]))

  def results(self, values: Mapping[str, float], pictures: Sequence[Path]) -> None:
    """Passes on what a finished run came to, and its figures."""
    self._each(lambda tracker: tracker.results(values, pictures))

  def close(self) -> None:
    """Closes all trackers."""
    self._each(lambda tracker: tracker.close())
    self.open = {}

  def _open(self, name: str, build: Callable[[], Any], lines: Sequence[Line]) -> Any:
    self._try(name, lambda: self.open.update({name: build()}))
    if tracker := self.open.get(name):
      self._try(name, lambda: tracker.write(lines))
    return tracker

  def _each(self, act: Callable[[Tracker], None]) -> None:
    for name, tracker in [*self.open.items()]:
      self._try(name, lambda: act(tracker))

  def _try(self, name: str, act: Callable[[], None]) -> None:
    """Acts; a tracker that fails, in whatever way, is left out from here on."""
    try:
      act()
    except Exception as error:
      reason = (str(error).splitlines() or [''])[0][:200]
      self.say(
        f'WARNING: trackers={name!r} failed and is left out from here on'
        f' ({type(error).__name__}: {reason})'
      )
      self.open.pop(name, None)


def results_of(summary: Mapping[str, Any]) -> dict[str, float]:
  """Returns the numbers of a summary.json that trackers show."""
  values = {
    f'{split}/{name}': value['mean']
    for split in ('test_accuracy', 'validation_accuracy')
    for name, value in summary.get(split, {}).items()
  }
  values |= {f'seconds/{k}': v for k, v in summary['seconds'].items()}
  values |= {
    k: summary.get(k)
    for k in ('bytes_up', 'bytes_down', 'epsilon', 'epsilon_per_seed', 'parameters')
  }
  return {k: float(v) for k, v in values.items() if v is not None}
