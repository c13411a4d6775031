"""What a run left is believed only if it is what was written: what is damaged is said in a line, or made again."""

import functools
import hashlib
import io
import json
import os
import shutil

import numpy as np
import pytest

import fedjax_syn as fs
from fedjax_syn import (
  checkpoint,
  experiment,
  metrics,
  recorder,
  report,
  run_folder,
  stored,
  trackers,
  workdir,
)
from launch import export, finished_run, inspect_run
from tests.runs import Killed, config_of, outcome, summary_of

pytest_plugins = ['tests.run_fixtures']


def flip(path):
  """Changes one bit, in a value where it is an npz file: when it was packed is no matter."""
  data = bytearray(path.read_bytes())
  header = data.find(b'\x93NUMPY')
  data[len(data) // 2 if header < 0 else header + 128] ^= 1
  path.write_bytes(bytes(data))


def digit(path):
  """Changes a digit of an accuracy in the first line."""
  text = path.read_text()
  at = text.index('"test/accuracy": 0.') + len('"test/accuracy": 0.')
  path.write_text(text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1 :])


def lines_changed(change):
  def apply(path):
    path.write_text(''.join(change(path.read_text().splitlines(True))))

  return apply


def folder_for_file(path):
  path.unlink()
  path.mkdir()


def pipe_for_file(path):
  path.unlink()
  os.mkfifo(path)


# Of metrics.jsonl; each was exit 0 and a wrong summary, or a traceback at every start.
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
  newest = checkpoint.found(tmp_path / 'w/checkpoints')[-1]
  LOG_DAMAGES[what](tmp_path / 'w/metrics.jsonl')
  said = []
  opened = recorder.Recorder(tmp_path / 'w', 2, said.append, rounds=7)
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


@pytest.fixture
def copied(whole_folder, tmp_path):
  """A copy of a finished run without its checkpoints."""
  skip = shutil.ignore_patterns('checkpoints')
  return shutil.copytree(whole_folder, tmp_path / 'w', ignore=skip)


@pytest.fixture
def finished(tmp_path, fake):
  """A finished run, with the arrays of its checkpoints as `fake` reads them."""
  folder = tmp_path / 'w'
  assert experiment.run_experiment(config_of(), folder) == 0
  return folder


@pytest.mark.parametrize('what', LOG_DAMAGES)
def test_damaged_metrics_of_a_finished_run_are_said_by_every_reader(copied, what):
  LOG_DAMAGES[what](copied / 'metrics.jsonl')
  with pytest.raises(stored.DamagedError, match=r'metrics\.jsonl'):
    run_folder.summary(copied)
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
  summary = run_folder.summary(copied)
  say = lambda: [
    line for files in summary['files'].values() for line in run_folder.faults(copied, files)
  ]
  assert say() == []
  FILE_DAMAGES[what](copied / name)
  (line,) = say()
  assert line.startswith(str(copied / name)) and '\n' not in line


@pytest.mark.parametrize(
  'what', ['missing', pytest.param('a flipped byte', marks=pytest.mark.slow)]
)
def test_files_of_a_finished_run_are_made_again(finished, whole, fake, capsys, what):
  before = {n: run_folder.digests(finished, [n]) for n in FILES}
  for name in FILES:
    FILE_DAMAGES[what](finished / name)
  worked = []
  fake(on=lambda *now: worked.append(now))
  assert experiment.run_experiment(config_of(), finished) == 0
  out = capsys.readouterr().out
  assert all(f'WARNING: {finished / name}' in out for name in FILES)
  assert {what for what, _, _ in worked} <= {'evaluation', 'personal'}  # nothing was trained
  assert {n: run_folder.digests(finished, [n]) for n in FILES} == before
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


def test_nothing_is_made_again_from_the_model_of_an_earlier_round(finished, capsys):
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


# Content of JSON files that is none of theirs.
SHAPES = {
  'empty': b'',
  'binary': bytes(range(256)),
  'a list': b'[]',
  'a number': b'3',
  'null': b'null',
  'an empty object': b'{}',
  'config is a number': b'{"config": 3}',
  'summary of lists': b'{"test_accuracy": [], "status": [], "seconds": []}',
  'deep': b'[' * 200_000,
  'rather deep': b'{"config":' * 900 + b'1' + b'}' * 900,
  'huge number': b'{"config": ' + b'9' * 5000 + b'}',
  'Infinity': b'{"config": Infinity}',
  'a key twice': b'{"config": {}, "config": {}}',
  'UTF-16': '{"config": {}}'.encode('utf-16'),
}


