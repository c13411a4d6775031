"""Going on in a folder: more rounds than before, moved data, a method of one's own that was mended; and what is refused."""

import dataclasses
import json
import os
import shutil
import sys
import types
from pathlib import Path

import numpy as np
import pytest

from fedjax_syn import api, continuation, experiment, loop, paths, recorder, same_run
from fedjax_syn import config as config_lib
from fedjax_syn.data import datasets
from fedjax_syn.report import runs as report_runs
from launch import cells as cells_lib
from launch import main as launcher
from launch import sweep as sweep_lib
from tests.runs import Killed, config_of, lines_of, outcome

pytest_plugins = ['tests.run_fixtures']

SPARSE = {'eval_every': 4, 'personal_every': 8}


def run(folder, **changes):
  return experiment.run_experiment(config_of(**changes), folder)


def refusal(capsys):
  error = capsys.readouterr().err
  assert error.count('\n') == 1, error
  return error


@pytest.mark.parametrize(
  'changes',
  [
    {},
    SPARSE,
    {'layout.seeds': 2},
    {'algorithm': 'fedavgm', 'compare': 'fedavg', **SPARSE},
    {'algorithm': 'fedavg', 'seeds': (2, 0, 1), 'eval_every': 3},
  ],
)
def test_more_rounds_go_on_in_the_folder_and_come_to_what_they_come_to_from_the_start(
  fake, tmp_path, changes
):
  dynafed = changes.get('algorithm', 'dynafed') == 'dynafed'
  for rounds in (7, 9, 17):
    assert run(tmp_path / 'on', rounds=rounds, **changes) == 0
  assert run(tmp_path / 'whole', rounds=17, **changes) == 0
  parts = ['', 'compare'] if changes.get('compare') else ['']
  for part in parts:
    on, whole = tmp_path / 'on' / part, tmp_path / 'whole' / part
    assert lines_of(on) == lines_of(whole)
    timeless = [json.loads((f / 'summary.json').read_text()) for f in (on, whole)]
    for summary in timeless:
      for key in ('seconds', 'peak_memory_bytes', 'sha256', 'metrics_sha256'):
        summary.pop(key, None)
    assert timeless[0] == timeless[1]
    assert json.loads((on / 'summary_9.json').read_text())['rounds'] == 9
    stored = json.loads((on / 'config.json').read_text())
    assert stored['config']['rounds'] == 17
    assert stored['hash'] == json.loads((whole / 'config.json').read_text())['hash']
  if dynafed:
    assert outcome(tmp_path / 'on') == outcome(tmp_path / 'whole')


def test_more_rounds_survive_a_stop_at_any_piece_of_work(fake, tmp_path):
  """Killed again and again: seeds that were over in the shorter run are not begun anew."""
  whole, folder = tmp_path / 'whole', tmp_path / 'run'
  assert run(whole, rounds=12, **SPARSE) == 0
  assert run(folder, rounds=7, **SPARSE) == 0

  class Stop(Exception):
    pass

  def on(what, seed, round):
    calls.append(what)
    if len(calls) == stop_after:
      raise Stop

  for stop_after in range(1, 100):  # noqa: B007 (read by `on`)
    calls = []
    fake(on=on)
    try:
      assert run(folder, rounds=12, **SPARSE) == 0
      break
    except Stop:
      continue
  assert stop_after > 3
  assert outcome(folder) == outcome(whole)


def killed(*_):
  raise Killed


def test_a_kill_while_the_log_is_replaced_loses_neither_version(fake, tmp_path, monkeypatch):
  whole, folder = tmp_path / 'whole', tmp_path / 'run'
  assert run(whole, rounds=12, **SPARSE) == 0
  assert run(folder, rounds=7, **SPARSE) == 0
  with monkeypatch.context() as patch:
    patch.setattr(recorder, 'os', types.SimpleNamespace(replace=killed))
    with pytest.raises(Killed):
      run(folder, rounds=12, **SPARSE)
  assert run(folder, rounds=12, **SPARSE) == 0
  assert outcome(folder)['lines'] == outcome(whole)['lines']


