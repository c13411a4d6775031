"""Tunes settings on held-out training rows; see `python launch/sweep.py --help`."""

from fedjax_syn.cli import command

if __name__ == '__main__':
  command.run('sweep')
