"""A new run from another run's checkpoint."""

import shutil
import signal

import pytest

from fedjax_syn.runs import experiment
from tests.fake_engine import PHASE
from tests.run_helpers import config_of, lines_of, run

pytest_plugins = ['tests.run_fixtures']


def test_start_from_keeps_what_fits_and_lists_the_rest(fake, tmp_path, capsys):
  source = tmp_path / 'source'
  assert run(source, keep_checkpoints='phases') == 0
  rounds = []
  fake(on=lambda what, seed, round: rounds.append((seed, round)) if what == 'round' else None)
  config = config_of(algorithm='fedavg', start_from=str(source / 'checkpoints' / str(PHASE)))
  assert experiment.run_experiment(config, tmp_path / 'branch') == 0
  assert rounds == [(s, r) for s in (0, 1) for r in range(PHASE + 1, 8)]
  shown = capsys.readouterr().out
  assert 'dropped: server.dynafed; initialised: nothing' in shown
  old, new = lines_of(source), lines_of(tmp_path / 'branch')
  assert new == [
    line if line['round'] > PHASE else new[i]
    for i, line in enumerate(l for l in old if l['round'] >= PHASE)
  ]
  assert new[0]['test/accuracy'] == next(l for l in old if l['round'] == PHASE)['test/accuracy']


def test_start_from_initialises_what_is_missing(fake, tmp_path, capsys):
  assert run(tmp_path / 'source', algorithm='fedavg', rounds=6) == 0
  start = str(tmp_path / 'source' / 'checkpoints' / '6')
  config = config_of(algorithm='fedavgm', start_from=start)
  assert experiment.run_experiment(config, tmp_path / 'branch') == 0
  assert 'dropped: nothing; initialised: server.fedavgm' in capsys.readouterr().out


def test_a_record_of_every_round_cannot_begin_in_the_middle(fake, tmp_path, capsys):
  """DynaFed's trajectory would be zeros; after round L its set would still be its first noise."""
  assert run(tmp_path / 'source', algorithm='fedavg', rounds=6) == 0
  start = str(tmp_path / 'source' / 'checkpoints' / '6')
  assert experiment.run_experiment(config_of(start_from=start), tmp_path / 'branch') == 2
  assert "'dynafed' records every round from the first on" in capsys.readouterr().err
  assert not (tmp_path / 'branch').exists()


def test_another_model_is_refused_before_any_work(fake, tmp_path, capsys):
  assert run(tmp_path / 'source', algorithm='fedavg', rounds=6) == 0
  (tmp_path / 'source' / 'checkpoints' / '6').rename(tmp_path / '6')
  fake(parameters=4)
  config = config_of(algorithm='fedavg', start_from=str(tmp_path / '6'))
  assert experiment.run_experiment(config, tmp_path / 'branch') == 2
  assert 'holds another model' in capsys.readouterr().err
  assert not (tmp_path / 'branch').exists()


def test_a_branch_goes_on_without_what_it_began_from(fake, tmp_path):
  """Both seeds have a checkpoint of their own by then."""
  assert run(tmp_path / 'source', keep_checkpoints='phases') == 0
  start = tmp_path / 'source' / 'checkpoints' / str(PHASE)
  config = config_of(algorithm='fedavg', start_from=str(start))

  def stop(what, seed, round):
    if (what, seed, round) == ('round', 1, PHASE + 2):
      signal.raise_signal(signal.SIGTERM)

  fake(on=stop)
  assert experiment.run_experiment(config, tmp_path / 'branch') == 75
  fake()
  shutil.rmtree(tmp_path / 'source')
  assert experiment.run_experiment(config, tmp_path / 'branch') == 0
  assert {line['seed'] for line in lines_of(tmp_path / 'branch')} == {0, 1}


@pytest.mark.parametrize(
  ('change', 'said'),
  [
    ({'start_from': 'source/checkpoints/5'}, 'rounds there: 3'),
    ({'start_from': 'source/checkpoints'}, 'W/checkpoints/<round>'),
    (
      {'start_from': f'source/checkpoints/{PHASE}', 'seeds': (0, 9)},
      'no checkpoint of seed 9; seeds there: 0, 1',
    ),
    ({'start_from': 'source/checkpoints/7'}, 'rounds=7 must be greater than 7'),
  ],
)
def test_start_from_refusals(fake, tmp_path, capsys, monkeypatch, change, said):
  monkeypatch.chdir(tmp_path)
  assert run('source', keep_checkpoints='phases') == 0
  assert experiment.run_experiment(config_of(**change), 'branch') == 2
  assert said in capsys.readouterr().err