def test_fewer_rounds_than_are_done_are_one_line(fake, tmp_path, capsys):
  assert run(tmp_path / 'run', algorithm='fedavg', rounds=9) == 0
  before = sorted(p.name for p in (tmp_path / 'run').iterdir())
  assert run(tmp_path / 'run', algorithm='fedavg', rounds=8) == 2
  assert 'was started for rounds=9, and 9 are done: rounds=8' in refusal(capsys)
  assert sorted(p.name for p in (tmp_path / 'run').iterdir()) == before


@pytest.mark.parametrize(
  ('rounds', 'more', 'status'),
  [(8, {}, 0), (6, {}, 0), (5, {}, 2), (12, {'eval_every': 2}, 0), (8, {'eval_every': 2}, 2)],
)
def test_fewer_rounds_than_were_asked_for_go_on_where_what_they_log_is_still_to_come(
  fake, tmp_path, capsys, rounds, more, status
):
  """Stopped in round 7 of 14, saved after 6: of 8 rounds, evaluated every second, 5 would be missing."""
  settings = {'algorithm': 'fedavg', 'seeds': (0,), **more}

  def stop(what, seed, round):
    if (what, round) == ('round', 7):
      raise RuntimeError('stopped')

  fake(on=stop)
  with pytest.raises(RuntimeError):
    run(tmp_path / 'run', rounds=14, **settings)
  fake()
  capsys.readouterr()
  assert run(tmp_path / 'run', rounds=rounds, **settings) == status
  if status:
    assert f'was started for rounds=14, and 6 are done: rounds={rounds}' in refusal(capsys)
  else:
    assert run(tmp_path / 'whole', rounds=rounds, **settings) == 0
    assert lines_of(tmp_path / 'run') == lines_of(tmp_path / 'whole')


def test_without_its_checkpoints_a_finished_run_is_shown_and_cannot_go_on(fake, tmp_path, capsys):
  assert run(tmp_path / 'run', algorithm='fedavg', rounds=5) == 0
  shutil.rmtree(tmp_path / 'run' / 'checkpoints')
  assert run(tmp_path / 'run', algorithm='fedavg', rounds=5) == 0
  lines = (tmp_path / 'run' / 'metrics.jsonl').read_bytes()
  capsys.readouterr()
  assert run(tmp_path / 'run', algorithm='fedavg', rounds=6) == 2
  assert 'holds no checkpoint to go on from' in refusal(capsys)
  assert (tmp_path / 'run' / 'metrics.jsonl').read_bytes() == lines


def test_what_depends_on_the_number_of_rounds_is_named_with_the_command_of_a_branch(
  fake, tmp_path, capsys
):
  cosine = {'algorithm': 'fedavg', 'client.schedule': 'cosine', 'rounds': 5}
  folder = tmp_path / 'run'
  assert run(folder, **cosine) == 0
  assert run(folder, **{**cosine, 'rounds': 8}) == 2
  error = refusal(capsys)
  assert "client.schedule='cosine' depends on it: rounds=8 is another run" in error
  start = f'--config.start_from={folder}/checkpoints/5 --config.rounds=8 --workdir={folder}-8'
  assert start in error
  branch = {**cosine, 'rounds': 8, 'start_from': f'{folder}/checkpoints/5'}
  assert run(tmp_path / 'run-8', **branch) == 0


@pytest.mark.parametrize('algorithm', ['dp', 'fedprox+dp'])
def test_the_noise_of_a_target_epsilon_depends_on_the_number_of_rounds(
  fake, tmp_path, capsys, algorithm
):
  pytest.importorskip('dp_accounting')
  private = {'algorithm': algorithm, 'dp.target_epsilon': 50.0, 'seeds': (0,)}
  assert run(tmp_path / 'run', rounds=5, **private) == 0
  assert run(tmp_path / 'run', rounds=6, **private) == 2
  error = refusal(capsys)
  assert 'dp.noise_multiplier depends on it' in error and 'start_from' not in error
  fixed = config_of(algorithm='dp', rounds=5)
  assert same_run.depends_on_rounds(fixed, 6) == []  # epsilon is that of all rounds


