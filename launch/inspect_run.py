"""Measures what a finished run's synthetic set is, does and gives away: `python launch/inspect_run.py --help`; the code is fedjax_syn/cli/inspect.py."""

from fedjax_syn.cli import command

if __name__ == '__main__':
  command.run('inspect')
