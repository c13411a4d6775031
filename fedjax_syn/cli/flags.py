"""What the commands have in common: their flags, and refusals in one line."""

import contextlib
import logging as python_logging
import pathlib
import sys
from collections.abc import Iterator, Sequence

from absl import app, flags, logging

from fedjax_syn.core import exit_status, paths, stopping, texts

KINDS = ('algorithms', 'datasets', 'models', 'partitions', 'fields')

CONFIG = flags.DEFINE_string('config', str(paths.DEFAULT_CONFIG), 'a Python file with get_config()')
WORKDIR = flags.DEFINE_string('workdir', None, 'where results go')
COORDINATOR = flags.DEFINE_string('coordinator', '', 'host:port of process 0')
PROCESSES = flags.DEFINE_integer('processes', 0, 'how many processes train as one')
PROCESS = flags.DEFINE_integer('process', -1, "this process's number, from 0")
LIST = flags.DEFINE_enum('list', None, KINDS, 'print what exists')


def parse(argv: list[str], help_text: str = '') -> list[str]:
  """Reads the flags; returns the program and the settings (`--config.key=value`) as they were written.

  A flag that cannot be read is one line on stderr and exit status 2, where absl alone would print
  its usage and exit with 1.
  """
  if {'-h', '--help', '-help'} & set(argv[1:]):
    print(help_text)
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
    sys.exit(exit_status.REFUSED)


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
  workdir = paths.given(found.workdir, '--workdir')
  if workdir.exists():
    raise ValueError(f'--workdir={workdir}: is there already; name one that is not')
  return workdir
