"""Where runs begin and where paths lead: branches and their comparisons, home folder, sweeps."""

import json
import os
import shutil
from pathlib import Path

import pytest

from fedjax_syn.config import files
from fedjax_syn.core import paths
from fedjax_syn.data import datasets
from fedjax_syn.report import runs as report_runs
from fedjax_syn.runs import api, experiment
from fedjax_syn.tables import sweep as sweep_lib
from tests.run_helpers import config_of, lines_of, refusal, run

pytest_plugins = ['tests.run_fixtures']


@pytest.mark.parametrize('compared', ['', 'fedavgm', 'fedavg'])
def test_a_compared_method_begins_at_a_model_of_its_own_or_anew(fake, tmp_path, capsys, compared):
  source = {'algorithm': 'fedavg', 'rounds': 4, 'seeds': (0,)}
  if compared == 'fedavg':
    source = {**source, 'algorithm': 'fedavgm', 'compare': compared}
  elif compared:
    source |= {'compare': compared}
  assert run(tmp_path / 'source', **source) == 0
  start = tmp_path / 'source' / 'checkpoints' / '4'
  other = {'': 'fedavg', 'fedavgm': 'fedavgm', 'fedavg': 'fedavg'}[compared]
  branch = {
    'algorithm': 'fedprox',
    'compare': other,
    'rounds': 6,
    'seeds': (0,),
    'start_from': str(start),
  }
  capsys.readouterr()
  folder = tmp_path / 'branch'
  assert run(folder, **branch) == 0
  own = tmp_path / 'source' / 'compare' / 'checkpoints' / '4' if compared else start
  said = capsys.readouterr().out
  stored = json.loads((folder / 'compare' / 'config.json').read_text())
  assert stored['config']['start_from'] == str(own)
  assert f'starts from {own}/seed_0' in said.replace('\n', '')
  # Anew, where there is none; and what was begun keeps where it began.
  capsys.readouterr()
  anew = {**branch, 'compare': 'fedopt'}
  assert run(tmp_path / 'anew', **anew) == 0
  said = capsys.readouterr().out.replace('\n', ' ')
  assert 'fedopt has no model of its own' in said and 'begins anew' in said
  assert [line['round'] for line in lines_of(tmp_path / 'anew' / 'compare')] == [*range(7)]
  for copy in (folder, tmp_path / 'anew'):
    (copy / 'summary.json').unlink()
  os.rename(tmp_path / 'source', tmp_path / 'gone')
  assert run(tmp_path / 'anew', **anew) == 0


def test_a_source_that_was_moved_is_the_same_and_one_that_was_trained_anew_is_not(
  fake, tmp_path, capsys
):
  source = {'algorithm': 'fedavg', 'rounds': 4}
  assert run(tmp_path / 'source', **source) == 0
  branch = {'algorithm': 'fedprox', 'rounds': 6}
  folder, start = tmp_path / 'branch', tmp_path / 'source' / 'checkpoints' / '4'

  def stop(what, seed, round):
    if (what, seed, round) == ('round', 0, 6):
      raise RuntimeError('stopped')

  fake(on=stop)
  with pytest.raises(RuntimeError):
    run(folder, **branch, start_from=str(start))
  fake()
  os.rename(tmp_path / 'source', tmp_path / 'moved')
  copy = tmp_path / 'copy'
  shutil.copytree(folder, copy)
  assert run(copy, **branch, start_from=str(tmp_path / 'moved' / 'checkpoints' / '4')) == 0
  # Seed 1 has still to begin, and would begin at another model than seed 0 did.
  (tmp_path / 'source' / 'checkpoints').mkdir(parents=True)
  fake(parameters=6)
  assert run(tmp_path / 'other', **source) == 0
  fake()
  os.rename(tmp_path / 'other' / 'checkpoints' / '4', start)
  capsys.readouterr()
  assert run(folder, **branch, start_from=str(start)) == 2
  assert 'holds another checkpoint of seed 1 than when the run began' in refusal(capsys)


def test_a_comparison_that_an_older_version_began_at_the_other_method_s_model_is_refused(
  fake, tmp_path, capsys
):
  assert run(tmp_path / 'source', algorithm='fedavg', rounds=4, seeds=(0,)) == 0
  start = str(tmp_path / 'source' / 'checkpoints' / '4')
  branch = {'algorithm': 'fedprox', 'compare': 'fedopt', 'rounds': 6, 'seeds': (0,)}
  assert run(tmp_path / 'run', start_from=start, **branch) == 0
  path = tmp_path / 'run' / 'compare' / 'config.json'
  stored = json.loads(path.read_text())
  stored['config']['start_from'] = start
  path.write_text(json.dumps({k: v for k, v in stored.items() if k != 'sha256'}))
  (tmp_path / 'run' / 'summary.json').unlink()
  capsys.readouterr()
  assert run(tmp_path / 'run', start_from=start, **branch) == 2
  assert f"compare: was started under another config (start_from: '{start}' -> '')" in refusal(
    capsys
  )


@pytest.mark.parametrize('spelt', ['~/place', '~root/place'])
def test_the_home_folder_is_understood(monkeypatch, spelt):
  monkeypatch.setenv('HOME', '/home/somebody')
  place = Path('/home/somebody/place') if spelt.startswith('~/') else Path('/root/place')
  assert paths.given(spelt) == paths.given(Path(spelt), '--workdir') == place
  assert paths.given(spelt, '--output') == place
  assert datasets._folder(spelt) == place
  assert str(paths.given('./~/x')) == '~/x'  # a folder that is called so


def test_a_home_that_nobody_has_is_refused(tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(tmp_path)
  with pytest.raises(ValueError, match='--workdir=~nobody_of_this_name/x: there is no such home'):
    paths.given('~nobody_of_this_name/x', '--workdir')
  assert experiment.run_experiment(config_of(), '~nobody_of_this_name/x') == 2
  assert 'there is no such home' in refusal(capsys)
  assert not list(tmp_path.iterdir())


def test_every_reader_of_a_run_understands_the_home_folder(fake, tmp_path, monkeypatch):
  monkeypatch.setenv('HOME', str(tmp_path))
  assert experiment.run_experiment(config_of(rounds=4, seeds=(0,)), '~/run') == 0
  assert (tmp_path / 'run' / 'summary.json').exists()
  (tmp_path / 'tiny.py').write_text(
    'from fedjax_syn import config\ndef get_config():\n  return config.get_default()\n'
  )
  assert files.load_config('~/tiny.py').rounds == 200
  assert api.load('~/run', trusted=False).variables.params
  assert [run.folder for run in report_runs.open_runs(['~/run'])] == [tmp_path / 'run']
  branch = config_of(algorithm='fedavg', rounds=6, seeds=(0,), start_from='~/run/checkpoints/4')
  assert experiment.run_experiment(branch, '~/branch') == 0


def test_a_sweep_under_another_hash_is_found_by_its_cells(fake, tmp_path):
  old, new = tmp_path / 'sweep-x-12345678', tmp_path / 'sweep-x-00000000'
  config = config_of(algorithm='fedavg', rounds=4, **{'data.validation': 0.1})
  cells = [sweep_lib.make_cell(config, {'client.lr': lr}, new) for lr in ('0.2', '0.1')]
  assert sweep_lib.begun_in(cells, [old]) is None
  assert experiment.run_experiment(cells[1].config, old / cells[1].folder.name) == 0
  assert sweep_lib.begun_in(cells, [old]) == old
  new.mkdir()
  assert sweep_lib.begun_in(cells, [old]) is None
