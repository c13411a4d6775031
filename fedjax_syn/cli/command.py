"""Starts a command, by the name that `fedjax-syn` knows it under: `fedjax-syn train --config=dynafed_fashion_mnist`."""

import importlib
import os
import sys
from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from fedjax_syn.core import stopping


class Command(NamedTuple):
  """A command: the module and the function that run it."""

  module: str
  help: str
  resumes: bool = False  # the same command goes on where it was stopped
  function: str = 'main'  # command line -> exit status


COMMANDS = {
  'train': Command('fedjax_syn.cli.train', 'trains as a config says', True, 'start'),
  'sweep': Command('fedjax_syn.cli.sweep', 'tunes on held-out training rows', True, 'start'),
  'tables': Command('fedjax_syn.cli.tables', "makes the papers' tables and figures", True),
  'report': Command('fedjax_syn.cli.report', 'compares runs on one HTML page'),
  'export': Command('fedjax_syn.cli.export', 'writes what a run learned for other programs'),
  'inspect': Command('fedjax_syn.cli.inspect', 'measures what a synthetic set is and gives away'),
  'benchmark': Command('fedjax_syn.cli.benchmark', 'measures speed; needs a checkout'),
}


def run(name: str, argv: Sequence[str] | None = None) -> NoReturn:
  """Runs a command and ends the process with its exit status.

  Args:
    name: of `COMMANDS`.
    argv: the command line, the program first; None is `sys.argv`.
  """
  stopping.watch()  # before the imports that take time
  command = COMMANDS[name]
  if os.getcwd() not in sys.path:
    sys.path.append(os.getcwd())  # `my_module:MyNet` is looked up here, as `python -m` does
  main = getattr(importlib.import_module(command.module), command.function)
  stopping.run(lambda: main(list(sys.argv if argv is None else argv)), command.resumes)


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
