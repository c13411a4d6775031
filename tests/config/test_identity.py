"""A command is the same run only while its own code and its data are still what they were."""

import json
import sys

import pytest

from fedjax_syn import config as config_lib
from fedjax_syn.cli import flags as cli
from fedjax_syn.config import files, identity
from fedjax_syn.core import paths
from fedjax_syn.runs import assemble, experiment, stored_files
from tests.run_helpers import config_of

pytest_plugins = ['tests.run_fixtures']

METHOD = """
import fedjax_syn as fs

class Mine(fs.Layer):
  pass
"""


@pytest.fixture
def method(tmp_path, monkeypatch):
  """A module of a user's; returns its file."""
  path = tmp_path / 'own_module_for_the_same_run.py'
  path.write_text(METHOD)
  monkeypatch.syspath_prepend(tmp_path)
  monkeypatch.delitem(sys.modules, path.stem, raising=False)
  return path


def own_config(method, **more):
  return config_of(algorithm=f'{method.stem}:Mine', seeds=(0,), **more)


def test_the_hash_of_a_run_follows_the_files_that_its_config_names(method):
  config = own_config(method)
  before = identity.hash8(config)
  assert identity.hash8(own_config(method)) == before
  assert list(identity.own_code(config)) == [config.algorithm]
  method.write_text(METHOD + '\n# another version\n')
  assert identity.hash8(config) != before
  assert identity.own_code(config_of()) == {}  # the library's own: that is the commit


def test_a_folder_of_another_version_of_a_method_is_refused(fake, method, tmp_path, capsys):
  folder = tmp_path / 'run'
  assert experiment.run_experiment(own_config(method), folder) == 0
  assert experiment.run_experiment(own_config(method), folder) == 0
  assert 'nothing was trained now' in capsys.readouterr().out
  method.write_text(METHOD + '\n# another version\n')
  assert experiment.run_experiment(own_config(method), folder) == 2
  error = capsys.readouterr().err
  assert f'another version of {method.stem}:Mine' in error and error.count('\n') == 1


def test_a_run_goes_on_with_the_data_it_began_with_or_not_at_all(fake, tmp_path, capsys):
  folder = tmp_path / 'run'
  assert experiment.run_experiment(config_of(), folder) == 0
  (folder / 'summary.json').unlink()
  assert experiment.run_experiment(config_of(), folder) == 0
  (folder / 'summary.json').unlink()
  stored = json.loads((folder / 'config.json').read_text())
  stored['dataset']['checksum'] = 'f' * 64
  stored_files.write_json(folder / 'config.json', stored)
  assert experiment.run_experiment(config_of(), folder) == 2
  error = capsys.readouterr().err
  assert 'other data (checksum ffffffff, now' in error and error.count('\n') == 1
  assert not (folder / 'summary.json').exists()


def test_what_was_read_is_said_in_a_line(fake, tmp_path, capsys):
  assert experiment.run_experiment(config_of(seeds=(0,)), tmp_path / 'run') == 0
  first = capsys.readouterr().out.splitlines()[0]
  assert (
    '1198 training and 599 test rows of 8 x 8 x 1, 10 classes; 4 clients by iid, '
    '1 of them a round' in first
  )
  resolved = config_lib.check(
    config_of(**{'data.name': 'digits_domains', 'data.clients': 3, 'client.participation': 1.0})
  )
  problem = assemble.load(config_lib.check(config_of()))
  named = problem._replace(dataset=type(problem.dataset)(**{**vars(problem.dataset), 'clients': 1}))
  line = assemble.describe_data(resolved, named)
  assert 'all of them a round' in line and "which only data.partition='natural' follows" in line
  some = {'data.name': 'digits_styles', 'data.partition': 'natural_sample', 'data.clients': 2}
  some = config_lib.check(config_of(**some, **{'client.participation': 1.0}))
  problem = assemble.load(some)
  left = 1198 - problem.counts.sum()
  assert left > 300 and len(problem.client_names) == 2
  assert assemble.describe_data(some, problem).endswith(
    f'{left} training rows of 1 clients who take no part are left out'
  )


def test_the_algorithm_that_a_config_compares_with_is_trained_alone_if_asked_for():
  load = lambda *settings: files.load_config(str(paths.CONFIGS / 'dynafed_digits.py'), settings)
  assert load().compare == 'fedavg'
  assert load('--config.algorithm=fedavg').compare == ''
  assert load('--config.algorithm=fedprox').compare == 'fedavg'
  both = load('--config.algorithm=fedavg', '--config.compare=fedavg')
  with pytest.raises(config_lib.ConfigError, match='none \\(--config.compare=\\)'):
    config_lib.check(both)


def test_refusals_say_what_to_type(method, capsys):
  load = lambda *settings: files.load_config(str(paths.DEFAULT_CONFIG), settings)
  with pytest.raises(
    ValueError, match=f'{method.stem}:Mine has no such field; it has none .*compose.md'
  ):
    load(f'--config.algorithm={method.stem}:Mine', '--config.mine.mu=1')
  for settings, hint in (
    (['--config.rounds=10'], '--config.dynafed.length=5'),
    (['--config.dynafed.length=3', '--config.dynafed.segment=5'], '--config.dynafed.segment=3'),
  ):
    with pytest.raises(config_lib.ConfigError, match=hint):
      config_lib.check(load(*settings))
    config_lib.check(load(*settings, hint))  # which works
  with pytest.raises(
    config_lib.ConfigError, match='one method; those that it is compared with are'
  ):
    load('--config.algorithm=fedavg,fedprox')
  with pytest.raises(SystemExit):
    cli.parse(['main.py', '--rounds=5'])
  assert "'rounds'; settings are written --config.key=value" in capsys.readouterr().err
