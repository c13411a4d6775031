"""Trains federated models as a config file says.

  python launch/main.py [--config=configs/X.py] [--workdir=W] [--config.key=value ...]

  --config         a Python file with get_config(); without it configs/dynafed_digits.py (no download)
  --workdir        where results go; without it runs/<config>-<algorithm>-<hash of the settings>,
                   with the data's name if --config.data.name gives one
  --config.k=v     changes a setting: --config.rounds=20 --config.client.lr=0.01 --config.seeds=0,1,2
                   (a tuple of one is written with a comma: --config.seeds=3,); --config.algorithm=A alone, where A
                   is what the config compares with (config.compare), trains A and nothing beside it
  --coordinator    host:port of process 0, with --processes=N and --process=K: N processes, on one host or
                   several, train as one. Under SLURM (several tasks) and on TPU pods this is found by itself
  --list=KIND      prints what exists: algorithms, datasets, models, partitions, or fields (all settings, with
                   those of a method of your own if --config.algorithm names it)

Your own images: --config.data.name=folder --config.data.dir=D (D/CLIENT/CLASS/IMAGE), with
--config.data.partition=natural and --config.data.clients=<how many>; your own network:
--config.model.name=my_module:MyNet (a Flax module). Afterwards: launch/report.py, launch/export.py, launch/inspect_run.py.

The same command goes on from the last checkpoint. Exit status: 0 finished, 2 refused (one line says
why), 3 all seeds diverged, 74 the disk is full (what was saved is good), 75 interrupted and saved (start it
again), 76 another process of the run is gone (start all of them again), 130 interrupted before the flags were
read. Compiled programs are kept in $JAX_COMPILATION_CACHE_DIR, else ~/.cache/fedjax_syn/jax.
"""

import contextlib
import glob
import importlib.util
import itertools
import logging as python_logging
import os
import pathlib
import re
import sys
import textwrap
import traceback
from collections.abc import Iterable, Iterator, Sequence

ROOT = pathlib.Path(__file__).resolve().parent.parent
# As a script, Python looks into launch/ only; configs/ lies beside it, and users' modules where they are.
sys.path[:0] = [path for path in (str(ROOT), os.getcwd()) if path not in sys.path]

from fedjax_syn.core import stopping  # noqa: E402

if __name__ == '__main__':
  stopping.watch()  # before the imports that take time

from absl import app, flags, logging  # noqa: E402

from fedjax_syn.core import texts  # noqa: E402

REFUSED = 2
DEFAULT = ROOT / 'configs' / 'dynafed_digits.py'
HASH = '[0-9a-f]' * 8  # at the end of a default folder's name
KINDS = ('algorithms', 'datasets', 'models', 'partitions', 'fields')

CONFIG = flags.DEFINE_string('config', str(DEFAULT), 'a Python file with get_config()')
WORKDIR = flags.DEFINE_string('workdir', None, 'where results go')
COORDINATOR = flags.DEFINE_string('coordinator', '', 'host:port of process 0')
PROCESSES = flags.DEFINE_integer('processes', 0, 'how many processes train as one')
PROCESS = flags.DEFINE_integer('process', -1, "this process's number, from 0")
LIST = flags.DEFINE_enum('list', None, KINDS, 'print what exists')


def parse(argv: list[str]) -> list[str]:
  """Reads the flags; returns the program and the settings (`--config.key=value`) as they were written.

  A flag that cannot be read is one line on stderr and exit status 2, where absl alone would print
  its usage and exit with 1.
  """
  if {'-h', '--help', '-help'} & set(argv[1:]):
    print(sys.modules['__main__'].__doc__ or __doc__)
    sys.exit(0)
  settings = [a for a in argv[1:] if a.startswith(('--config.', '-config.'))]
  with refusals():
    try:
      rest = flags.FLAGS([a for a in argv if a not in settings])
    except flags.UnrecognizedFlagError as error:
      raise app.UsageError(f'{error}; settings are written --config.key=value') from error
    if len(rest) > 1:
      raise app.UsageError(f'{rest[1]!r}: unexpected; settings are written --config.key=value')
  if flags.FLAGS['verbosity'].using_default_value:
    logging.set_verbosity(logging.WARNING)  # absl would let JAX tell which backends it did not find
    # matplotlib would tell of each folder for its settings that it cannot write to, and go on.
    python_logging.getLogger('matplotlib').setLevel(python_logging.ERROR)
  stopping.flags_read()
  return [argv[0], *settings]