def test_the_default_folder_is_that_of_the_same_run_whatever_it_is_called(
  fake, tmp_path, monkeypatch
):
  monkeypatch.chdir(tmp_path)
  name = lambda **changes: str(launcher.default_workdir(config_of(**changes), 'tiny'))
  plain = {'algorithm': 'fedavg', 'rounds': 5}
  old = tmp_path / 'runs' / 'tiny-fedavg-0123abcd'  # by another version's hash
  assert run(old, **plain) == 0
  assert run(tmp_path / 'runs' / 'tiny-fedavg-89abcdef', **{**plain, 'rounds': 8}) == 0
  (tmp_path / 'runs' / 'tiny-fedavg-00000000').mkdir()
  (tmp_path / 'runs' / 'tiny-fedavg-11111111').mkdir()
  (tmp_path / 'runs' / 'tiny-fedavg-11111111' / 'config.json').write_text('{"config": 3}')
  assert name(**plain) == 'runs/tiny-fedavg-0123abcd'
  assert name(**{**plain, 'rounds': 7}) == 'runs/tiny-fedavg-0123abcd'
  assert name(**{**plain, 'rounds': 9}) == 'runs/tiny-fedavg-89abcdef'
  new = {name(**{**plain, **more}) for more in ({'rounds': 4}, {'seeds': (4,)}, {'client.lr': 1.0})}
  assert len(new | {'runs/tiny-fedavg-0123abcd', 'runs/tiny-fedavg-89abcdef'}) == 5
  cosine = {**plain, 'client.schedule': 'cosine'}
  assert run(tmp_path / name(**cosine), **cosine) == 0
  assert name(**cosine) != name(**{**cosine, 'rounds': 6})


def test_the_default_folder_tells_data_apart_that_are_read_under_one_name(tmp_path):
  name = lambda folder: same_run.hash_of_folder(config_of(**of_arrays(folder)))
  assert name('a/cats') == name('b/cats/') == name('~/cats') == name('./cats')
  assert name('a/cats') != name('a/dogs')
  (tmp_path / 'cats').mkdir()
  (tmp_path / 'link').symlink_to(tmp_path / 'cats')
  assert name(tmp_path / 'link') == name('a/cats')
  assert same_run.same_place('', '') and not same_run.same_place('', str(Path.cwd()))
  assert name('') != name(Path.cwd())  # '' is where data sets lie, and not here
  here = lambda folder: same_run.hash_here(
    config_of(**of_arrays(folder))
  )  # nobody looks at the data
  assert here(tmp_path / 'link') == here(tmp_path / 'cats') != here('a/cats')


def test_planned_lines_worked_by_hand():
  """Of 10 rounds, every fourth and the last five; of 20 rounds 4, 8 and 12 stay, and 10, where a phase ends."""
  lines = [
    {'round': r, 'seed': 0, 'test/accuracy': 0.1, 'test/top_prediction': 1.0, 'personal/x': 1.0}
    for r in (0, 4, 6, 7, 8, 9, 10)
  ]
  lines[-1]['collapsed_since'] = 6
  plan = loop.Plan(20, eval_every=4, personal_every=8)
  kept = loop.planned(lines, plan, lambda done: 10 if done < 10 else None)
  assert [line['round'] for line in kept] == [0, 4, 8, 10]
  assert [line['round'] for line in kept if 'personal/x' in line] == [8]
  assert not any(
    'collapsed_since' in line for line in kept
  )  # four evaluations in a row are too few
  assert loop.planned(lines, plan._replace(rounds=10), lambda done: None) != kept
  branch = [{'round': 5, 'seed': 0}, {'round': 6, 'seed': 0}]
  assert loop.planned(branch, plan, lambda done: None) == branch[:1]


# Data.


def arrays(folder, value=3):
  """A data set of ten classes of 2 x 2 pixels."""
  folder.mkdir(parents=True, exist_ok=True)
  x = (np.arange(160, dtype=np.uint8) + value).reshape(40, 2, 2, 1)
  for split in ('train', 'test'):
    np.savez(folder / f'{split}.npz', x=x, y=np.arange(40) % 10)
  return folder


def of_arrays(folder, **more):
  return {
    'algorithm': 'fedavg',
    'seeds': (0,),
    'rounds': 3,
    'data.name': 'arrays',
    'data.dir': str(folder),
    **more,
  }


