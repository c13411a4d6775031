"""Measures a finished run's synthetic set; see `python launch/inspect_run.py --help`."""

from fedjax_syn.cli import command

if __name__ == '__main__':
  command.run('inspect')
