"""Starts a command by its name: `fedjax-syn train --config=dynafed_fashion_mnist`."""

import contextlib
import faulthandler
import gc
import importlib
import os
import sys
from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from fedjax_syn.core import stopping

# New objects between two of Python's garbage collections (Python's own: 700, from 3.13 on 2,000):
# imports and JAX's tracing make many that live on.
COLLECTED_AFTER = 50_000


class Command(NamedTuple):
  """A command: `main` of its module takes the command line and returns the exit status."""

  help: str
  resumes: bool = False
  """Whether the same command continues where it was stopped."""


COMMANDS = {
  'train': Command('trains as a config says', resumes=True),
  'sweep': Command('tunes on held-out training rows', resumes=True),
  'tables': Command("makes the papers' tables and figures", resumes=True),
  'report': Command('compares runs on one HTML page'),
  'export': Command('writes the model and the synthetic images of a run for other programs'),
  'inspect': Command('measures a synthetic set: gradient error, privacy, training on it'),
  'fits': Command('says whether a run fits devices that this machine does not have'),
  'benchmark': Command('measures speed; needs a checkout'),
}
"""By name, which is that of the module."""


def run(name: str, argv: Sequence[str] | None = None) -> NoReturn:
  """Runs a command and ends the process with its exit status.

  Args:
    name: of `COMMANDS`.
    argv: the command line, the program first; None is `sys.argv`.
  """
  stopping.watch()  # before the imports that take time
  gc.set_threshold(COLLECTED_AFTER)
  if os.getcwd() not in sys.path:
    sys.path.append(os.getcwd())  # `my_module:MyNet` is looked up here, as `python -m` does
  with _loading():
    module = importlib.import_module(f'fedjax_syn.cli.{name}')
  faulthandler.enable()
  arguments = list(sys.argv if argv is None else argv)
  stopping.run(lambda: module.main(arguments), COMMANDS[name].resumes)


def _loading() -> contextlib.AbstractContextManager[None]:
  """Shows on a terminal that modules are being loaded."""
  if not (sys.stdout and sys.stdout.isatty()):
    return contextlib.nullcontext()
  from fedjax_syn.runs import display

  return display.loading()


def main() -> NoReturn:
  """The console script: `fedjax-syn COMMAND [flags]`."""
  name = sys.argv[1] if len(sys.argv) > 1 else '--help'
  if name in COMMANDS:
    run(name, [f'{sys.argv[0]} {name}', *sys.argv[2:]])
  width = max(map(len, COMMANDS))
  lines = [f'  {known:{width}}  {command.help}' for known, command in COMMANDS.items()]
  if name in ('-h', '--help', '-help'):
    print('\n'.join(['fedjax-syn COMMAND [flags]; fedjax-syn COMMAND --help says more', *lines]))
    sys.exit(0)
  print(f'{name!r}: no such command; known are {", ".join(COMMANDS)}', file=sys.stderr)
  sys.exit(2)