@pytest.mark.parametrize('name', ['config.json', 'summary.json'])
@pytest.mark.parametrize('content', SHAPES)
def test_other_shapes_are_one_line_for_every_reader(whole_folder, tmp_path, name, content):
  for copied in ('config.json', 'summary.json', 'metrics.jsonl'):
    shutil.copy(whole_folder / copied, tmp_path)
  (tmp_path / name).write_bytes(SHAPES[content])
  for read in (
    lambda: report.open_runs([tmp_path]),
    lambda: fs.load(tmp_path),
    lambda: export.export(tmp_path, tmp_path / 'out', ['npz'], None),
  ):
    if name == 'summary.json' and read.__code__.co_names[:1] != ('report',):
      continue  # before it comes that there is no checkpoint
    with pytest.raises(ValueError) as refused:
      read()
    assert name in str(refused.value) and '\n' not in str(refused.value)
  if name == 'config.json':
    with pytest.raises(ValueError, match=r'config\.json is damaged'):
      workdir.check_config(tmp_path, None)


@pytest.mark.parametrize('make', [folder_for_file, pipe_for_file], ids=['folder', 'pipe'])
@pytest.mark.parametrize('name', ['config.json', 'summary.json', 'metrics.jsonl', 'partition.npz'])
def test_what_is_no_file_is_not_opened(whole_folder, tmp_path, make, name):
  """A pipe that nobody writes to would never end."""
  for copied in ('config.json', 'summary.json', 'metrics.jsonl', 'partition.npz'):
    shutil.copy(whole_folder / copied, tmp_path)
  make(tmp_path / name)
  with pytest.raises(ValueError, match=f'{name}.*and not a file'):
    report.open_runs([tmp_path])


def test_a_digit_changed_in_config_or_summary_is_noticed(whole_folder, tmp_path):
  for name, old, new in (
    ('config.json', '"lr": 0.001', '"lr": 0.002'),
    ('summary.json', '"std": 0.', '"std": 1.'),
  ):
    shutil.copy(whole_folder / name, tmp_path)
    text = (tmp_path / name).read_text()
    assert text.count(old) >= 1
    (tmp_path / name).write_text(text.replace(old, new, 1))
    with pytest.raises(stored.DamagedError, match='not what was written'):
      stored.read_json(tmp_path / name)
    (tmp_path / name).write_text(json.dumps(json.loads(text), indent=4))  # its layout is no matter
    assert stored.read_json(tmp_path / name)


def test_a_seal_is_worked_out_by_hand(tmp_path):
  workdir.write_json(tmp_path / 'x.json', {'b': [1, 2.5], 'a': {'2': None}})
  text = '{"a":{"2":null},"b":[1,2.5]}'
  left = json.loads((tmp_path / 'x.json').read_text())
  assert left.pop('sha256') == hashlib.sha256(text.encode()).hexdigest()
  assert left == stored.read_json(tmp_path / 'x.json') == {'b': [1, 2.5], 'a': {'2': None}}


def test_digests_of_arrays_are_of_names_types_shapes_and_values():
  a = {'x': np.arange(6.0).reshape(2, 3), 'y': np.int32(3)}
  again = {'y': np.int32(3), 'x': np.asfortranarray(a['x'])}
  assert stored.digest_of_arrays(a) == stored.digest_of_arrays(again)
  others = [
    {'z': a['x'], 'y': a['y']},
    {**a, 'x': a['x'].T},
    {**a, 'x': a['x'].reshape(3, 2)},
    {**a, 'x': a['x'].astype('f4')},
    {**a, 'x': a['x'] + 1e-12},
    {'x': a['x']},
  ]
  assert len({stored.digest_of_arrays(o) for o in [a, *others]}) == 7


def test_a_digest_of_metrics_is_that_of_the_file(whole_folder):
  content = (whole_folder / 'metrics.jsonl').read_bytes()
  summary = stored.read_json(whole_folder / 'summary.json')
  assert summary['metrics_sha256'] == hashlib.sha256(content).hexdigest()
  for path in checkpoint.found(whole_folder / 'checkpoints'):
    note = checkpoint.note_of(path)
    begin = content[: note['metrics_bytes']]
    assert note['metrics_sha256'] == hashlib.sha256(begin).hexdigest()


