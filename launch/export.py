"""Writes what a run learned for other programs: `python launch/export.py --help`, or `fedjax-syn export --help`."""

from fedjax_syn.cli import command

if __name__ == '__main__':
  command.run('export')
