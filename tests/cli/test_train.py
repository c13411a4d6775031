"""The launcher refuses in one line with status 2, and else starts the right run in its folder."""

import os
import pathlib
import subprocess
import sys

import pytest
from absl.testing import flagsaver

from fedjax_syn.cli import flags as cli
from fedjax_syn.cli import jax_setup, train
from fedjax_syn.data import datasets
from tests.algorithms.test_own_layers import OUTSIDE
from tests.run_helpers import replace_experiment

ROOT = pathlib.Path(__file__).parents[2]


class Runs(list):
  """Replaces the experiment and remembers its calls."""

  status = 0

  def run_experiment(self, config, workdir, *, config_name):
    self.append((config, pathlib.Path(workdir), config_name))
    return self.status


@pytest.fixture
def runs(monkeypatch, tmp_path):
  """No training, no change of JAX's settings; the current folder is empty."""
  runs = Runs()
  replace_experiment(monkeypatch, tmp_path, runs.run_experiment)
  return runs


def start(*arguments):
  with flagsaver.flagsaver():
    return train.main(['main.py', *arguments])


REFUSED = [
  (
    ['--config=configs/nothing.py'],
    '--config=configs/nothing.py: no such file; shipped are dynafed_cifar10, ',
  ),
  (['--config=.'], '--config=.: is not a file'),
  (['--confg=x'], "Unknown command line flag 'confg'"),
  (
    ['--learning_rate=1'],
    "Unknown command line flag 'learning_rate'; settings are written --config.key=value; nearest:"
    ' --config.client.lr\n',
  ),
  (
    ['--lr=1'],
    "Unknown command line flag 'lr'; settings are written --config.key=value; nearest:"
    ' --config.client.lr\n',
  ),
  (
    ['--device=cuda'],
    "Unknown command line flag 'device'; settings are written --config.key=value; JAX",
  ),
  (
    ['--config.gpu=0'],
    "gpu='0': no such field; JAX selects the hardware: JAX_PLATFORMS=cuda python",
  ),
  (['--list=nets'], 'flag --list=nets: value should be one of'),
  (['20'], "'20': unexpected; settings are written --config.key=value"),
  (['--config.rounds', '20'], "'20': unexpected; settings are written --config.key=value"),
  (['--config.rounds'], '--config.rounds: has no value; write --config.rounds=...'),
  (['--config.rounds=many'], "rounds='many': must be an integer"),
  (['--config.rounds=100.0'], 'rounds=100.0: must be an integer'),
  (['--config.rounds=-3'], 'rounds=-3: must be at least 1'),
  (['--config.client.lr=-0.1'], 'client.lr=-0.1: must be greater than 0'),
  (['--config.client.persistent=no'], "client.persistent='no': must be True or False"),
  (['--config.seeds=1'], 'seeds=1: must be a tuple, as in 0,1,2 (of one: 1,)'),
  (['--config.client.lrr=1'], "client.lrr='1': no such field; nearest: client.lr"),
  (['--config.algorithm=dynafde'], "algorithm='dynafde': unknown; nearest: dynafed"),
  (['--config.data.name=digit'], "data.name='digit': unknown; nearest: digits"),
  (['--config.dynafed.length=60'], 'dynafed.length=60'),
  (
    ['--config.start_from=runs/x/checkpoints/5'],
    "start_from='runs/x/checkpoints/5': no such folder",
  ),
  (['--workdir=file/run'], '--workdir=file/run: '),
]


@pytest.mark.parametrize(('arguments', 'line'), REFUSED, ids=[' '.join(a) for a, _ in REFUSED])
def test_a_refusal_is_one_line_on_stderr_and_status_2(arguments, line, runs, capsys):
  pathlib.Path('file').write_text('not a folder')
  with pytest.raises(SystemExit) as end:
    start(*arguments)
  out, err = capsys.readouterr()
  assert end.value.code == 2 and out == '' and not runs
  assert err.startswith(line) and err.count('\n') == 1


TEXTLESS = '--config=mine.py:4: E: E (and ZeroDivisionError when asked for its text)'
HEAD = 'from fedjax_syn.config import get_default\ndef get_config():\n  config = get_default()\n'


