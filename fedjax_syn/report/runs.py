"""Run folders as a report reads them: without JAX work, with labels, compared field by field."""

import hashlib
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedjax_syn import algorithms
from fedjax_syn.config.schema import SECTIONS
from fedjax_syn.core import paths
from fedjax_syn.plotting.style import method_name
from fedjax_syn.runs import checkpoint, metrics, work_folder
from fedjax_syn.runs.stored_files import DamagedError, read_bytes

ABSENT = None
"""The value of a field of a method that a run, or its version of the library, does not have."""
NATURAL = ('natural', 'natural_sample')
"""The partitions by the data set's own clients."""
INSPECTED = {
  'gradient_error': 'Gradients on the synthetic set beside those on the real data',
  'privacy': 'How near synthetic images are to training images, beside held-out images',
  'from_scratch': 'Networks trained from scratch on the synthetic set alone',
  'client_losses': 'Losses of clients through local training, aggregation and fine-tuning',
  'client_set': 'Images that one client sends',
}
"""Figures of `launch/inspect_run.py`, and what they show."""


class Run(NamedTuple):
  """One run's folder; what an older version or an unfinished run did not leave is None or empty."""

  folder: Path
  label: str
  """Differs from those of the other runs."""
  stored: dict[str, Any]
  """The content of config.json."""
  settings: dict[str, Any]
  """Fields in use, by dotted key."""
  lines: list[metrics.Line]
  summary: dict[str, Any] | None
  """None if the run is not finished."""
  counts: np.ndarray | None
  """Samples, [clients, classes]."""
  clients: dict[int, dict[str, np.ndarray]]
  """By seed, arrays [clients]."""
  synthetic: dict[int, dict[str, np.ndarray]]
  """By seed, as in synthetic.npz."""
  inspected: dict[str, bytes]
  """PNG files of `launch/inspect_run.py`, by name."""

  @property
  def seeds(self) -> list[int]:
    """The run's seeds, in order."""
    return self.stored['config']['seeds']

  def class_names(self) -> list[str]:
    """Returns the data set's names of the classes; their numbers where there are none."""
    d = self.stored['dataset']  # of an old run it says less
    classes = 0 if self.counts is None else self.counts.shape[1]
    return d.get('class_names') or [f'{i}' for i in range(d.get('num_classes', classes))]

  def client_name(self, number: int) -> str:
    """Returns the data set's name of a client; its number where clients are not all its own."""
    names = self.stored['dataset'].get('client_names', ())
    clients = 0 if self.counts is None else len(self.counts)
    own = self.settings['data.partition'] in NATURAL and len(names) == clients
    return names[number] if own else f'{number}'


def open_runs(folders: Sequence[str | Path]) -> list[Run]:
  """Reads run folders, and with each what it was compared with, one method or several.

  Args:
    folders: one or more.

  Returns:
    The runs, each once, with labels that tell them apart.

  Raises:
    ValueError: if a folder is none of a run, or a file in it cannot be read; naming it.
  """
  paths_of: dict[Path, Path] = {}
  for given in map(paths.given, folders):
    if not os.path.lexists(given / 'config.json'):
      raise ValueError(f'{given}: holds no config.json; name the folder of a run')
    for folder in (given, *work_folder.compared(given)):
      paths_of.setdefault(folder.resolve(), folder)
  runs = [_open(folder) for folder in paths_of.values()]
  return [r._replace(label=label) for r, label in zip(runs, labels(runs), strict=True)]


def _open(folder: Path) -> Run:
  try:
    stored = work_folder.config(folder) or {}
    seeds = stored['config']['seeds']
    summary = work_folder.summary(folder, seeds)
    lines = _lines(folder, summary)
    settings = used(stored['config'])
    read = lambda name: work_folder.arrays(folder, name, summary)
    partition = read(work_folder.PARTITION)
    clients = {seed: read(work_folder.clients_file(seed)) for seed in seeds}
    sets = {seed: read(work_folder.set_file(seed, seeds)) for seed in seeds}
    drawn = {name: _picture(folder / 'figures' / f'{name}.png') for name in INSPECTED}
    inspected = {name: content for name, content in drawn.items() if content is not None}
    if wrong := work_folder.misfit(
      stored, partition.get('counts'), clients.values(), sets.values()
    ):
      raise DamagedError(wrong)
    others = {line['seed'] for line in lines} - {*seeds}
    if others:
      raise DamagedError(f'metrics.jsonl is damaged: it has lines of seed {min(others)}')
  except (ValueError, LookupError, TypeError, AttributeError, OSError) as error:
    raise ValueError(f'{folder}: cannot be read as a run ({error})') from error
  return Run(
    folder=folder,
    label='',
    stored=stored,
    settings=settings,
    lines=lines,
    summary=summary,
    counts=partition.get('counts'),
    clients={seed: arrays for seed, arrays in clients.items() if arrays},
    synthetic={seed: arrays for seed, arrays in sets.items() if arrays},
    inspected=inspected,
  )


