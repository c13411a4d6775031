"""What the commands have in common: their flags, and errors in one line.

Settings (`--config.key=value`) are applied by `fedjax_syn.config.files.apply`, which
reads values with `fedjax_syn.config.parsing.override`.
"""

import contextlib
import logging as python_logging
import pathlib
import sys
from collections.abc import Iterator, Sequence

from absl import app, flags, logging

from fedjax_syn.core import exit_status, paths, stopping, suggestions, texts

KINDS = ('algorithms', 'datasets', 'models', 'partitions', 'fields')
SETTINGS = 'settings are written --config.key=value'

CONFIG = flags.DEFINE_string('config', str(paths.DEFAULT_CONFIG), 'a Python file with get_config()')
WORKDIR = flags.DEFINE_string('workdir', None, 'where results go')
COORDINATOR = flags.DEFINE_string('coordinator', '', 'host:port of process 0')
PROCESSES = flags.DEFINE_integer('processes', 0, 'how many processes train as one')
PROCESS = flags.DEFINE_integer('process', -1, "this process's number, from 0")
LIST = flags.DEFINE_enum('list', None, KINDS, 'print what exists')


def own_flags(*names: str) -> flags.FlagValues:
  """Returns a command's own flags; absl's global ones are those of every command of a process.

  Args:
    *names: of flags that several commands have: 'seed', 'trusted'.
  """
  values = flags.FlagValues()
  if 'seed' in names:
    flags.DEFINE_integer('seed', None, 'which seed', flag_values=values)
  if 'trusted' in names:
    help = 'import code that the folder names'
    flags.DEFINE_bool('trusted', False, help, flag_values=values)
  return values


def read(values: flags.FlagValues, argv: Sequence[str], help_text: str) -> list[str]:
  """Reads a command's flags; with `--help` it prints the help and ends.

  Args:
    values: the flags.
    argv: the command line, the program first.
    help_text: what `--help` prints.

  Returns:
    The words that are no flags.

  Raises:
    absl.flags.Error: if a flag cannot be read.
  """
  if {'-h', '--help', '-help'} & set(argv[1:]):
    print(help_text)
    sys.exit(exit_status.FINISHED)
  values.unparse_flags()
  for name in values:
    values[name].unparse()
  return values(argv)[1:]


def read_settings(values: flags.FlagValues, argv: Sequence[str], help_text: str) -> list[str]:
  """Reads flags as `read`; returns the settings (`--config.key=value`) as they were written.

  Raises:
    absl.flags.Error, absl.app.UsageError: if a flag cannot be read, or another word is there.
  """
  settings = [a for a in argv[1:] if a.startswith(('--config.', '-config.'))]
  try:
    words = read(values, [a for a in argv if a not in settings], help_text)
  except flags.UnrecognizedFlagError as error:
    raise app.UsageError(f'{error}; {SETTINGS}{_as_setting(error.flagname)}') from error
  if words:
    raise app.UsageError(f'{words[0]!r}: unexpected; {SETTINGS}')
  stopping.flags_read()
  return settings


def _as_setting(name: str) -> str:
  """States which settings an unknown flag may mean."""
  from fedjax_syn.config import parsing

  if line := suggestions.hint(name):
    return f'; {line}'
  near = suggestions.nearest(name, parsing.leaves())
  named = [key if key.startswith('--') else f'--config.{key}' for key in near]
  return f'; nearest: {", ".join(named)}' if near else ''


def parse(argv: Sequence[str], help_text: str = '') -> list[str]:
  """Reads the flags of `train` and `sweep`; returns the settings as they were written.

  A flag that cannot be read is one line on stderr and exit status 2, where absl alone would print
  its usage and exit with 1.
  """
  logging.use_absl_handler()
  with refusals():
    settings = read_settings(flags.FLAGS, argv, help_text)
  if flags.FLAGS['verbosity'].using_default_value:
    logging.set_verbosity(logging.WARNING)  # JAX would name the back ends that are not there
    # matplotlib would name each folder for its settings that it cannot write to.
    python_logging.getLogger('matplotlib').setLevel(python_logging.ERROR)
  return settings


@contextlib.contextmanager
def refusals() -> Iterator[None]:
  """Turns a refusal into one line on stderr and exit status 2, and Ctrl-C into one line and 130."""
  texts.forgive()
  try:
    yield
  except KeyboardInterrupt:
    print('interrupted', file=sys.stderr)
    sys.exit(exit_status.ABORTED)
  except (flags.Error, app.UsageError, ValueError, FileNotFoundError) as error:
    print(texts.one_line(error), file=sys.stderr)
    sys.exit(exit_status.REFUSED)


def one_folder(words: Sequence[str]) -> pathlib.Path:
  """Returns the only word as a folder.

  Raises:
    UsageError: if there are more or fewer words.
    ValueError: if nobody has the home folder that it names.
  """
  if len(words) != 1:
    raise app.UsageError(f'{len(words)} folders given: name the folder of one run')
  return paths.given(words[0], 'folder')


def new_folder(values: flags.FlagValues, argv: Sequence[str], help_text: str) -> pathlib.Path:
  """Reads the flags of a tool that takes nothing else and writes into a new folder.

  Args:
    values: the tool's flags, `workdir` among them.
    argv: the command line.
    help_text: what `--help` prints.

  Returns:
    The folder of `--workdir`, which is not created.

  Raises:
    UsageError: if there is anything beside the flags.
    ValueError: if no folder is named, or it exists.
  """
  if words := read(values, argv, help_text):
    raise app.UsageError(f'{words[0]!r}: unexpected')
  if not values.workdir:
    raise ValueError('--workdir: name a folder that does not exist yet')
  workdir = paths.given(values.workdir, '--workdir')
  if workdir.exists():
    raise ValueError(f'--workdir={workdir}: exists; name a folder that does not exist yet')
  return workdir
