"""What makes a run: its data in any folder, the server's data, and own code that a field names."""

import dataclasses
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from fedjax_syn import config as config_lib
from fedjax_syn.config import identity
from fedjax_syn.data import datasets
from fedjax_syn.data.dataset import make
from fedjax_syn.data.split import Split
from fedjax_syn.runs import default_folder, resume
from tests.run_helpers import config_of, refusal, run

pytest_plugins = ['tests.run_fixtures']


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
  # Other data of the same name are refused, even for a finished run that has only to be shown.
  arrays(tmp_path / 'elsewhere' / 'data', value=4)
  assert run(tmp_path / 'run', **of_arrays('elsewhere/data')) == 2
  assert 'was started with other data (checksum' in refusal(capsys)


def test_every_part_of_a_data_set_that_changes_a_result_has_a_digest():
  data = datasets.load('digits', proxy='held_out', validation=0.1)
  before = resume.data_digests(data)
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
    now = resume.data_digests(dataclasses.replace(data, **{part: value}))
    assert [k for k in now if now[k] != before.get(k)] == [part]
  for part in ('train', 'test'):  # a user's function may give any checksum
    own = dataclasses.replace(data, name='mine:make')
    other = dataclasses.replace(own, **{part: split(getattr(data, part))})
    a, b = resume.data_digests(own), resume.data_digests(other)
    assert [k for k in a if a[k] != b[k]] == [part]
  titled = dataclasses.replace(data, title='x', class_names=tuple('0123456789'), notes=('read',))
  assert resume.data_digests(titled) == before


MODULE = """
import dataclasses
import numpy as np
import fedjax_syn as fs
from fedjax_syn.data import datasets

class Mine(fs.Layer):
  {body}

def rows():
  data = datasets.load('digits')
  train = data.train._replace(x=data.train.x {change})
  return dataclasses.replace(data, name='own', checksum='same', train=train)
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
  """A user's module; returns a function that writes it anew."""
  name = 'own_module_of_continuation'
  monkeypatch.syspath_prepend(tmp_path / 'code')
  (tmp_path / 'code').mkdir()

  def write(body='pass', change=''):
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
  assert list(identity.own_code(config)) == [f'{name}:rows']
  assert run(tmp_path / 'run', **proxied) == 0
  before = identity.hash8(config)
  module(change='// 2')
  assert identity.hash8(config_lib.check(config_of(**proxied))) != before
  capsys.readouterr()
  assert run(tmp_path / 'run', **proxied) == 2
  assert f'another version of {name}:rows' in refusal(capsys)


def test_a_replaced_folder_of_proxy_data_is_other_data(fake, tmp_path, capsys):
  """The run's own rows come from a function, the server's from the folder."""
  data = arrays(tmp_path / 'data')
  name = {'data.name': 'tests.runs.test_resume_identity:two_by_two', 'data.proxy': 'arrays'}
  settings = of_arrays(data, **name)
  assert run(tmp_path / 'run', **settings) == 0
  (tmp_path / 'run' / 'summary.json').unlink()
  arrays(data, value=4)
  capsys.readouterr()
  assert run(tmp_path / 'run', **settings) == 2
  assert 'was started with other data (proxy) (checksum' in refusal(capsys)


def two_by_two():
  x = np.arange(160, dtype=np.uint8).reshape(40, 2, 2, 1)
  split = Split(x, np.arange(40, dtype=np.int32) % 10)
  return make('two', 'two', split, split, 10, 'auto')


def test_a_method_that_raises_before_the_first_round_leaves_no_folder_that_refuses_the_mended_one(
  fake, tmp_path, module, capsys
):
  name = module()
  settings = {'algorithm': f'{name}:Mine', 'seeds': (0,), 'rounds': 3}

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
  assert stored['own_code'] == identity.own_code(config_of(**settings))
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
    (line, *_) = identity.diff(stored, resolved)
    assert line.startswith(f'{key}: ')
  for section, key in (('data', 'name'), ('data', 'proxy'), ('model', 'name')):
    stored = config_lib.to_dict(resolved)
    stored[section] |= {key: 'evil_of_a_config:f'}
    (line,) = identity.diff(stored, resolved)
    assert line.startswith(f'{section}.{key}: ')
  assert not trace.exists() and 'evil_of_a_config' not in sys.modules