@pytest.mark.parametrize(
  ('source', 'line'),
  [
    ('x = (', '--config=mine.py: SyntaxError: '),
    ('', "--config=mine.py: AttributeError: module 'config_file' has no attribute 'get_config'"),
    ('get_config = dict', '--config=mine.py: get_config() returns a dict, not a ConfigDict'),
    ('import nothing_of_this_name', '--config=mine.py:1: ModuleNotFoundError: No module named'),
    (
      f'{HEAD}  config.client.optimiser = "sgd"\n  return config\n',
      '--config=mine.py:4: AttributeError: Key "optimiser" does not exist and cannot be added since'
      ' the config is locked. Did you mean "optimizer" instead of "optimiser"?',
    ),
    ('import sys\nsys.exit()', '--config=mine.py:2: SystemExit'),
    ('import sys\ndef get_config():\n  sys.exit(0)', '--config=mine.py:3: SystemExit: 0'),
    ('def get_config():\n  return get_config()', '--config=mine.py:2: RecursionError: maximum'),
    ('x = 1\n\0', '--config=mine.py: '),
    (f'{HEAD}  config.client.lr = "fast"\n  return config\n', '--config=mine.py:4: TypeError: '),
    (f'{HEAD}  raise ValueError("a\\nb\\x1b[31m" * 10**5)', '--config=mine.py:4: ValueError: a b'),
    (f'{HEAD}  raise type("E", (Exception,), {{"__str__": lambda self: 1 / 0}})', TEXTLESS),
    (f'{HEAD}  bytearray(10**15)', '--config=mine.py:4: MemoryError'),
    (f'{HEAD}  config.unlock().client = config\n  return config', 'config: holds itself'),
    (
      'import ml_collections as m\ndef get_config():\n  return m.ConfigDict({1: 2})',
      '1=2: no such',
    ),
    ('x = ' + '[' * 5000, '--config=mine.py: SyntaxError: too many nested parentheses'),
    ('# -*- coding: nosuch -*-', '--config=mine.py: SyntaxError: unknown encoding: nosuch'),
  ],
  ids=lambda text: text[-40:],
)
def test_a_broken_config_file_is_named_in_one_line(source, line, runs, capsys):
  pathlib.Path('mine.py').write_text(source)
  with pytest.raises(SystemExit) as end:
    start('--config=mine.py')
  _, err = capsys.readouterr()
  assert end.value.code == 2 and not runs
  assert err.startswith(line) and err.count('\n') == 1


def test_settings_reach_the_experiment_with_their_types(runs):
  status = start(
    '--workdir=W',
    '--config.rounds=30',
    '--config.client.persistent=False',
    '--config.seeds=(0,1,2)',
    '--config.targets=0.5,0.75',
    '--config.client.lr=1',
    '--config.compare=',
    '-config.dynafed.iterations=7',
  )
  ((config, workdir, name),) = runs
  assert status == 0 and workdir == pathlib.Path('W') and name == 'one_digit'
  assert config.rounds == 30 and config.client.persistent is False and config.compare == ''
  assert config.seeds == (0, 1, 2) and config.targets == (0.5, 0.75)
  assert config.client.lr == 1.0 and config.dynafed.iterations == 7
  assert config.is_locked


@pytest.mark.parametrize('status', [0, 2, 3, 75])
def test_the_exit_status_is_the_experiment_s(status, runs):
  runs.status = status
  assert start() == status


def test_without_workdir_the_same_command_resumes_and_a_changed_one_starts_anew(runs):
  start()
  start()
  start('--config.rounds=59')
  start('--config.algorithm=scaffold+dynafed', '--config.client.optimizer=sgd')
  first, same, changed, other = (workdir for _, workdir, _ in runs)
  assert first == same != changed
  assert first.parent == pathlib.Path('runs')
  assert first.name.startswith('one_digit-dynafed-') and len(first.name.split('-')[-1]) == 8
  assert other.name.startswith('one_digit-scaffold+dynafed-')


def test_the_folder_names_data_that_are_not_the_config_file_s(runs):
  assert (
    start(
      '--config.data.name=digits_domains',
      '--config.data.partition=natural',
      '--config.data.clients=3',
      '--config.client.participation=1',
    )
    == 0
  )
  ((_, workdir, name),) = runs
  assert workdir.name.startswith('one_digit-digits_domains-dynafed-') and name == 'one_digit'


def test_a_method_beside_the_working_folder_needs_no_fork(runs, monkeypatch):
  """An algorithm `package.module:Class` brings its fields, whatever the order of the settings."""
  pathlib.Path('beside_method.py').write_text(
    'import fedjax_syn as fs\n'
    'class Mine(fs.Layer):\n'
    "  strength: float = fs.field(0.5, 'how much', low=0.0)\n"
  )
  monkeypatch.syspath_prepend('.')
  start('--config.mine.strength=2', '--config.algorithm=beside_method:Mine')
  ((config, workdir, _),) = runs
  assert config.mine.strength == 2.0
  assert workdir.name.startswith('one_digit-beside_method.Mine-')


def test_a_finished_branch_needs_its_beginning_no_more(runs, capsys):
  """A run that has a folder already continues even if the run that it began from is gone."""
  pathlib.Path('W').mkdir()
  pathlib.Path('W/config.json').write_text('{}')
  assert start('--workdir=W', '--config.start_from=gone/checkpoints/5') == 0


