"""Inspecting a finished run: the files it writes, the run's own round, and refusals."""

import json
import os
import subprocess
import sys

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_syn import config as config_lib
from fedjax_syn.cli import inspect, jax_setup
from fedjax_syn.papers.dynafed import inspections
from fedjax_syn.runs import checkpoint, experiment, metrics, restore
from tests.cli.test_train import ROOT
from tests.fake_engine import PHASE
from tests.plotting.test_figures import assert_picture
from tests.run_helpers import REAL, config_of, summary_of


def start(*arguments):
  return inspect.main(['inspect_run.py', *map(str, arguments)])


@pytest.fixture(scope='module')
def at_phase(tmp_path_factory):
  """The checkpoints at the end of the phase, of the run in `folder`, which lacks them."""
  return tmp_path_factory.mktemp('phase') / str(PHASE)


@pytest.fixture(scope='module')
def folder(tmp_path_factory, at_phase):
  """A tiny run, inspected with the last checkpoint alone."""
  folder = tmp_path_factory.mktemp('run')
  changes = {
    'keep_checkpoints': 'phases',
    'compare': 'fedavg',
    'data.clients': 6,
    'client.participation': 0.5,
    'dynafed.finetune_lr': 1e-2,
  }
  config = config_of(**REAL, **changes)
  assert experiment.run_experiment(config, folder) == 0
  (folder / 'checkpoints' / str(PHASE)).rename(at_phase)
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(jax_setup, 'prepare_jax', lambda *_: None)
    assert start(folder, '--steps=4', '--clients=2') == 0
  return folder


@pytest.fixture
def report(folder):
  return json.loads((folder / 'inspect.json').read_text())


def test_it_draws_four_figures(folder):
  for name in ('gradient_error', 'privacy', 'client_losses', 'from_scratch'):
    assert_picture(folder / 'figures' / f'{name}.png')


def test_gradients_are_taken_along_the_trajectory_and_after_it(report):
  found = report['gradient_error']
  assert found['rounds'][: PHASE + 1] == [0, 1, 2, 3] and found['rounds'][-1] == 6
  assert list(found['sets']) == ['synthetic', 'real', 'noise']
  r = np.array(found['real_norm'])
  for e in found['sets'].values():
    assert len(e['error_norm']) == len(e['cosine']) == len(r)
    bound = e['delta'] * r + e['epsilon']
    assert (np.array(e['error_norm']) <= bound * (1 + 1e-6)).all()


def test_privacy_compares_members_with_others_by_four_scores(report):
  """Noise before learning and an untrained network know nothing of the rows.

  So the scores are at chance, within four standard errors.
  """
  found = report['privacy']
  assert found['nearest']['median'] > 0 and 0 <= found['nearest']['share_nearer'] <= 1
  assert len(found['membership']) == 4
  for name in ('distance, set before learning', 'loss, network before training'):
    attack = found['membership'][name]
    assert abs(attack['auc'] - 0.5) < 4 * attack['std_error']
    # 1,198 and 599 rows: Wilcoxon's error at 1/2 is sqrt(1798 / (12 * 1198 * 599))
    assert attack['std_error'] == pytest.approx(0.01445, abs=2e-4)


def test_scratch_and_table_4(report, folder):
  for run in report['from_scratch']['sets'].values():
    assert run['steps'] == [0, 1, 2, 3, 4] and len(run['accuracy']) == 5
  lines = metrics.read(folder / 'compare' / 'metrics.jsonl')
  best = metrics.best_running_mean(lines)[0]
  assert report['rounds_to_running_mean']['target'] == {'0': best}
  assert report['rounds_to_running_mean']['compared']['0'] in (5, 6)


def test_the_round_is_the_run_s_own(report, folder):
  """The mean loss at the end is that of the engine's round, on all training rows.

  The engine's round starts from the same checkpoint.
  """
  found = report['client_losses']
  assert found['round'] == PHASE + 1 and len(found['clients']) == len(found['local']) == 2
  finished = inspections.open_run(folder, None)
  train, engine = finished.run.problem.dataset.train, finished.run.engine
  state = jax.tree.map(jnp.asarray, finished.states[0])
  state, _ = engine.run(0, state, 1)
  loss = engine.evaluator(train.x, train.y)(state.params, state.stats)['loss']
  assert found['mean'][-1] == pytest.approx(loss, rel=1e-5)
  assert abs(found['mean'][-1] - found['mean'][0]) > 1e-3 * loss


