"""A run's files are used only as they were written; a damaged one is named, or made again."""

import functools
import io
import os
import shutil

import numpy as np
import pytest

from fedjax_syn import config as config_lib
from fedjax_syn import report
from fedjax_syn.runs import (
  checkpoint,
  experiment,
  metrics,
  recorder,
  stored_files,
  trackers,
  work_folder,
)
from tests.damages import digit, flip, folder_for_file, lines_changed, pipe_for_file
from tests.run_helpers import Killed, config_of, outcome, run

pytest_plugins = ['tests.run_fixtures']


LOG_DAMAGES = {
  'a digit': digit,
  'a flipped byte': flip,
  'a doubled line': lines_changed(lambda t: [t[0], *t]),
  'a missing line': lines_changed(lambda t: [t[0], *t[2:]]),
  'two lines changed places': lines_changed(lambda t: [t[1], t[0], *t[2:]]),
  'no JSON': lines_changed(lambda t: ['x' * (len(t[0]) - 1) + '\n', *t[1:]]),
  'NaN': lines_changed(lambda t: [t[0].replace('0.', 'NaN', 1), *t[1:]]),
  'a word for a number': lines_changed(
    lambda t: [t[0].replace('"round": 0', '"round":""'), *t[1:]]
  ),
  'cut off': lambda path: os.truncate(path, path.stat().st_size // 2),
  'zeros': lambda path: path.write_bytes(bytes(path.stat().st_size)),
  'missing': lambda path: path.unlink(),
}


def killed_in_the_second_seed(fake, folder):
  left = [38]

  def on(what, seed, round):
    left[0] -= 1
    if left[0] == 0:
      raise Killed

  fake(on=on)
  with pytest.raises(Killed):
    experiment.run_experiment(config_of(), folder)
  fake()


@pytest.fixture(scope='module')
def interrupted(tmp_path_factory):
  """A run that was killed in its second seed, and a copy of it for each test."""
  from tests.run_fixtures import put_fake, put_stubs  # a plugin: pytest imports it first

  folder = tmp_path_factory.mktemp('interrupted') / 'w'
  with pytest.MonkeyPatch.context() as patch:
    put_stubs(patch)
    killed_in_the_second_seed(functools.partial(put_fake, patch), folder)
  return folder


@pytest.mark.parametrize('what', LOG_DAMAGES)
def test_damaged_metrics_are_said_and_the_checkpoint_before_is_used(interrupted, tmp_path, what):
  shutil.copytree(interrupted, tmp_path / 'w')
  newest = checkpoint.list_sorted(tmp_path / 'w/checkpoints')[-1]
  LOG_DAMAGES[what](tmp_path / 'w/metrics.jsonl')
  said = []
  opened = recorder.Recorder(tmp_path / 'w', config_lib.check(config_of()), said.append, list)
  opened.close()
  assert said[0].startswith(f'WARNING: {tmp_path / "w/metrics.jsonl"}')
  assert not newest.exists()  # set aside
  assert opened.lines == metrics.read(interrupted / 'metrics.jsonl')[: len(opened.lines)]


LONG = [pytest.param(what, marks=pytest.mark.slow) for what in [*LOG_DAMAGES][2:]]


@pytest.mark.parametrize('what', ['a digit', *LONG])
def test_an_interrupted_run_with_damaged_metrics_comes_to_the_same(
  fake, whole, tmp_path, capsys, what
):
  folder = tmp_path / 'w'
  killed_in_the_second_seed(fake, folder)
  LOG_DAMAGES[what](folder / 'metrics.jsonl')
  capsys.readouterr()
  assert experiment.run_experiment(config_of(), folder) == 0
  out, err = capsys.readouterr()
  assert f'WARNING: {folder / "metrics.jsonl"}' in out and not err
  assert outcome(folder) == whole


@pytest.mark.parametrize('what', LOG_DAMAGES)
def test_damaged_metrics_of_a_finished_run_are_said_by_every_reader(copied, what):
  LOG_DAMAGES[what](copied / 'metrics.jsonl')
  with pytest.raises(stored_files.DamagedError, match=r'metrics\.jsonl'):
    work_folder.summary(copied)
  with pytest.raises(ValueError, match=r'metrics\.jsonl'):
    report.open_runs([copied])


@pytest.mark.parametrize('what', ['a doubled line', *LONG])
def test_a_finished_run_with_damaged_metrics_comes_to_the_same(finished, whole, capsys, what):
  LOG_DAMAGES[what](finished / 'metrics.jsonl')
  assert experiment.run_experiment(config_of(), finished) == 0
  assert 'made again from the checkpoints' in capsys.readouterr().out
  assert outcome(finished) == whole
  assert experiment.run_experiment(config_of(), finished) == 0
  assert 'WARNING' not in capsys.readouterr().out


def test_an_older_checkpoint_without_a_digest_is_believed(
  fake, whole, tmp_path, monkeypatch, capsys
):
  folder, save = tmp_path / 'w', checkpoint.save
  new = ('metrics_sha256', 'files')

  def older(root, round, seed, tree, note):
    return save(root, round, seed, tree, {k: v for k, v in note.items() if k not in new})

  with monkeypatch.context() as patch:
    patch.setattr(checkpoint, 'save', older)
    killed_in_the_second_seed(fake, folder)
  assert experiment.run_experiment(config_of(), folder) == 0
  assert 'WARNING' not in capsys.readouterr().out
  assert outcome(folder)['lines'] == whole['lines']
  # and what cannot be read is no reason to stop, without a digest either
  (folder / 'summary.json').unlink()
  LOG_DAMAGES['no JSON'](folder / 'metrics.jsonl')
  assert experiment.run_experiment(config_of(), folder) == 0
  assert 'using the checkpoint before' in capsys.readouterr().out
  assert outcome(folder)['lines'] == whole['lines']


# Of the files beside; each is made again from the checkpoint, and the seeds are not trained again.
FILES = (
  'clients/seed_0.npz',
  'clients/seed_1.npz',
  'synthetic/synthetic.npz',
  'synthetic/synthetic_seed1.npz',
  'synthetic/synthetic.png',
  'figures/synthetic.png',
  'partition.npz',
)
packed = io.BytesIO()
np.savez(packed, counts=np.zeros((4, 10), np.int32))
OTHER = packed.getvalue()
FILE_DAMAGES = {
  'missing': lambda path: path.unlink(),
  'a flipped byte': flip,
  'empty': lambda path: path.write_bytes(b''),
  'a folder': folder_for_file,
  'a pipe': pipe_for_file,
  'of another run': lambda path: path.write_bytes(OTHER),
}


@pytest.mark.parametrize('name', FILES)
@pytest.mark.parametrize('what', FILE_DAMAGES)
def test_files_of_a_finished_run_are_said(copied, name, what):
  summary = work_folder.summary(copied)
  say = lambda: [
    line for files in summary['files'].values() for line in work_folder.faults(copied, files)
  ]
  assert say() == []
  FILE_DAMAGES[what](copied / name)
  (line,) = say()
  assert line.startswith(str(copied / name)) and '\n' not in line


@pytest.mark.parametrize(
  'what', ['missing', pytest.param('a flipped byte', marks=pytest.mark.slow)]
)
def test_files_of_a_finished_run_are_made_again(finished, whole, fake, capsys, what):
  before = {n: work_folder.digests(finished, [n]) for n in FILES}
  for name in FILES:
    FILE_DAMAGES[what](finished / name)
  worked = []
  fake(on=lambda *now: worked.append(now))
  assert experiment.run_experiment(config_of(), finished) == 0
  out = capsys.readouterr().out
  assert all(f'WARNING: {finished / name}' in out for name in FILES)
  assert {what for what, _, _ in worked} <= {'evaluation', 'personal'}  # nothing was trained
  assert {n: work_folder.digests(finished, [n]) for n in FILES} == before
  assert outcome(finished) == whole


@pytest.mark.parametrize(
  'name',
  [
    'summary.json',
    'metrics.jsonl',
    'partition.npz',
    'clients/seed_0.npz',
    'clients',
    'checkpoints/7',
  ],
)
def test_a_folder_for_a_file_and_a_file_for_a_folder_are_refused_before_any_work(
  copied, whole_folder, fake, capsys, name
):
  shutil.copytree(whole_folder / 'checkpoints', copied / 'checkpoints')
  path = copied / name
  if path.is_dir():
    shutil.rmtree(path)
    path.touch()
  else:
    folder_for_file(path)
  fake(on=lambda *_: pytest.fail('worked'))
  assert experiment.run_experiment(config_of(), copied) == 2
  (line,) = capsys.readouterr().err.splitlines()
  assert str(path) in line and ('not a file' in line or 'is no folder' in line)


def test_files_of_a_seed_that_was_finished_are_made_again_by_a_run_that_goes_on(
  fake, whole, tmp_path
):
  folder = tmp_path / 'w'
  killed_in_the_second_seed(fake, folder)
  (folder / 'clients/seed_0.npz').unlink()
  flip(folder / 'synthetic/synthetic.npz')
  assert experiment.run_experiment(config_of(), folder) == 0
  assert outcome(folder) == whole


def test_nothing_is_made_again_from_the_model_of_an_earlier_round(fake, tmp_path, capsys):
  finished = tmp_path / 'w'
  assert run(finished, keep_checkpoints='phases') == 0
  shutil.rmtree(finished / 'checkpoints' / '7')
  (finished / 'clients' / 'seed_0.npz').unlink()
  assert experiment.run_experiment(config_of(), finished) == 0
  said = ' '.join(capsys.readouterr().out.split())
  assert 'nothing of seed 0 can be made again from it' in said
  assert not (finished / 'clients' / 'seed_0.npz').exists()


def test_what_cannot_be_made_again_is_refused_and_kept(finished, capsys):
  shutil.rmtree(finished / 'checkpoints')
  LOG_DAMAGES['a digit'](finished / 'metrics.jsonl')
  before = (finished / 'metrics.jsonl').read_bytes()
  assert experiment.run_experiment(config_of(), finished) == 2
  assert capsys.readouterr().err.count('\n') == 1
  assert (finished / 'metrics.jsonl').read_bytes() == before


def test_a_loaded_set_that_is_missing_is_not_none(copied):
  """A method without a set gives None; a run whose set is lost does not."""
  for path in copied.glob('synthetic/*.npz'):
    path.unlink()
  assert work_folder.arrays(copied, 'clients/seed_0.npz', None)
  with pytest.raises(stored_files.DamagedError, match=r'synthetic\.npz is missing'):
    work_folder.arrays(copied, 'synthetic/synthetic.npz', work_folder.summary(copied))


def test_a_lost_model_is_said(finished, whole, capsys):
  """The numbers are what they were; the model of a seed that was finished is not there any more."""
  last = [
    p for p in checkpoint.list_sorted(finished / 'checkpoints') if checkpoint.seed_of(p) == 0
  ][-1]
  shutil.rmtree(last)
  capsys.readouterr()
  assert experiment.run_experiment(config_of(), finished) == 0
  out = capsys.readouterr().out
  assert out.count('its model is lost') == 1 and 'of seed 0' in out
  summary = work_folder.summary(finished)
  assert {k: summary[k] for k in ('status', 'test_accuracy')} == {
    k: whole['summary'][k] for k in ('status', 'test_accuracy')
  }


@pytest.mark.parametrize('content', ['', '[]', '{"wandb": 3}', '[' * 9999])
def test_a_damaged_note_of_trackers_is_said(tmp_path, content):
  (tmp_path / 'trackers.json').write_text(content)
  said = []
  trackers.Trackers(tmp_path, (), {}, [], said.append).close()
  assert 'trackers.json is damaged' in said[0] and len(said) == 1


def test_a_report_overwrites_reports_and_nothing_else(copied, tmp_path):
  write = lambda path: report.write([copied], path)
  assert write(tmp_path / 'page.html') == write(tmp_path / 'page.html') == 1
  for name in ('config.json', 'summary.json', 'metrics.jsonl'):
    before = (copied / name).read_bytes()
    with pytest.raises(ValueError, match='is not a report'):
      write(copied / name)
    assert (copied / name).read_bytes() == before
