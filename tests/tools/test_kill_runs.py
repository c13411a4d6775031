"""The script that kills runs: how kills are dealt out, when they come, and what counts as a difference."""

import random
import shutil

import pytest

from fedjax_syn import config as config_lib
from fedjax_syn.config import files
from fedjax_syn.core import paths
from tools import kill_runs
from tools.kill_runs import Kill

pytest_plugins = ['tests.run_fixtures']


def test_every_algorithm_is_killed_and_the_kinds_are_as_asked_for():
  words = ['fedavg', 'scaffold', 'dynafed', 'scaffold+dynafed', 'moon']
  dealt = kill_runs.plan(words, kills=20, writes=3, synthesis=4, rng=random.Random(0))
  kinds = [kill.kind for kills in dealt.values() for kill in kills]
  assert list(dealt) == words and all(dealt.values())
  assert (len(kinds), kinds.count('write'), kinds.count('synthesis')) == (20, 3, 4)
  assert {w for w in words if any(k.kind == 'synthesis' for k in dealt[w])} == {
    'dynafed',
    'scaffold+dynafed',
  }
  few = kill_runs.plan(words, kills=1, writes=0, synthesis=0, rng=random.Random(0))
  assert [len(kills) for kills in few.values()] == [1] * 5  # one for each all the same


@pytest.mark.parametrize('algorithm', [*config_lib.names('algorithms'), 'scaffold+dynafed'])
def test_every_job_is_one_that_is_accepted(algorithm, tmp_path):
  settings = [a for a in kill_runs.command(algorithm, tmp_path) if a.startswith('--config.')]
  config = config_lib.check(files.load_config(str(paths.DEFAULT_CONFIG), settings))
  assert config.algorithm == algorithm and config.compare == '' and config.checkpoint_every == 1


def test_a_kill_waits_for_its_moment_and_not_for_a_run_that_ended(tmp_path):
  run = lambda alive: lambda: alive
  for kind in ('any', 'write', 'synthesis'):
    assert not kill_runs.moment(Kill(kind, 0.0), tmp_path, run(False), 1.0, 0)
  (tmp_path / 'metrics.jsonl').touch()
  assert kill_runs.moment(Kill('any', 0.01), tmp_path, run(True), 1.0, 0)
  (tmp_path / f'checkpoints/{kill_runs.PHASE}/seed_0').mkdir(parents=True)
  assert kill_runs.moment(Kill('synthesis', 0.01), tmp_path, run(True), 1.0, 0)
  (tmp_path / 'checkpoints/.tmp-1').mkdir()
  (tmp_path / 'checkpoints/.tmp-1/arrays').touch()
  assert kill_runs.moment(Kill('write', 0.0), tmp_path, run(True), 1.0, 0)
  assert not kill_runs.moment(
    Kill('write', 0.0), tmp_path, run(False), 1.0, 1
  )  # not another one yet


def test_an_outcome_differs_in_a_line_or_in_the_learned_set(whole_folder, tmp_path):
  copy = tmp_path / 'copy'
  shutil.copytree(whole_folder, copy)
  one = kill_runs.outcome(whole_folder)
  assert kill_runs.outcome(copy) == one and 'params/w' in one and 'synthetic.npz/x' in one
  path = copy / 'metrics.jsonl'
  path.write_text(path.read_text().replace('"round": 3', '"round": 33', 1))
  other = kill_runs.outcome(copy)
  assert [k for k in one if one[k] != other[k]] == ['metrics.jsonl']


@pytest.mark.parametrize(
  ('argument', 'line'),
  [
    ('--kills=3', '--workdir: name a folder'),
    ('--workdir=.', '--workdir=.: is there already'),
    ('--algorithms=fedavgg', "--algorithms='fedavgg': unknown; nearest: fedavg"),
    ('more', "'more': unexpected"),
  ],
)
def test_refusals_are_one_line(argument, line, capsys, tmp_path):
  folder = [] if 'workdir' in argument or 'kills' in argument else [f'--workdir={tmp_path / "w"}']
  with pytest.raises(SystemExit) as exit:
    kill_runs.FLAGS.unparse_flags()
    for name in kill_runs.FLAGS:
      kill_runs.FLAGS[name].unparse()
    kill_runs.main(['kill_runs.py', argument, *folder])
  err = capsys.readouterr().err
  assert exit.value.code == 2 and line in err and err.count('\n') == 1


def test_a_kill_that_came_too_late_is_tried_again_in_another_folder(monkeypatch, tmp_path):
  kills = [Kill('any', share) for share in (0.1, 0.9, 0.2)]
  says = iter(['killed', 'finished', 'killed', 'finished', 'killed', 'finished'])
  seen = []

  def session(arguments, folder, kill, took):
    if 'whole' in str(folder):
      return 'finished'
    seen.append((folder.name, kill and kill.after))
    return next(says)

  monkeypatch.setattr(kill_runs, 'session', session)
  monkeypatch.setattr(kill_runs, '_lines', lambda folder: [{'seconds': 0.0}])
  monkeypatch.setattr(
    kill_runs, 'outcome', lambda folder: {'model': b'12'[folder.name.endswith('-2') :]}
  )
  result = kill_runs.torment('fedavg', kills, tmp_path)
  # 0.9 came too late in the first folder; in the second its half comes first; 0.2 then comes too late, and so on.
  assert seen == [
    *(('fedavg-1', 0.1), ('fedavg-1', 0.9)),
    *(('fedavg-2', 0.45), ('fedavg-2', 0.2)),
    *(('fedavg-3', 0.1), ('fedavg-3', None)),
  ]
  assert result['kills'] == {'any': 3} and result['missed'] == 0
  assert result['different'] == ['model']  # of the second folder: none is overlooked

  says = iter(['finished'] * kill_runs.ATTEMPTS)
  assert kill_runs.torment('fedavg', kills[:1], tmp_path)['missed'] == 1


@pytest.mark.slow
def test_killed_runs_come_to_the_same(tmp_path):
  kills = [Kill('write', 0.0), Kill('synthesis', 0.3), Kill('any', 0.5)]
  result = kill_runs.torment('scaffold+dynafed', kills, tmp_path)
  assert (
    result['unusable'] == '' and result['different'] == [] and sum(result['kills'].values()) > 1
  )
