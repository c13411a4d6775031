"""Writes a run's config.json: its config, its data, and the versions, devices and commit."""

import importlib.metadata
import os
import platform
import socket
import subprocess
from pathlib import Path

import jax
import numpy as np

import fedjax_syn
from fedjax_syn import config as config_lib
from fedjax_syn.config import identity
from fedjax_syn.runs import resume, start_from, stored_files, work_folder
from fedjax_syn.runs.assemble import Job

PACKAGES = ('jax', 'jaxlib', 'flax', 'optax', 'orbax-checkpoint', 'numpy')


def write_config(job: Job, config_name: str) -> None:
  """Writes config.json; of a run that resumes only what may have changed since it began.

  Args:
    job: the run.
    config_name: of the config file.
  """
  path, config, dataset = job.folder / 'config.json', job.config, job.problem.dataset
  now = {  # where data lie and the number of rounds may change
    'hash': identity.hash8(config),
    'config': config_lib.to_dict(config),
    'own_code': identity.own_code(config),
  }
  added = {'data_digests': resume.data_digests(dataset)}  # older versions lack them
  if start := start_from.digests(config.start_from, config.seeds, config.rounds):
    added['start_digests'] = start
  if resume.has_begun(job.folder) and (before := work_folder.config(job.folder)):
    if before != (written := {**added, **before, **now}):
      stored_files.write_json(path, written)
    return
  job.folder.mkdir(parents=True, exist_ok=True)
  normalisation = dataset.normalisation
  described = {
    'name': dataset.name,
    'title': dataset.title,
    'checksum': dataset.checksum,
    'num_classes': dataset.num_classes,
    'class_names': list(dataset.class_names),
    'client_names': list(job.problem.client_names or dataset.client_names),
    'shape': list(dataset.shape),
    'kind': dataset.kind,
    'feature_names': list(dataset.feature_names),
    'rows': {'train': len(dataset.train.y), 'test': len(dataset.test.y)},
    'normalisation': {
      'name': normalisation.name,
      'mean': np.asarray(normalisation.mean, float).tolist(),
      'std': np.asarray(normalisation.std, float).tolist(),
    },
  }
  layout = job.engine.layout._asdict()
  named = {'config_name': config_name, **now, **added, 'dataset': described, 'layout': layout}
  versions = {'python': platform.python_version(), 'fedjax_syn': fedjax_syn.__version__}
  versions |= {name: importlib.metadata.version(name) for name in PACKAGES}
  environment = {
    'versions': versions,
    'devices': [f'{d.platform} {d.device_kind}' for d in jax.devices()],
    'host': {'name': socket.gethostname(), 'machine': platform.machine(), 'cores': os.cpu_count()},
    'commit': _commit(),
  }
  stored_files.write_json(path, {**named, **environment})


def _commit() -> str | None:
  """Returns the package's commit, '-dirty' appended if files differ; None outside a checkout."""
  root = Path(fedjax_syn.__file__).resolve().parent.parent
  command = ['git', 'describe', '--always', '--dirty', '--abbrev=40', '--exclude=*']
  if not (root / '.git').exists():
    return None
  try:
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=10)
  except (OSError, subprocess.TimeoutExpired):
    return None
  return done.stdout.strip() or None