def test_data_that_were_moved_or_are_named_otherwise_refuse_no_resume(
  fake, tmp_path, monkeypatch, capsys
):
  data = arrays(tmp_path / 'data')
  assert run(tmp_path / 'run', **of_arrays(data)) == 0
  monkeypatch.chdir(tmp_path)
  monkeypatch.setenv('HOME', str(tmp_path))
  (tmp_path / 'link').symlink_to(data)
  (tmp_path / 'other').mkdir()
  for rounds, spelt in enumerate(
    (f'{data}/', 'data', './other/../data', '~/data', 'link', 'moved/data'), 4
  ):
    if spelt.startswith('moved'):
      (tmp_path / 'moved').mkdir()
      data.rename(tmp_path / 'moved' / 'data')
    (tmp_path / 'run' / 'summary.json').unlink(missing_ok=True)
    assert run(tmp_path / 'run', **of_arrays(spelt, checkpoint_every=rounds)) == 0, spelt
    assert run(tmp_path / 'run', **of_arrays(spelt)) == 0
  stored = json.loads((tmp_path / 'run' / 'config.json').read_text())
  assert stored['config']['data']['dir'] == 'moved/data'  # where they lie now
  capsys.readouterr()
  # Others of the same name are other data, even for a run that is finished and has only to be shown.
  arrays(tmp_path / 'elsewhere' / 'data', value=4)
  assert run(tmp_path / 'run', **of_arrays('elsewhere/data')) == 2
  assert 'was started with other data (checksum' in refusal(capsys)


def test_every_part_of_a_data_set_that_changes_a_result_has_a_digest():
  data = datasets.load('digits', proxy='held_out', validation=0.1)
  before = continuation.digests(data)
  split = lambda s: s._replace(y=np.roll(s.y, 1))
  constants = data.normalisation._replace(
    std=tuple(2 * v for v in np.ravel(data.normalisation.std))
  )
  for part, value in {
    'proxy': split(data.proxy),
    'validation': split(data.validation),
    'normalisation': constants,
    'num_classes': 11,
    'test_domains': np.zeros(len(data.test.y), np.int32),
  }.items():
    now = continuation.digests(dataclasses.replace(data, **{part: value}))
    assert [k for k in now if now[k] != before.get(k)] == [part]
  for part in ('train', 'test'):  # a user's function may give any checksum
    own = dataclasses.replace(data, name='mine:make')
    other = dataclasses.replace(own, **{part: split(getattr(data, part))})
    a, b = continuation.digests(own), continuation.digests(other)
    assert [k for k in a if a[k] != b[k]] == [part]
  titled = dataclasses.replace(data, title='x', class_names=tuple('0123456789'), notes=('read',))
  assert continuation.digests(titled) == before


MODULE = """
import dataclasses
import numpy as np
from fedjax_syn.algorithms.fedavg import fedavg
from fedjax_syn.data import datasets

def mine(base=None):
  {body}
  return base or fedavg()

def rows():
  data = datasets.load('digits')
  return dataclasses.replace(data, name='own', checksum='same', train=data.train._replace(x=data.train.x {change}))
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
  """A user's module; returns a function that writes it anew."""
  name = 'own_module_of_continuation'
  monkeypatch.syspath_prepend(tmp_path / 'code')
  (tmp_path / 'code').mkdir()

  def write(body='', change=''):
    sys.modules.pop(name, None)
    (tmp_path / 'code' / f'{name}.py').write_text(MODULE.format(body=body, change=change))
    return name

  yield write
  sys.modules.pop(name, None)


def test_a_proxy_that_was_replaced_is_other_data_and_its_code_is_own_code(
  fake, tmp_path, module, capsys
):
  name = module()
  proxied = {'algorithm': 'fedavg', 'seeds': (0,), 'rounds': 3, 'data.proxy': f'{name}:rows'}
  config = config_lib.check(config_of(**proxied))
  assert list(same_run.own_code(config)) == [f'{name}:rows']
  assert run(tmp_path / 'run', **proxied) == 0
  before = same_run.hash8(config)
  module(change='// 2')
  assert same_run.hash8(config_lib.check(config_of(**proxied))) != before
  capsys.readouterr()
  assert run(tmp_path / 'run', **proxied) == 2
  assert f'another version of {name}:rows' in refusal(capsys)


