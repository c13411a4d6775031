"""A new run from another run's checkpoint."""

import pytest

from fedjax_syn import experiment
from tests.fake_engine import PHASE
from tests.runs import config_of, lines_of

pytest_plugins = ['tests.run_fixtures']


def test_start_from_keeps_what_fits_and_lists_the_rest(fake, tmp_path, capsys):
  source = tmp_path / 'source'
  assert experiment.run_experiment(config_of(), source) == 0
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
  assert experiment.run_experiment(config_of(algorithm='fedavg'), tmp_path / 'source') == 0
  start = str(tmp_path / 'source' / 'checkpoints' / '6')
  assert experiment.run_experiment(config_of(start_from=start), tmp_path / 'branch') == 0
  assert 'dropped: nothing; initialised: server.dynafed' in capsys.readouterr().out


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
  assert experiment.run_experiment(config_of(), 'source') == 0
  assert experiment.run_experiment(config_of(**change), 'branch') == 2
  assert said in capsys.readouterr().err