@pytest.mark.parametrize('kind', cli.KINDS)
def test_list_prints_a_line_each(kind, runs, capsys):
  assert start(f'--list={kind}') == 0
  lines = capsys.readouterr().out.splitlines()
  expected = {
    'algorithms': 'dynafed ',
    'datasets': 'digits ',
    'models': 'mlp ',
    'partitions': 'balanced_dirichlet ',
    'fields': "client.optimizer='adam' ",
  }
  assert any(line.startswith(expected[kind]) for line in lines) and not runs
  if kind == 'fields':
    (sampler,) = (line for line in lines if line.startswith('client.sampler='))
    assert sampler.endswith("'fixed', 'poisson', module:function or FILE.py:function")


def test_an_interruption_before_the_run_is_one_line(runs, tmp_path, capsys):
  (tmp_path / 'slow.py').write_text('def get_config():\n  raise KeyboardInterrupt\n')
  with pytest.raises(SystemExit) as end:
    start('--config=slow.py')
  assert end.value.code == 130 and not runs
  assert capsys.readouterr().err == 'interrupted\n'


def test_the_fields_of_an_own_method_are_listed(tmp_path, monkeypatch, capsys):
  (tmp_path / 'listed_method.py').write_text(OUTSIDE)
  monkeypatch.syspath_prepend(tmp_path)
  assert start('--list=fields', '--config.algorithm=listed_method:Mine+dynafed') == 0
  lines = capsys.readouterr().out.splitlines()
  assert any(line.startswith('mine.wanted=5 ') for line in lines)


def launch(*command, **environment):
  """Runs Python outside this process, as a user would, from another folder than the project's."""
  return subprocess.run(
    [sys.executable, *command],
    env={**os.environ, 'PYTHONPATH': str(ROOT), 'JAX_PLATFORMS': 'cpu', **environment},
    capture_output=True,
    text=True,
    timeout=120,
    check=False,
  )


@pytest.mark.parametrize(
  ('argument', 'line'),
  [
    ('--config.client.lrr=1', "client.lrr='1': no such field; nearest: client.lr"),
    ('--config=nothing.py', '--config=nothing.py: no such file'),
  ],
)
def test_the_script_refuses_with_one_line(argument, line, tmp_path):
  done = launch(str(ROOT / 'launch' / 'main.py'), argument)
  assert done.returncode == 2 and done.stdout == ''
  assert done.stderr.startswith(line) and done.stderr.count('\n') == 1


def test_help_is_short_and_succeeds():
  done = launch(str(ROOT / 'launch' / 'main.py'), '--help')
  assert done.returncode == 0 and done.stderr == ''
  assert '--config.rounds=20' in done.stdout and len(done.stdout.splitlines()) < 30


def test_jax_is_prepared_before_its_first_array(tmp_path):
  """JAX gets the virtual CPU devices asked for, else one per usable core, and the given cache."""
  code = (
    'from fedjax_syn.cli import jax_setup; import jax; jax_setup.prepare_jax({});'
    'print(jax.local_device_count(), jax.config.jax_compilation_cache_dir)'
  )
  three = launch('-c', code.format(3), HOME=str(tmp_path), JAX_COMPILATION_CACHE_DIR='')
  assert three.stdout.split() == ['3', str(tmp_path / '.cache/fedjax_syn/jax')]
  own = launch('-c', code.format(0), JAX_COMPILATION_CACHE_DIR=str(tmp_path))
  assert own.stdout.split() == [str(len(os.sched_getaffinity(0))), str(tmp_path)]


def test_a_missing_accelerator_is_one_clear_line():
  code = (
    'from fedjax_syn.cli import flags, jax_setup\nwith flags.refusals(): jax_setup.prepare_jax(0)'
  )
  done = launch('-c', code, JAX_PLATFORMS='no_such_chip')
  assert done.returncode == 2 and done.stderr.count('\n') == 1
  assert done.stderr.startswith('JAX_PLATFORMS=no_such_chip: no such device can be used')


def test_a_cache_that_cannot_be_written_costs_a_line_and_not_the_run(tmp_path, monkeypatch, capsys):
  """Without a home that can be written to JAX would warn of every program in two lines."""
  (tmp_path / 'file').write_text('')
  assert jax_setup._usable(str(tmp_path / 'file' / 'jax')) is None
  line = f'WARNING: compiled programs are not kept: {tmp_path}/file/jax: Not a directory\n'
  assert capsys.readouterr().err == line
  assert jax_setup._usable(str(tmp_path / 'jax')) == str(tmp_path / 'jax')
  assert jax_setup._usable('gs://bucket/jax') == 'gs://bucket/jax'
  monkeypatch.setenv('HOME', str(tmp_path))
  assert jax_setup._usable('~/jax') == str(tmp_path / 'jax')
  assert capsys.readouterr().err == ''


def test_a_user_without_a_home_trains_without_a_cache(tmp_path, monkeypatch, capsys):
  """As in a container, under a number that nobody has; a folder called ~ is not wanted."""
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(os.path, 'expanduser', lambda path: path)
  assert jax_setup._usable('~/.cache/jax') is None
  assert capsys.readouterr().err.endswith('~/.cache/jax: there is no such home folder\n')
  assert datasets.load('digits').title == 'digits' and not list(tmp_path.iterdir())