@pytest.mark.parametrize(
  'value, shape, fits',
  [
    (3, float, True),
    (True, float, False),
    (True, int, False),
    (True, bool, True),
    (None, (int, None), True),
    ('a', (int, None), False),
    ([1, 2.5], [float], True),
    ([1, 'x'], [float], False),
    ({'a': 1}, {'a': int, 'b?': str}, True),
    ({'a': 1, 'b': 2}, {'a': int, 'b?': str}, False),
    ({'b': 's'}, {'a': int, 'b?': str}, False),
    ({'0': 1}, {int: int}, True),
    ({'x': 1}, {int: int}, False),
    ({'0.5': 1, 'inf': 2}, {float: int}, True),
    ({'a': 1, 'other': [{}]}, {'a': int}, True),
    ('finished', 'finished', True),
    ('lost', 'finished', False),
  ],
)
def test_shapes(value, shape, fits):
  assert (stored.fault(value, shape) == '') == fits


@pytest.mark.parametrize('name', ['note.json', 'structure.json', 'checksums.json'])
@pytest.mark.parametrize('content', [b'', b'[]', b'{}', b'3', b'{"serial": "x"}', b'[' * 9999])
def test_a_checkpoint_with_a_file_of_another_shape_is_damaged(tmp_path, name, content):
  path = checkpoint.save(tmp_path, 3, 0, {'a': 1.5}, {'serial': 1, 'seed': 0, 'round': 3})
  (path / name).write_bytes(content)
  assert checkpoint.found(tmp_path) == [path]
  with pytest.raises(stored.DamagedError, match='damaged'):
    checkpoint.read(path)


def test_checkpoints_that_changed_places_are_damaged(tmp_path):
  """`start_from` and inspections look at names."""
  a, b = (
    checkpoint.save(tmp_path, round, 0, {'r': round}, {'serial': round, 'seed': 0, 'round': round})
    for round in (2, 4)
  )
  a.rename(tmp_path / 'aside')
  b.rename(a)
  (tmp_path / 'aside').rename(b)
  for path in (a, b):
    with pytest.raises(stored.DamagedError, match='it is the one of round'):
      checkpoint.read(path)


@pytest.mark.parametrize('name', ['compare/metrics.jsonl', 'compare/summary.json', 'inspect.json'])
def test_an_inspection_looks_at_all_before_it_measures(copied, capsys, monkeypatch, name):
  """What it is compared with was read after minutes, outside of what refuses."""
  monkeypatch.setattr('launch.main.prepare_jax', lambda *_: None)
  monkeypatch.setattr(finished_run, 'read_run', lambda *_: None)
  (copied / 'compare').mkdir()
  (copied / name).mkdir() if name == 'inspect.json' else (copied / name).write_text('x\n')
  with pytest.raises(SystemExit):
    inspect_run.main(['x', str(copied)])
  (line,) = capsys.readouterr().err.splitlines()
  assert str(copied / name) in line


def test_a_compared_run_of_other_settings_is_refused(fake, tmp_path, capsys):
  """Its folder came from another run."""
  for name, lr in (('w', 0.1), ('other', 0.2)):
    config = config_of(algorithm='dynafed', compare='fedavg', **{'client.lr': lr})
    assert experiment.run_experiment(config, tmp_path / name) == 0
  shutil.rmtree(tmp_path / 'w/compare')
  shutil.copytree(tmp_path / 'other/compare', tmp_path / 'w/compare')
  config = config_of(algorithm='dynafed', compare='fedavg', **{'client.lr': 0.1})
  assert experiment.run_experiment(config, tmp_path / 'w') == 2
  assert 'client.lr: 0.2 -> 0.1' in capsys.readouterr().err


def test_a_new_run_takes_no_folder_with_somebody_s_files(tmp_path):
  """TensorBoard's events of another program would have been removed."""
  for name in ('events.out.tfevents.1', 'figures', 'partition.npz'):
    (tmp_path / name).mkdir()
    with pytest.raises(ValueError, match=f'holds {name} but no config.json'):
      workdir.check_config(tmp_path, None)
    (tmp_path / name).rmdir()
  assert workdir.check_config(tmp_path, None) is None


