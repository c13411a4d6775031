"""Writes what a run learned into files that other programs read: `python launch/export.py --help`; the code is fedjax_syn/cli/export.py."""

from fedjax_syn.cli import command

if __name__ == '__main__':
  command.run('export')
