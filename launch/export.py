"""Writes what a run learned for other programs; see `python launch/export.py --help`."""

from fedjax_syn.cli import command

if __name__ == '__main__':
  command.run('export')