def test_the_last_checkpoint_knows_the_model_before_fine_tuning(folder, at_phase):
  first, last = inspections.open_run(folder, None).states
  after_work = checkpoint.read(max(at_phase.iterdir())).tree
  assert int(after_work.server['dynafed'].iteration) > 0 and int(last.round) == 6
  chex.assert_trees_all_equal((first.round, first.params), (after_work.round, after_work.params))
  learned = lambda state: (state.server['dynafed'].syn, state.server['dynafed'].trajectory)
  chex.assert_trees_all_equal(learned(first), learned(after_work))


def test_adam_s_moments_are_gone_once_the_set_is_learned(folder, at_phase):
  before, after = (checkpoint.read(path).tree for path in sorted(at_phase.iterdir()))
  moments = jax.tree.leaves(after.server['dynafed'].opt_state)
  assert moments and not any(map(np.any, moments))
  assert jax.tree.structure(before) == jax.tree.structure(after)


def unfinished(folder, **changes):
  """A folder with a config, and a summary unless it is to be unfinished."""
  summary = changes.pop('summary', summary_of(0.5, {'0': {'status': 'finished'}}))
  config = config_lib.to_dict(config_of(**{'seeds': (0,), **changes}))
  stored = {'config': config, 'dataset': {'title': 'digits'}}
  (folder / 'config.json').write_text(json.dumps(stored))
  if summary:
    (folder / 'summary.json').write_text(json.dumps(summary))
  return folder


DIVERGED = summary_of(None, {'0': {'status': 'diverged', 'round': 2}})


@pytest.mark.parametrize(
  ('changes', 'flags', 'line'),
  [
    (None, [], 'holds no config.json; name the folder of a run'),
    ({'summary': None}, [], 'is not finished; continue with launch/main.py --workdir='),
    (
      {'algorithm': 'fedavg', 'compare': 'dynafed'},
      [],
      "algorithm='fedavg' learns no synthetic set",
    ),
    ({}, ['--seed=5'], '--seed=5 did not finish or is not a seed of the run; finished: 0'),
    ({'summary': DIVERGED}, [], 'no seed of the run finished, all diverged'),
    ({}, [], 'no checkpoint of seed 0 holds a synthetic set'),
    ({}, ['another'], '2 folders given: name the folder of one run'),
    ({}, ['--steps=0'], 'flag --steps=0'),
    ({}, ['--step=1'], "Unknown command line flag 'step'"),
  ],
)
def test_what_is_no_finished_run_is_refused_in_one_line(
  changes, flags, line, tmp_path, monkeypatch, capsys
):
  monkeypatch.setattr(jax_setup, 'prepare_jax', lambda *_: None)
  if changes is not None:
    unfinished(tmp_path, **changes)
  with pytest.raises(SystemExit) as end:
    start(tmp_path, *flags)
  out, err = capsys.readouterr()
  assert end.value.code == 2 and out == ''
  assert line in err and err.count('\n') == 1
  assert not (tmp_path / 'inspect.json').exists()


def test_another_data_set_is_refused(folder, monkeypatch):
  opened = restore.read(folder)
  stored = {**opened.stored, 'dataset': {**opened.stored['dataset'], 'checksum': 'other'}}
  monkeypatch.setattr(restore, 'read', lambda *_: opened._replace(stored=stored))
  with pytest.raises(ValueError, match="data.name='digits': differs from the data set of the run"):
    inspections.open_run(folder, None)


def test_the_script_helps_and_refuses(tmp_path):
  script = [sys.executable, str(ROOT / 'launch' / 'inspect_run.py')]
  environment = {**os.environ, 'PYTHONPATH': str(ROOT)}
  call = lambda *a: subprocess.run(
    [*script, *a], env=environment, capture_output=True, text=True, timeout=120, check=False
  )
  help = call('--help')
  assert help.returncode == 0 and '--steps' in help.stdout and help.stderr == ''
  refused = call()
  assert refused.returncode == 2 and refused.stdout == ''
  assert refused.stderr == '0 folders given: name the folder of one run\n'