@contextlib.contextmanager
def refusals() -> Iterator[None]:
  """Turns a refusal into one line on stderr and exit status 2, and Ctrl-C into one and 130, the shell's."""
  texts.forgive()
  try:
    yield
  except KeyboardInterrupt:
    print('interrupted', file=sys.stderr)
    sys.exit(130)
  except (flags.Error, app.UsageError, ValueError) as error:
    print(texts.one_line(error), file=sys.stderr)
    sys.exit(REFUSED)


def given_path(path: str | pathlib.Path, key: str) -> pathlib.Path:
  """Returns the path of a flag, see `fedjax_syn.core.paths.given`."""
  from fedjax_syn.core import paths

  return paths.given(path, key)


def new_folder(found: flags.FlagValues, argv: Sequence[str]) -> pathlib.Path:
  """Reads the flags of a script that takes nothing else and writes into a new folder.

  Args:
    found: the script's flags, `workdir` among them.
    argv: the command line.

  Returns:
    The folder of `--workdir`, which is not made.

  Raises:
    UsageError: if there is anything beside the flags.
    ValueError: if no folder is named, or it is there.
  """
  if rest := found(argv)[1:]:
    raise app.UsageError(f'{rest[0]!r}: unexpected')
  if not found.workdir:
    raise ValueError('--workdir: name a folder that is not there yet')
  workdir = given_path(found.workdir, '--workdir')
  if workdir.exists():
    raise ValueError(f'--workdir={workdir}: is there already; name one that is not')
  return workdir


def load_config(path: str, settings: Iterable[str] = ()):
  """Loads a config file and applies settings.

  Args:
    path: a Python file with `get_config()`.
    settings: '--config.key=value', as on the command line.

  Returns:
    A locked ConfigDict, not checked yet.

  Raises:
    ValueError: if there is no such file, it fails, or a setting is unknown or of a wrong type.
  """
  file = given_path(path, '--config')
  if not file.is_file():
    if file.exists():  # a folder, a pipe that nobody writes to, a device without an end
      raise ValueError(f'--config={path}: is not a file; name a Python file with get_config()')
    known = ', '.join(f'configs/{f.name}' for f in sorted((ROOT / 'configs').glob('[a-z]*.py')))
    raise ValueError(f'--config={path}: no such file; the project has {known}')
  spec = importlib.util.spec_from_file_location('config_file', file.resolve())
  if spec is None:
    raise ValueError(f'--config={path}: must be a Python file (.py) with get_config()')
  module = importlib.util.module_from_spec(spec)
  try:
    spec.loader.exec_module(module)
    config = module.get_config()
  except (
    Exception,
    SystemExit,
  ) as error:  # whatever a user's file does wrong is a refusal that names its line
    frames = traceback.extract_tb(error.__traceback__)
    lines = [str(frame.lineno) for frame in frames if frame.filename == spec.origin]
    # ml_collections repeats all that it holds, as a quoted string, when one field is unknown.
    message = re.sub(r' Other fields present: ".*}"', '', texts.one_line(error), flags=re.S)
    message = re.sub(r"^'(.*)'$", r'\1', message).replace('\\n', ' ')
    message = textwrap.shorten(f'{type(error).__name__}: {message}', 240)
    raise ValueError(f'--config={":".join([path, *lines[-1:]])}: {message}') from error
  import ml_collections

  if not isinstance(config, ml_collections.ConfigDict):
    raise ValueError(
      f'--config={path}: get_config() returns a {type(config).__name__}, not a ConfigDict'
    )
  apply(config, settings)
  return config