def test_a_replaced_folder_of_proxy_data_is_other_data(fake, tmp_path, capsys):
  """The run's own rows come from a function, the server's from the folder."""
  data = arrays(tmp_path / 'data')
  name = {'data.name': 'tests.test_continuation:two_by_two', 'data.proxy': 'arrays'}
  settings = of_arrays(data, **name)
  assert run(tmp_path / 'run', **settings) == 0
  (tmp_path / 'run' / 'summary.json').unlink()
  arrays(data, value=4)
  capsys.readouterr()
  assert run(tmp_path / 'run', **settings) == 2
  assert 'was started with other data (proxy) (checksum' in refusal(capsys)


def two_by_two():
  x = np.arange(160, dtype=np.uint8).reshape(40, 2, 2, 1)
  split = datasets.Split(x, np.arange(40, dtype=np.int32) % 10)
  return datasets.make('two', 'two', split, split, 10, 'auto')


# Own code.


def test_a_method_that_raises_before_the_first_round_leaves_no_folder_that_refuses_the_mended_one(
  fake, tmp_path, module, capsys
):
  name = module()
  settings = {'algorithm': f'{name}:mine', 'seeds': (0,), 'rounds': 3}

  def broken(what, seed, round):
    if (what, round) == ('round', 1):
      raise RuntimeError('a mistake in the method')

  fake(on=broken)
  with pytest.raises(RuntimeError):
    run(tmp_path / 'run', **settings)
  assert (tmp_path / 'run' / 'config.json').exists()
  fake()
  module(body='"mended"')
  assert run(tmp_path / 'run', **settings) == 0
  stored = json.loads((tmp_path / 'run' / 'config.json').read_text())
  assert stored['own_code'] == same_run.own_code(config_of(**settings))
  module(body='"mended again"')
  capsys.readouterr()
  assert run(tmp_path / 'run', **settings) == 2  # now there is something of it
  assert 'another version of' in refusal(capsys)


def test_settings_that_failed_before_the_first_round_do_not_bind_the_folder(fake, tmp_path):
  def broken(what, seed, round):
    if (what, round) == ('round', 1):
      raise RuntimeError('no memory')

  fake(on=broken)
  with pytest.raises(RuntimeError):
    run(tmp_path / 'run', algorithm='fedavg', rounds=3)
  fake()
  smaller = {'algorithm': 'fedavg', 'rounds': 3, 'client.batch_size': 4}
  assert run(tmp_path / 'run', **smaller) == 0
  stored = json.loads((tmp_path / 'run' / 'config.json').read_text())
  assert stored['config']['client']['batch_size'] == 4


def test_comparing_imports_nothing_that_a_stored_config_names(tmp_path, monkeypatch):
  trace = tmp_path / 'imported'
  (tmp_path / 'evil_of_a_config.py').write_text(f'open({str(trace)!r}, "w")\n')
  monkeypatch.syspath_prepend(tmp_path)
  resolved = config_lib.check(config_of())
  for key in ('algorithm', 'compare'):
    stored = config_lib.to_dict(resolved) | {
      key: 'evil_of_a_config:f',
      'outside': ['evil_of_a_config:f'],
    }
    (line, *_) = same_run.diff(stored, resolved)
    assert line.startswith(f'{key}: ')
  for section, key in (('data', 'name'), ('data', 'proxy'), ('model', 'name')):
    stored = config_lib.to_dict(resolved)
    stored[section] |= {key: 'evil_of_a_config:f'}
    (line,) = same_run.diff(stored, resolved)
    assert line.startswith(f'{section}.{key}: ')
  assert not trace.exists() and 'evil_of_a_config' not in sys.modules


def test_code_that_a_package_passes_on_counts(tmp_path, monkeypatch):
  package = tmp_path / 'own_package_of_continuation'
  package.mkdir()
  (package / '__init__.py').write_text('from own_package_of_continuation.inside import mine\n')
  (package / 'inside.py').write_text(MODULE.format(body='', change=''))
  monkeypatch.syspath_prepend(tmp_path)
  word = 'own_package_of_continuation:mine'
  before = same_run.own_code(config_of(algorithm=word))
  assert list(before) == [word, f'{word} in own_package_of_continuation.inside']
  (package / 'inside.py').write_text(MODULE.format(body='"another"', change=''))
  after = same_run.own_code(config_of(algorithm=word))
  assert before[word] == after[word] and before != after
  for name in [m for m in sys.modules if m.startswith('own_package_of_continuation')]:
    del sys.modules[name]