@pytest.mark.parametrize(
  'arrays, word',
  [
    ({'counts': np.zeros((4, 10))}, 'counts'),
    ({'counts': np.zeros(4, int)}, 'counts'),
    ({'other': np.zeros((4, 10), int)}, 'counts'),
    ({'counts': np.zeros((0, 10), int)}, 'of other clients or classes'),
    ({'counts': np.full((4, 10), -1)}, 'of other clients or classes'),
    ({'counts': np.ones((4, 3), int)}, 'of other clients or classes'),
    ({'counts': np.ones((5, 10), int)}, 'of other clients'),  # clients/ has four
  ],
)
def test_a_partition_of_another_shape(whole_folder, tmp_path, arrays, word):
  for name in ('config.json', 'metrics.jsonl'):
    shutil.copy(whole_folder / name, tmp_path)
  shutil.copytree(whole_folder / 'clients', tmp_path / 'clients')
  np.savez(tmp_path / 'partition.npz', **arrays)
  with pytest.raises(ValueError, match=word):
    report.open_runs([tmp_path])


def test_a_compressed_npz_is_none_of_ours(tmp_path):
  """A few kilobytes may hold gigabytes."""
  np.savez_compressed(tmp_path / 'partition.npz', counts=np.zeros((2, 2), int))
  with pytest.raises(stored.DamagedError, match='compressed'):
    stored.read_arrays(tmp_path / 'partition.npz')


@pytest.mark.parametrize('line', ['{"round": 1}', '[1]', '{"round": 1, "seed": 0, "x": "y"}', '7'])
def test_lines_of_another_shape(tmp_path, line):
  good = '{"round": 0, "seed": 0, "test/accuracy": 0.5}\n'
  (tmp_path / 'metrics.jsonl').write_text(good + line + '\n')
  with pytest.raises(stored.DamagedError, match=r'metrics\.jsonl, line 2, is damaged'):
    metrics.read(tmp_path / 'metrics.jsonl')
  (tmp_path / 'metrics.jsonl').write_text(good + line)  # a kill may leave half a line
  assert len(metrics.read(tmp_path / 'metrics.jsonl')) == 1


def test_summary_and_config_of_different_runs(tmp_path):
  workdir.write_json(tmp_path / 'summary.json', summary_of(0.5, {'0': {'status': 'finished'}}))
  assert run_folder.summary(tmp_path, [0])
  for seeds in ([1], [0, 1]):
    with pytest.raises(stored.DamagedError, match='other seeds'):
      run_folder.summary(tmp_path, seeds)


def test_a_loaded_set_that_is_missing_is_not_none(copied):
  """A method without a set gives None; a run whose set is lost does not."""
  for path in copied.glob('synthetic/*.npz'):
    path.unlink()
  assert run_folder.arrays(copied, 'clients/seed_0.npz', None)
  with pytest.raises(stored.DamagedError, match=r'synthetic\.npz is missing'):
    run_folder.arrays(copied, 'synthetic/synthetic.npz', run_folder.summary(copied))


def test_a_lost_model_is_said(finished, whole, capsys):
  """The numbers are what they were; the model of a seed that was finished is not there any more."""
  last = [p for p in checkpoint.found(finished / 'checkpoints') if checkpoint.seed_of(p) == 0][-1]
  shutil.rmtree(last)
  capsys.readouterr()
  assert experiment.run_experiment(config_of(), finished) == 0
  out = capsys.readouterr().out
  assert out.count('its model is lost') == 1 and 'of seed 0' in out
  assert outcome(finished)['summary'] == whole['summary']


@pytest.mark.parametrize('content', ['', '[]', '{"wandb": 3}', '[' * 9999])
def test_a_damaged_note_of_trackers_is_said(tmp_path, content):
  (tmp_path / 'trackers.json').write_text(content)
  said = []
  trackers.Trackers(tmp_path, (), {}, [], said.append).close()
  assert 'trackers.json is damaged' in said[0] and len(said) == 1


def test_a_report_overwrites_reports_and_nothing_else(copied, tmp_path):
  write = lambda path: report.write([copied], path, lambda run: '')
  assert write(tmp_path / 'page.html') == write(tmp_path / 'page.html') == 1
  for name in ('config.json', 'summary.json', 'metrics.jsonl'):
    before = (copied / name).read_bytes()
    with pytest.raises(ValueError, match='is no report'):
      write(copied / name)
    assert (copied / name).read_bytes() == before