def apply(config, settings: Iterable[str]) -> None:
  """Applies settings to a config, in place.

  Args:
    config: a ConfigDict.
    settings: '--config.key=value', as on the command line.

  Raises:
    ValueError: if a setting is unknown, of a wrong type or has no value.
  """
  from fedjax_syn import config as config_lib

  pairs = []
  for setting in settings:
    key, equals, text = setting.lstrip('-').removeprefix('config.').partition('=')
    if not equals:
      raise ValueError(f'{setting}: has no value; write {setting}=...')
    pairs.append((key, text))
  # Algorithms first: one from outside the package brings the fields that other settings may name.
  for key, text in sorted(pairs, key=lambda pair: pair[0] not in ('algorithm', 'compare')):
    config_lib.override(config, key, text)
  keys = {key for key, _ in pairs}
  if 'algorithm' in keys and 'compare' not in keys and config.compare == config.algorithm:
    config.compare = ''  # what the file compares with, asked for by name: it alone


def default_workdir(config, config_name: str, settings: Iterable[str] = ()) -> pathlib.Path:
  """Returns runs/<config>[-<data>]-<algorithm>-<8 hex>: the same command resumes, a changed one starts anew.

  A folder of this run under another hash, of an older version for instance, is found by what its config.json says. The
  same command with more rounds goes on in the same folder, unless something depends on their number.

  Args:
    config: as it is run.
    config_name: of its file.
    settings: what the command line changed: other data than the file's are named.
  """
  from fedjax_syn import config as config_lib
  from fedjax_syn.algorithms import own_layers
  from fedjax_syn.config import identity
  from fedjax_syn.runs import continuation

  resolved = config_lib.check(config)
  named = any(s.lstrip('-').startswith('config.data.name=') for s in settings)
  method = '+'.join(map(own_layers.called, resolved.algorithm.split('+')))
  words = config_name, *([resolved.data.name] if named else []), method
  name = '-'.join(words).replace(':', '.').replace('/', '.')  # 'tfds:emnist/letters' is one folder
  runs = pathlib.Path('runs')
  own = runs / f'{name}-{identity.hash_of_folder(resolved)}'
  others = (p for p in runs.glob(f'{glob.escape(name)}-{HASH}') if p != own)
  return continuation.folder_of(resolved, itertools.chain([own], others)) or own


def check_paths(resolved, workdir: pathlib.Path, files: Sequence[str] = ()) -> None:
  """Refuses a work folder that cannot be written, a beginning that does not exist, and folders where files are written."""
  existing = next(p for p in (workdir.absolute(), *workdir.absolute().parents) if os.path.exists(p))
  if not existing.is_dir() or not os.access(existing, os.W_OK):
    raise ValueError(f'--workdir={workdir}: {existing} is not a folder that can be written to')
  for path in (workdir / name for name in files):
    if path.is_dir():
      raise ValueError(f'--workdir={workdir}: {path} is a folder and not a file; move it away')
  fresh = not os.path.exists(workdir / 'config.json')
  start = resolved.start_from and given_path(resolved.start_from, 'start_from')
  if start and fresh and not os.path.exists(start):
    raise ValueError(
      f'start_from={resolved.start_from!r}: no such folder; name a checkpoint of another run,'
      ' as in runs/X/checkpoints/50'
    )


