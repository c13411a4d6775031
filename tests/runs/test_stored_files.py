"""Every reader refuses a run's file of a wrong shape in one line."""

import hashlib
import json
import shutil

import numpy as np
import pytest

import fedjax_syn as fs
from fedjax_syn import report
from fedjax_syn.cli import export, inspect
from fedjax_syn.runs import checkpoint, experiment, metrics, resume, stored_files, work_folder
from tests.damages import folder_for_file, pipe_for_file
from tests.run_helpers import config_of, summary_of

pytest_plugins = ['tests.run_fixtures']


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
      resume.check_config(tmp_path, None)


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
    with pytest.raises(stored_files.DamagedError, match='not what was written'):
      stored_files.read_json(tmp_path / name)
    (tmp_path / name).write_text(json.dumps(json.loads(text), indent=4))  # its layout is no matter
    assert stored_files.read_json(tmp_path / name)


def test_a_seal_is_worked_out_by_hand(tmp_path):
  stored_files.write_json(tmp_path / 'x.json', {'b': [1, 2.5], 'a': {'2': None}})
  text = '{"a":{"2":null},"b":[1,2.5]}'
  left = json.loads((tmp_path / 'x.json').read_text())
  assert left.pop('sha256') == hashlib.sha256(text.encode()).hexdigest()
  assert left == stored_files.read_json(tmp_path / 'x.json') == {'b': [1, 2.5], 'a': {'2': None}}


def test_digests_of_arrays_are_of_names_types_shapes_and_values():
  a = {'x': np.arange(6.0).reshape(2, 3), 'y': np.int32(3)}
  again = {'y': np.int32(3), 'x': np.asfortranarray(a['x'])}
  assert stored_files.digest_of_arrays(a) == stored_files.digest_of_arrays(again)
  others = [
    {'z': a['x'], 'y': a['y']},
    {**a, 'x': a['x'].T},
    {**a, 'x': a['x'].reshape(3, 2)},
    {**a, 'x': a['x'].astype('f4')},
    {**a, 'x': a['x'] + 1e-12},
    {'x': a['x']},
  ]
  assert len({stored_files.digest_of_arrays(o) for o in [a, *others]}) == 7


def test_a_digest_of_metrics_is_that_of_the_file(whole_folder):
  content = (whole_folder / 'metrics.jsonl').read_bytes()
  summary = stored_files.read_json(whole_folder / 'summary.json')
  assert summary['metrics_sha256'] == hashlib.sha256(content).hexdigest()
  for path in checkpoint.list_sorted(whole_folder / 'checkpoints'):
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
  assert (stored_files.fault(value, shape) == '') == fits


@pytest.mark.parametrize('name', ['note.json', 'structure.json', 'checksums.json'])
@pytest.mark.parametrize('content', [b'', b'[]', b'{}', b'3', b'{"serial": "x"}', b'[' * 9999])
def test_a_checkpoint_with_a_file_of_another_shape_is_damaged(tmp_path, name, content):
  path = checkpoint.save(tmp_path, 3, 0, {'a': 1.5}, {'serial': 1, 'seed': 0, 'round': 3})
  (path / name).write_bytes(content)
  assert checkpoint.list_sorted(tmp_path) == [path]
  with pytest.raises(stored_files.DamagedError, match='damaged'):
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
    with pytest.raises(stored_files.DamagedError, match='it is the one of round'):
      checkpoint.read(path)


@pytest.mark.parametrize('name', ['compare/metrics.jsonl', 'compare/summary.json', 'inspect.json'])
def test_an_inspection_looks_at_all_before_it_measures(copied, capsys, monkeypatch, name):
  """What it is compared with was read after minutes, outside of what refuses."""
  monkeypatch.setattr('fedjax_syn.cli.jax_setup.prepare_jax', lambda *_: None)
  (copied / 'compare').mkdir()
  (copied / name).mkdir() if name == 'inspect.json' else (copied / name).write_text('x\n')
  with pytest.raises(SystemExit):
    inspect.main(['x', str(copied)])
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
      resume.check_config(tmp_path, None)
    (tmp_path / name).rmdir()
  assert resume.check_config(tmp_path, None) is None


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
  with pytest.raises(stored_files.DamagedError, match='compressed'):
    stored_files.read_arrays(tmp_path / 'partition.npz')


@pytest.mark.parametrize('line', ['{"round": 1}', '[1]', '{"round": 1, "seed": 0, "x": "y"}', '7'])
def test_lines_of_another_shape(tmp_path, line):
  good = '{"round": 0, "seed": 0, "test/accuracy": 0.5}\n'
  (tmp_path / 'metrics.jsonl').write_text(good + line + '\n')
  with pytest.raises(stored_files.DamagedError, match=r'metrics\.jsonl, line 2, is damaged'):
    metrics.read(tmp_path / 'metrics.jsonl')
  (tmp_path / 'metrics.jsonl').write_text(good + line)  # a kill may leave half a line
  assert len(metrics.read(tmp_path / 'metrics.jsonl')) == 1


def test_summary_and_config_of_different_runs(tmp_path):
  stored_files.write_json(tmp_path / 'summary.json', summary_of(0.5, {'0': {'status': 'finished'}}))
  assert work_folder.summary(tmp_path, [0])
  for seeds in ([1], [0, 1]):
    with pytest.raises(stored_files.DamagedError, match='other seeds'):
      work_folder.summary(tmp_path, seeds)
