"""Tunes settings on held-out training rows: `python launch/sweep.py --help`, or `fedjax-syn sweep --help`."""

from fedjax_syn.cli import command

if __name__ == '__main__':
  command.run('sweep')