# Branches.


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


# Paths.


@pytest.mark.parametrize('spelt', ['~/place', '~root/place'])
def test_the_home_folder_is_understood(monkeypatch, spelt):
  monkeypatch.setenv('HOME', '/home/somebody')
  place = Path('/home/somebody/place') if spelt.startswith('~/') else Path('/root/place')
  assert paths.given(spelt) == paths.given(Path(spelt), '--workdir') == place
  assert launcher.given_path(spelt, '--output') == place
  assert datasets._folder(spelt) == place
  assert str(paths.given('./~/x')) == '~/x'  # a folder that is called so


def test_a_home_that_nobody_has_is_refused(tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(tmp_path)
  with pytest.raises(ValueError, match='--workdir=~nobody_of_this_name/x: nobody has this home'):
    paths.given('~nobody_of_this_name/x', '--workdir')
  assert experiment.run_experiment(config_of(), '~nobody_of_this_name/x') == 2
  assert 'nobody has this home' in refusal(capsys)
  assert not list(tmp_path.iterdir())


def test_every_reader_of_a_run_understands_the_home_folder(fake, tmp_path, monkeypatch):
  monkeypatch.setenv('HOME', str(tmp_path))
  assert experiment.run_experiment(config_of(rounds=4, seeds=(0,)), '~/run') == 0
  assert (tmp_path / 'run' / 'summary.json').exists()
  (tmp_path / 'tiny.py').write_text(
    'from fedjax_syn import config\ndef get_config():\n  return config.get_default()\n'
  )
  assert launcher.load_config('~/tiny.py').rounds == 200
  assert api.load('~/run', trusted=False).variables.params
  assert [run.folder for run in report_runs.open_runs(['~/run'])] == [tmp_path / 'run']
  branch = config_of(algorithm='fedavg', rounds=6, seeds=(0,), start_from='~/run/checkpoints/4')
  assert experiment.run_experiment(branch, '~/branch') == 0


@pytest.mark.slow
def test_more_rounds_of_a_real_run_come_to_what_they_come_to_from_the_start(tmp_path):
  settings = {'algorithm': 'scaffold', 'seeds': (0,), 'client.optimizer': 'sgd', 'eval_every': 2}
  for rounds in (3, 6):
    assert run(tmp_path / 'on', rounds=rounds, **settings) == 0
  assert run(tmp_path / 'whole', rounds=6, **settings) == 0
  assert lines_of(tmp_path / 'on') == lines_of(tmp_path / 'whole')


# Sweeps and tables.


def test_a_sweep_under_another_hash_is_found_by_its_cells(fake, tmp_path):
  old, new = tmp_path / 'sweep-x-12345678', tmp_path / 'sweep-x-00000000'
  config = config_of(algorithm='fedavg', rounds=4, **{'data.validation': 0.1})
  cells = [sweep_lib.make_cell(config, {'client.lr': lr}, new) for lr in ('0.2', '0.1')]
  assert sweep_lib.begun_in(cells, [old]) is None
  assert experiment.run_experiment(cells[1].config, old / cells[1].folder.name) == 0
  assert sweep_lib.begun_in(cells, [old]) == old
  new.mkdir()
  assert sweep_lib.begun_in(cells, [old]) is None


def test_a_cell_of_a_table_with_fewer_rounds_is_missing_and_goes_on(fake, tmp_path):
  row = types.SimpleNamespace(algorithm='fedavg')
  state = lambda **changes: (
    cells_lib.read(
      cells_lib.Run(
        row, None, 0, config_lib.check(config_of(**{**settings, **changes})), tmp_path / 'run'
      ),
      frozenset({'fedavg'}),
    ).state
  )
  settings = {'algorithm': 'fedavg', 'seeds': (0,), 'rounds': 5}
  assert state() == 'missing'
  assert run(tmp_path / 'run', **settings) == 0
  assert state() == state(checkpoint_every=3) == 'finished'
  assert state(rounds=7) == 'missing'
  assert state(rounds=4) == state(**{'client.lr': 0.5}) == 'failed'
