"""Runs for tests: a small config, and what a run comes to."""

import sys
import types

import numpy as np

import fedjax_syn.runs
from fedjax_syn import config as config_lib
from fedjax_syn.cli import jax_setup
from fedjax_syn.core import tree_encoding
from fedjax_syn.runs import checkpoint, experiment, metrics, work_folder
from tests.fake_engine import PHASE


class Killed(BaseException):
  """Stands for SIGKILL: nothing catches it, nothing is saved after it."""


def config_of(**changes):
  config = config_lib.get_default()
  base = {
    'algorithm': 'dynafed',
    'rounds': 7,
    'seeds': (0, 1),
    'checkpoint_every': 2,
    'data.name': 'digits',
    'data.partition': 'iid',
    'data.clients': 4,
    'layout.devices': 1,  # compiles in two thirds of the time
    'model.name': 'mlp',
    'model.width': 8,
    'model.depth': 1,
    'dynafed.length': PHASE,
    'dynafed.segment': 2,
    'dynafed.iterations': 6,
  }
  for key, value in {**base, **changes}.items():
    section, _, name = key.rpartition('.')
    (config[section] if section else config)[name] = value
  return config


def run(folder, **changes) -> int:
  """Runs `config_of` in a folder; returns the exit status."""
  return experiment.run_experiment(config_of(**changes), folder)


def refusal(capsys) -> str:
  """What a refused run has said, which is one line."""
  error = capsys.readouterr().err
  assert error.count('\n') == 1, error
  return error


def lines_of(folder) -> list[dict]:
  """The metrics lines, a seed after the other, without what a clock says."""
  lines = [
    {k: v for k, v in line.items() if k != 'seconds'}
    for line in metrics.read(folder / 'metrics.jsonl')
  ]
  return sorted(lines, key=lambda line: line['seed'])  # stable


SIDE_BY_SIDE = {'layout.seeds': 2}  # both seeds of `config_of` in one program


def outcome(folder) -> dict:
  """All of a finished folder that must not depend on interruptions."""
  summary = work_folder.summary(folder)
  states = {}
  for seed in summary['seeds']:
    mine = [
      p for p in checkpoint.list_sorted(folder / 'checkpoints') if checkpoint.seed_of(p) == seed
    ]
    tree = checkpoint.read(mine[-1]).tree
    states[seed] = {k: v.tobytes() for k, v in tree_encoding.encode(tree)[0].items()}
  with np.load(folder / 'synthetic' / 'synthetic.npz') as file:
    learned = {k: v.tobytes() for k, v in file.items()}
  of_clock = ('seconds', 'peak_memory_bytes', 'metrics_sha256')
  timeless = {k: v for k, v in summary.items() if k not in of_clock}
  if 'files' in summary:  # figures may be left out
    timeless['files'] = {
      key: {name: digest for name, digest in files.items() if digest}
      for key, files in summary['files'].items()
    }
  return {'summary': timeless, 'lines': lines_of(folder), 'states': states, 'learned': learned}


REAL = {
  'rounds': 6,
  'seeds': (0,),
  'dynafed.iterations': 4,
  'dynafed.images_per_class': 1,
  'dynafed.inner_steps': 2,
}


def summary_of(mean, status, seconds=1.0, **more) -> dict:
  """The least that a summary.json holds: of one seed, whose accuracies are all `mean`."""
  value = {'mean': mean, 'std': None, 'per_seed': [mean]}
  return {
    'test_accuracy': {name: value for name in ('last', 'mean_last_5', 'best')},
    'rounds_to_accuracy': {},
    'status': status,
    'seconds': {'total': seconds, 'rounds': seconds / 2},
    **more,
  }


def replace_experiment(monkeypatch, folder, run_experiment):
  """Lets commands call a function instead of training, in a folder; JAX's settings stay."""
  fake = types.SimpleNamespace(run_experiment=run_experiment)
  monkeypatch.setitem(sys.modules, 'fedjax_syn.runs.experiment', fake)
  monkeypatch.setattr(fedjax_syn.runs, 'experiment', fake, raising=False)
  monkeypatch.setattr(jax_setup, 'prepare_jax', lambda *_: None)
  monkeypatch.chdir(folder)