def prepare_jax(
  devices: int = 0, coordinator: str = '', processes: int = 0, process: int = -1
) -> None:
  """Sets up JAX before its first array: other processes, CPU devices, the cache of compiled programs.

  Args:
    devices: CPU devices of all processes; 0 is $JAX_NUM_CPU_DEVICES in each, else one per usable core.
      Accelerators are as many as there are.
    coordinator: host:port of process 0; with `processes` and `process`, see `fedjax_syn.core.processes.join`.
    processes: how many train as one.
    process: this one's number.

  Raises:
    ValueError: if the devices asked for by $JAX_PLATFORMS do not exist, or the other processes.
  """
  import jax

  from fedjax_syn.core import processes as hosts

  if devices or jax.config.jax_num_cpu_devices < 0:
    affinity = getattr(os, 'sched_getaffinity', lambda _: range(os.cpu_count() or 1))
    own = devices // max(processes, 1)
    jax.config.update('jax_num_cpu_devices', own or len(affinity(0)))
  cache = jax.config.jax_compilation_cache_dir or '~/.cache/fedjax_syn/jax'
  jax.config.update('jax_compilation_cache_dir', _usable(cache))
  hosts.join(coordinator, processes, process)
  try:
    jax.devices()
  except (RuntimeError, AssertionError) as error:
    platforms = jax.config.jax_platforms
    raise ValueError(
      f'JAX_PLATFORMS={platforms}: no such device can be used ({error or "no plug-in"});'
      ' install the extra (cuda, tpu) or unset it'
    ) from error


def _usable(cache: str) -> str | None:
  """Returns the folder of compiled programs, or None after a line that says why it cannot be one."""
  if '://' in cache:  # storage elsewhere, which JAX knows and this does not
    return cache
  cache = os.path.expanduser(cache)
  try:
    if cache.startswith('~'):  # a user of a container may have none
      raise OSError(0, 'there is no such home folder')
    os.makedirs(cache, exist_ok=True)
    if os.access(cache, os.W_OK | os.X_OK):
      return cache
    reason = 'it cannot be written to'
  except OSError as error:
    reason = error.strerror
  print(
    texts.one_line(f'WARNING: compiled programs are not kept: {cache}: {reason}'), file=sys.stderr
  )
  return None


def _field_line(rules: dict) -> str:
  """What a field is, and its choices where that does not name them."""
  choices = [repr(choice) for choice in rules['choices'] or ()]
  named = all(choice in rules['help'] for choice in choices)
  return rules['help'] + ('' if named else f': {", ".join(choices)}')


def print_list(kind: str, settings: Iterable[str] = ()) -> None:
  """Prints what exists of a kind, one line each; fields with those of a method of one's own that the settings name."""
  from fedjax_syn import config as config_lib

  if kind == 'fields':
    outside = load_config(CONFIG.value, settings).outside
    rows = {
      f'{k}={leaf.default!r}': _field_line(leaf.rules)
      for k, leaf in config_lib.leaves(*outside).items()
    }
  else:
    rows = config_lib.names(kind)
  width = max(map(len, rows), default=0)
  for name, line in rows.items():
    print(f'{name:{width}}  {line}')


def main(argv: list[str]) -> int:
  """Runs one experiment; returns the exit status."""
  with refusals():
    if LIST.value:
      print_list(LIST.value, argv[1:])
      return 0
    from fedjax_syn import config as config_lib

    config = load_config(CONFIG.value, argv[1:])
    resolved = config_lib.check(config)
    name = pathlib.Path(CONFIG.value).stem
    workdir = given_path(WORKDIR.value or default_workdir(config, name, argv[1:]), '--workdir')
    from fedjax_syn.core import processes as hosts

    # Of several processes only the first uses the folder, and all must refuse together: in the run, then.
    alone = not COORDINATOR.value and not hosts.of_several()
    stopping.flags_read(alone)
    if alone:
      check_paths(resolved, workdir)
    prepare_jax(resolved.layout.devices, COORDINATOR.value, PROCESSES.value, PROCESS.value)
    from fedjax_syn.runs import experiment  # only now, so that refusals are quick

  return experiment.run_experiment(config, workdir, config_name=name)


if __name__ == '__main__':
  stopping.run(lambda: app.run(main, flags_parser=parse), goes_on=True)