def test_code_that_a_package_passes_on_counts(tmp_path, monkeypatch):
  package = tmp_path / 'own_package_of_continuation'
  package.mkdir()
  (package / '__init__.py').write_text('from own_package_of_continuation.inside import Mine\n')
  (package / 'inside.py').write_text(MODULE.format(body='pass', change=''))
  monkeypatch.syspath_prepend(tmp_path)
  word = 'own_package_of_continuation:Mine'
  before = identity.own_code(config_of(algorithm=word))
  assert list(before) == [word, f'{word} in own_package_of_continuation.inside']
  (package / 'inside.py').write_text(MODULE.format(body='"another"', change=''))
  after = identity.own_code(config_of(algorithm=word))
  assert before[word] == after[word] and before != after
  for name in [m for m in sys.modules if m.startswith('own_package_of_continuation')]:
    del sys.modules[name]


def test_where_the_file_of_a_layer_lies_makes_no_other_run(fake, tmp_path, monkeypatch, capsys):
  for folder in ('a', 'b', 'c'):
    (tmp_path / folder).mkdir()
    (tmp_path / folder / 'own.py').write_text(MODULE.format(body='pass', change=''))
  (tmp_path / 'c' / 'own.py').write_text(MODULE.format(body='"another"', change=''))
  monkeypatch.chdir(tmp_path / 'a')
  settings = lambda place: {'algorithm': f'{place}own.py:Mine', 'seeds': (0,), 'rounds': 3}
  config = config_of(**settings(''))
  assert list(identity.own_code(config)) == ['own.py:Mine']
  assert str(default_folder.default_workdir(config, 'x')).startswith('runs/x-own.py.Mine-')
  assert run(tmp_path / 'run', **settings('')) == 0
  (tmp_path / 'run' / 'summary.json').unlink()
  for place in (f'{tmp_path}/a/', '../b/'):
    assert identity.hash8(config_of(**settings(place))) == identity.hash8(config)
    assert run(tmp_path / 'run', **settings(place)) == 0
  capsys.readouterr()
  assert run(tmp_path / 'run', **settings('../c/')) == 2
  assert 'another version of own.py:Mine' in refusal(capsys)
  assert run(tmp_path / 'run', **settings('../d/')) == 2
  assert f'there is no file {tmp_path}/d/own.py' in refusal(capsys)


def test_the_default_folder_is_that_of_the_same_run_whatever_it_is_called(
  fake, tmp_path, monkeypatch
):
  monkeypatch.chdir(tmp_path)
  name = lambda **changes: str(default_folder.default_workdir(config_of(**changes), 'tiny'))
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


def test_other_runs_are_not_looked_into_for_the_default_folder(fake, tmp_path, monkeypatch):
  """Hundreds of folders may lie beside each other.

  The folder of the run's own hash comes first, whatever else is there.
  """
  monkeypatch.chdir(tmp_path)
  plain = {'algorithm': 'fedavg', 'rounds': 5, 'seeds': (0,)}
  name = lambda **changes: default_folder.default_workdir(config_of(**{**plain, **changes}), 'tiny')
  own = name()
  assert run(own, **plain) == 0
  shutil.copytree(own, own.with_name('tiny-fedavg-00000000'))  # by another version's hash
  looked, begun = [], resume.has_begun
  monkeypatch.setattr(resume, 'has_begun', lambda folder: looked.append(folder) or begun(folder))
  for key, value in (('client.epochs', 2), ('seeds', (0, 1)), ('data.seed', 1), ('compare', 'dp')):
    assert name(**{key: value}).name not in (own.name, 'tiny-fedavg-00000000')
  assert looked == []
  assert name() == own and {*looked} == {own}


def test_the_default_folder_tells_data_apart_that_are_read_under_one_name(tmp_path):
  name = lambda folder: identity.hash_of_folder(config_of(**of_arrays(folder)))
  assert name('a/cats') == name('b/cats/') == name('~/cats') == name('./cats')
  assert name('a/cats') != name('a/dogs')
  (tmp_path / 'cats').mkdir()
  (tmp_path / 'link').symlink_to(tmp_path / 'cats')
  assert name(tmp_path / 'link') == name('a/cats')
  assert identity.same_place('', '') and not identity.same_place('', str(Path.cwd()))
  assert name('') != name(Path.cwd())  # '' is where data sets lie, and not here
  here = lambda folder: identity.hash_here(
    config_of(**of_arrays(folder))
  )  # nobody looks at the data
  assert here(tmp_path / 'link') == here(tmp_path / 'cats') != here('a/cats')
