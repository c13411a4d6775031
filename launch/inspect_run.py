"""Measures a finished run's synthetic set: `python launch/inspect_run.py --help`, or `fedjax-syn inspect --help`."""

from fedjax_syn.cli import command

if __name__ == '__main__':
  command.run('inspect')