def _lines(folder: Path, summary: Mapping[str, Any] | None) -> list[metrics.Line]:
  """A run's metrics; of an unfinished run they are compared with what its checkpoint says."""
  path = folder / 'metrics.jsonl'
  saved = checkpoint.list_sorted(folder / 'checkpoints') if summary is None else []
  note = checkpoint.note_of(saved[-1]) if saved else {}
  if 'metrics_sha256' in note:
    content = read_bytes(path, note['metrics_bytes']) or b''
    if hashlib.sha256(content).hexdigest() != note['metrics_sha256']:
      raise DamagedError(f'{path} is damaged: it is not what it was when {saved[-1]} was saved')
  return metrics.read(path)


def _picture(path: Path) -> bytes | None:
  content = read_bytes(path)
  if content is not None and not work_folder.is_picture(content):
    raise DamagedError(f'{path} is damaged: it is no PNG')
  return content


def used(config: Mapping[str, Any]) -> dict[str, Any]:
  """Flattens a stored config, without the blocks of methods that are not in use.

  Args:
    config: `config` of a config.json of any version; it is not checked.

  Returns:
    Values by dotted key; not `compare` and `trackers`, which change nothing in the run itself.
  """
  blocks = {algorithms.block_name(word) for word in config['algorithm'].split('+')}
  out = {}
  for key, value in config.items():
    if not isinstance(value, Mapping):
      out[key] = value
    elif key in SECTIONS or key in blocks:
      out |= {f'{key}.{name}': item for name, item in value.items()}
  return {key: value for key, value in out.items() if key not in ('outside', 'compare', 'trackers')}


def differences(runs: Sequence[Run]) -> dict[str, list[Any]]:
  """Returns the fields in which runs differ: by dotted key, a value for each run."""
  keys = dict.fromkeys(key for run in runs for key in run.settings)
  rows = {key: [run.settings.get(key, ABSENT) for run in runs] for key in keys}
  return {key: row for key, row in rows.items() if any(value != row[0] for value in row)}


def short_names(runs: Sequence[Run]) -> list[str]:
  """Returns the methods' names, own ones ('package.module:Class') by class if that is unique."""
  whole = [run.settings['algorithm'] for run in runs]
  short = [method_name(name) for name in whole]
  meant: dict[str, set[str]] = {}
  for brief, name in zip(short, whole, strict=True):
    meant.setdefault(brief, set()).add(name)
  return [b if len(meant[b]) == 1 else name for b, name in zip(short, whole, strict=True)]


def labels(runs: Sequence[Run]) -> list[str]:
  """Returns different labels: the method, then up to two settings, the folder, a number."""
  names = short_names(runs)
  out = list(names)
  for name, times in Counter(names).items():
    if times == 1:
      continue
    alike = [i for i, other in enumerate(names) if other == name]
    changes = differences([runs[i] for i in alike])
    for position, i in enumerate(alike):
      words = [f'{key}={values[position]}' for key, values in changes.items()]
      if words:
        out[i] = f'{name}, {", ".join(words) if len(words) < 3 else runs[i].folder.name}'
  numbered = [(label, out[: i + 1].count(label)) for i, label in enumerate(out)]
  return [f'{label} ({n})' if out.count(label) > 1 else label for label, n in numbered]


def why_not(runs: Sequence[Run]) -> str:
  """States why runs lack results that a finished seed of this version has."""
  whose: dict[str, list[str]] = {}
  for run in runs:
    whose.setdefault(_reason(run), []).append(run.label)
  return '; '.join(f'{", ".join(labels)} ({reason})' for reason, labels in whose.items())


def _reason(run: Run) -> str:
  if run.summary is None:
    return 'not finished'
  if all(status['status'] == 'diverged' for status in run.summary['status'].values()):
    return 'diverged'
  return 'made by an older version, or its images have several labels'
